package preflight

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/solver/http01"
	"chancery.dev/internal/solver/tlsalpn01"
)

// probe is the token of the request: no CA has given it out, and the responder does not know it.
const probe = "chancery-preflight"

// each asks at all addresses of a name, and returns what they say, or why none answers.
func (k *checker) each(ctx context.Context, name string, port int, ask func(ctx context.Context, dial http01.DialFunc) (string, error)) (said []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	var mu sync.Mutex
	err = k.dialer.Each(ctx, name, func(ctx context.Context, dial http01.DialFunc, where string) error {
		text, err := ask(ctx, dial)
		if err != nil {
			return fault.After(time.Second, http01.ReasonNotReachable, "port %d%s: %s", port, where, egress.Cause(err))
		}
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text+where)
		return nil
	})
	return said, err
}

// http checks whether a request from this machine reaches a web server at the name. The route to the responder exists
// only while an Order is under way: so an answer shows only that there is a server.
func (k *checker) http(ctx context.Context, p preflight.Proof) preflight.Finding {
	f := preflight.Finding{Check: "route", Subject: p.Name, Outcome: preflight.OK}
	ready := certmanagerv1.FindIssuerCondition(k.issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionHTTP01Ready)
	if ready != nil && ready.Status == cmmeta.ConditionFalse {
		f.Outcome, f.Message, f.WhatToDo = preflight.Failed, ready.Message, "See the HTTP-01 page of the documentation: docs/http01.md"
		return f
	}
	port := cmp.Or(k.o.ports.http, 80)
	var mu sync.Mutex
	odd := ""
	said, err := k.each(ctx, p.Name, port, func(ctx context.Context, dial http01.DialFunc) (string, error) {
		answer, err := request(ctx, dial, p.Name, port)
		if err != nil {
			return "", err
		}
		_ = answer.Body.Close() // the body is not read
		text := fmt.Sprintf("status %d", answer.StatusCode)
		if server := answer.Header.Get("Server"); server != "" {
			text += " by the server " + fault.Quote(server)
		}
		if u := answer.Request.URL; u.Scheme != "http" || u.Hostname() != p.Name {
			text += ", redirected to " + u.Scheme + "://" + u.Host
		}
		if answer.StatusCode != http.StatusNotFound {
			mu.Lock()
			defer mu.Unlock()
			odd = text
		}
		return text, nil
	})
	f.Message = "asked from this machine: " + strings.Join(said, "; ")
	switch {
	case err != nil:
		f.Outcome, f.Message = preflight.Failed, "asked from this machine: "+err.Error()
		f.WhatToDo = preflight.Unproved(p.Name, acmev1.ChallengeTypeHTTP01)
	case odd != "":
		f.Outcome = preflight.Warning
		f.WhatToDo = "A path that nobody knows is answered otherwise than by 404: see that " + acme.HTTP01Path("") + " reaches the ingress controller without a login"
	default:
		f.Message += ": the route to the responder is made with the order"
	}
	return f
}

// request asks for the path of a challenge, as a CA does: redirects are followed, and certificates are not verified.
func request(ctx context.Context, dial http01.DialFunc, name string, port int) (*http.Response, error) {
	host := name
	if ip, err := netip.ParseAddr(name); err == nil && ip.Is6() {
		host = "[" + name + "]"
	}
	if port != 80 {
		host = net.JoinHostPort(name, strconv.Itoa(port))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+acme.HTTP01Path(probe), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "kubectl-chancery")
	transport := &http.Transport{
		DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: limits.Headers,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // RFC 8555 §8.3: it may be the certificate that is to be replaced
	}
	return (&http.Client{Transport: transport}).Do(req)
}

// handshake checks whether a server that speaks TLS-ALPN-01 answers at the name. Our responder refuses a handshake for
// which there is no challenge with the alert unrecognized_name.
func (k *checker) handshake(ctx context.Context, p preflight.Proof) preflight.Finding {
	f := preflight.Finding{Check: "route", Subject: p.Name, Outcome: preflight.OK}
	port := cmp.Or(k.o.ports.tls, 443)
	var mu sync.Mutex
	other := false
	said, err := k.each(ctx, p.Name, port, func(ctx context.Context, dial http01.DialFunc) (string, error) {
		conn, err := dial(ctx, "tcp", net.JoinHostPort(p.Name, strconv.Itoa(port)))
		if err != nil {
			return "", err
		}
		defer func() { _ = conn.Close() }() // nothing more is to be said
		secure := tls.Client(conn, &tls.Config{
			ServerName: http01.ServerName(p.Name), NextProtos: []string{tlsalpn01.Protocol}, MinVersion: tls.VersionTLS12,
			InsecureSkipVerify: true, //nolint:gosec // RFC 8737 §3: the certificate is self-signed
		})
		err = secure.HandshakeContext(ctx)
		var alert *net.OpError
		refused := errors.As(err, &alert) && alert.Op == "remote error"
		var noTLS tls.RecordHeaderError
		switch {
		case err == nil && secure.ConnectionState().NegotiatedProtocol == tlsalpn01.Protocol:
			return "a server answers that speaks " + tlsalpn01.Protocol, nil
		case refused && strings.Contains(alert.Err.Error(), "unrecognized name"):
			return "a server answers that has no challenge for the name yet, as the responder does", nil
		case err == nil, refused, errors.As(err, &noTLS):
			mu.Lock()
			defer mu.Unlock()
			other = true
			return "a server answers that does not speak " + tlsalpn01.Protocol, nil
		}
		return "", err
	})
	f.Message = "asked from this machine: " + strings.Join(said, "; ")
	switch {
	case err != nil:
		f.Outcome, f.Message = preflight.Failed, "asked from this machine: "+err.Error()
		f.WhatToDo = preflight.Unproved(p.Name, acmev1.ChallengeTypeTLSALPN01)
	case other:
		f.Outcome = preflight.Failed
		f.WhatToDo = "Have TLS for the name, or at least the protocol " + tlsalpn01.Protocol + ", passed through undecrypted to the responder: see docs/tls-alpn01.md"
	}
	return f
}
