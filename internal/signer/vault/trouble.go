package vault

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver"
)

// stage is where something went wrong.
type stage int

const (
	// stageMissing: a Secret, or an entry of one, is not there.
	stageMissing stage = iota + 1
	// stageLogin: the issuer's spec, the connection, Vault's health or the login.
	stageLogin
	// stageSign: the call that signs.
	stageSign
)

// trouble is why something did not work out, for a person, and what follows from it: a fault but for its reason,
// which depends on who is told.
type trouble struct {
	stage stage
	kind  fault.Kind
	class fault.Class
	again time.Duration
	err   error
}

// Error says what, where, and what to do.
func (t *trouble) Error() string { return t.err.Error() }

// Unwrap returns what happened.
func (t *trouble) Unwrap() error { return t.err }

// misplacedAgain is how soon something is looked for again that somebody has to make, and that is no event.
const misplacedAgain = 5 * time.Minute

// missing waits for a Secret, or an entry of one.
func missing(format string, args ...any) error {
	return &trouble{stage: stageMissing, kind: fault.KindPending, class: fault.ClassConfiguration, err: fmt.Errorf(format, args...)}
}

// invalid waits for the issuer's spec, or a Secret that the spec names, to change.
func invalid(format string, args ...any) error {
	return &trouble{stage: stageLogin, kind: fault.KindPending, class: fault.ClassConfiguration, err: fmt.Errorf(format, args...)}
}

// away says that Vault, or what stands between, is out of order.
func (s stage) away(format string, args ...any) error {
	return &trouble{stage: s, kind: fault.KindAfter, class: fault.ClassUnavailable, err: fmt.Errorf(format, args...)}
}

// denied says that the credential is not taken, or not for this.
func (s stage) denied(format string, args ...any) error {
	return &trouble{stage: s, kind: fault.KindAfter, class: fault.ClassCredential, err: fmt.Errorf(format, args...)}
}

// misplaced says that something is not where it is looked for: a path, a role, a service account.
func (s stage) misplaced(format string, args ...any) error {
	return &trouble{stage: s, kind: fault.KindAfter, class: fault.ClassNotFound, again: misplacedAgain, err: fmt.Errorf(format, args...)}
}

// rejected says that Vault will not sign this request.
func rejected(format string, args ...any) error {
	return &trouble{stage: stageSign, kind: fault.KindTerminal, class: fault.ClassPermanent, err: fmt.Errorf(format, args...)}
}

// staged is an error of a call, with its stage.
type staged struct {
	stage stage
	err   error
}

func (e *staged) Error() string { return e.err.Error() }
func (e *staged) Unwrap() error { return e.err }

// explain says what an error of a call means. path is what was to sign, if anything was.
func (s *session) explain(err error, path string) error {
	var already *trouble
	if errors.As(err, &already) {
		return err
	}
	var at *staged
	stage := stageSign
	if errors.As(err, &at) {
		stage = at.stage
	}
	var reply *api.ResponseError
	switch {
	case errors.Is(err, errGarbled):
		return stage.away("Vault %s: %w: is spec.vault.server the address of a Vault server? It is tried again", s.server, err)
	case !errors.As(err, &reply):
		return stage.away("Vault %s cannot be reached: %s; it is tried again", s.server, unreachable(err))
	default:
		return s.refused(reply, stage, path)
	}
}

// refused reads an error that Vault has answered with.
func (s *session) refused(reply *api.ResponseError, at stage, path string) error {
	code, said := reply.StatusCode, saidBy(reply)
	switch {
	case code == http.StatusServiceUnavailable && strings.Contains(said, "sealed"):
		return at.away("Vault %s is sealed: unseal it; it is tried again", s.server)
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusPreconditionFailed,
		code == http.StatusRequestTimeout:
		return at.away("Vault %s is out of order (%d): %s; it is tried again", s.server, code, said)
	case at != stageSign:
		return at.denied("Vault %s refused to log in by %s (%d): %s: correct spec.vault.auth, or the role and its policies in Vault", s.server, s.by, code, said)
	case code == http.StatusForbidden:
		return at.denied("Vault %s does not let this issuer sign at %q (403): %s: give it a policy with the capability update on that path, or correct spec.vault.path", s.server, path, said)
	case code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
		return at.misplaced("Vault %s does not sign at %q (%d): %s: correct spec.vault.path, or mount a PKI engine there", s.server, path, code, said)
	case code == http.StatusBadRequest && strings.Contains(said, "unknown role"):
		// As much a missing path as 404 is: no other request fares better.
		return at.misplaced("Vault %s does not sign at %q (400): %s: correct spec.vault.path, or create the role", s.server, path, said)
	case code == http.StatusBadRequest && !reply.RawError: // Vault's own verdict, not a proxy's
		return rejected("Vault %s will not sign this request: %s", s.server, said)
	default:
		return at.misplaced("Vault %s answered %d at %q: %s", s.server, code, path, said)
	}
}

// maxSaid bounds how much of what a server says gets into a condition.
const maxSaid = 512 - len("…")

// saidBy returns what Vault said, on one line. What does not come in Vault's form is not
// quoted: whoever may make an Issuer would read any server that we can reach.
func saidBy(reply *api.ResponseError) string {
	if reply.RawError {
		return http.StatusText(reply.StatusCode) + ", in words that are not Vault's: is spec.vault.server the address of a Vault server?"
	}
	lines := slices.Clone(reply.Errors)
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	if len(lines) == 0 {
		return http.StatusText(reply.StatusCode)
	}
	said := strings.Join(lines, "; ")
	if len(said) > maxSaid {
		said = strings.ToValidUTF8(said[:maxSaid], "") + "…"
	}
	return said
}

// unreachable describes an error of the network the same way each time: without the
// port that the call went out by.
func unreachable(err error) string {
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return fmt.Sprintf("its certificate cannot be verified: %s: set spec.vault.caBundle or caBundleSecretRef to the CA of the server, or serverName to the name that the certificate is for", certificate.Err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "it did not answer in time"
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return solver.Cause(err)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		where := ""
		if op.Addr != nil {
			where = " " + op.Addr.String()
		}
		return fmt.Sprintf("%s%s: %s", op.Op, where, op.Err)
	}
	var in *url.Error
	if errors.As(err, &in) {
		err = in.Err
	}
	return fault.Unquoted(err)
}
