// Package tlsalpn01 solves TLS-ALPN-01 challenges (RFC 8737; for IP addresses RFC 8738). Its Responder answers the TLS
// handshakes of CAs, and reads the challenges from the Index of the HTTP-01 responder. The self check makes the same
// TLS handshake as the CA.
//
// The package makes no routes: the user forwards port 443 of a name, or only the protocol acme-tls/1, to the Responder
// without TLS termination. internal/app starts the watches that fill the Index, and internal/controller schedules the
// challenges.
package tlsalpn01

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/http01"
)

// Protocol is the one that handshakes ask for by ALPN (RFC 8737 §6.2).
const Protocol = "acme-tls/1"

// advice is what to do if another server answers.
const advice = "have TLS for the name, or at least the protocol " + Protocol + " of it, passed through undecrypted to the responder " +
	"(a TLSRoute, or a load balancer that can), and let the responder listen for it (--tlsalpn01-listen-address)"

// CheckOptions configure the self check.
type CheckOptions struct {
	// Port that the CA will connect to; 0 means 443.
	Port int
	// Timeout bounds one check; 0 means 10 s.
	Timeout time.Duration
	// Dialer connects to names.
	Dialer *http01.Dialer
}

// Solver implements solver.Solver. The Responder answers a Challenge as soon as the scheduler has set
// it processing; there is nothing else to present.
type Solver struct{ o CheckOptions }

// New makes a Solver.
func New(o CheckOptions) *Solver {
	o.Port, o.Timeout = cmp.Or(o.Port, 443), cmp.Or(o.Timeout, 10*time.Second)
	return &Solver{o}
}

var _ solver.Solver = (*Solver)(nil)

// Present only checks that the Challenge is of this kind.
func (*Solver) Present(_ context.Context, t solver.Task) error {
	if t.Challenge.Spec.Solver.TLSALPN01 == nil {
		return solver.NotConfigured(t, "tlsALPN01")
	}
	return nil
}

// CleanUp does nothing: a Challenge in a final state is not answered.
func (*Solver) CleanUp(context.Context, solver.Task) error { return nil }

// Check makes a handshake as the CA will (RFC 8737 §3), once with each address of the name. Its fault.After says what
// the answer was, and what to do. Its delay is the longest wait; the caller may try sooner.
func (s *Solver) Check(ctx context.Context, t solver.Task) error {
	if err := s.Present(ctx, t); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	spec := t.Challenge.Spec
	err := s.o.Dialer.Each(ctx, spec.DNSName, func(ctx context.Context, dial http01.DialFunc, where string) error {
		return s.handshake(ctx, spec, dial, where)
	})
	if f := fault.Of(err); f != nil && f.Kind == fault.KindAfter {
		return fault.After(f.Delay, f.Reason, "%w; %s", f.Err, http01.Viewpoint)
	}
	return err
}

// handshake checks the answer at one address.
func (s *Solver) handshake(ctx context.Context, spec acmev1.ChallengeSpec, dial http01.DialFunc, where string) error {
	target := net.JoinHostPort(spec.DNSName, strconv.Itoa(s.o.Port))
	where = target + where
	conn, err := dial(ctx, "tcp", target)
	if err != nil {
		return failed(http01.ReasonNotReachable, where, egress.Cause(err))
	}
	defer func() { _ = conn.Close() }() // nothing more is to be said
	secure := tls.Client(conn, &tls.Config{
		ServerName: http01.ServerName(spec.DNSName), NextProtos: []string{Protocol}, MinVersion: tls.VersionTLS12,
		// Another check follows: the certificate is self-signed.
		InsecureSkipVerify: true, //nolint:gosec // RFC 8737 §3, see above
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return refused(where, err)
	}
	state := secure.ConnectionState()
	if state.NegotiatedProtocol != Protocol {
		return failed(http01.ReasonWrongAnswer, where, anotherServer+"; "+advice)
	}
	if problem := problemOf(state.PeerCertificates[0], spec.DNSName, spec.Key); problem != "" {
		return failed(http01.ReasonWrongAnswer, where, problem)
	}
	return nil
}

// anotherServer is the message about an ordinary web server.
const anotherServer = "a server answers that speaks TLS, but not " + Protocol

// The alerts that say why a server ends a handshake (RFC 8446 §6.2), as text: crypto/tls exports no values for them.
const (
	noApplicationProtocol = "tls: no application protocol"
	unrecognizedName      = "tls: unrecognized name"
)

// refused says why there was no handshake.
func refused(where string, err error) error {
	var alert *net.OpError
	switch remote := errors.As(err, &alert) && alert.Op == "remote error"; {
	case fault.Is[tls.RecordHeaderError](err):
		return failed(http01.ReasonWrongAnswer, where, "a server answers that does not speak TLS; "+advice)
	case remote && alert.Err.Error() == noApplicationProtocol:
		return failed(http01.ReasonWrongAnswer, where, anotherServer+"; "+advice)
	case remote && alert.Err.Error() == unrecognizedName:
		return failed(http01.ReasonWrongAnswer, where, "the server that answers knows no such name: the responder does not answer for this namespace, or it is another server; "+advice)
	case remote:
		return failed(http01.ReasonWrongAnswer, where, "a server answers that refuses the handshake ("+alert.Err.Error()+"); "+advice)
	}
	return failed(http01.ReasonNotReachable, where, egress.Cause(err))
}

func failed(reason, where, what string) error {
	return fault.After(solver.CheckPeriod, reason, "TLS handshake for %s with %s: %s", Protocol, where, what)
}
