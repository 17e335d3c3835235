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

// stage is where a call failed.
type stage int

const (
	stagePrepare stage = iota
	stageHealth
	stageLogin
	stageSign
)

// trouble is something that did not work out, for a person.
type trouble struct {
	// class says what may mend it: an object in the cluster (ClassConfiguration); credentials, policies or paths
	// that do not fit together, which Vault's side may mend without an event (ClassCredential); time
	// (ClassUnavailable); or nothing, for Vault will not sign this CSR (ClassPermanent).
	class fault.Class
	// missing says that a Secret, or an entry of one, has to appear.
	missing bool
	stage   stage
	err     error
}

// Error says what, where, and what to do.
func (t *trouble) Error() string { return t.err.Error() }

// Unwrap returns what happened.
func (t *trouble) Unwrap() error { return t.err }

const (
	firstRetry = 5 * time.Second
	lastRetry  = time.Minute
	// deniedRetry is how long a refusal rests: only people can mend it.
	deniedRetry = 5 * time.Minute
)

// patience is how long to wait after so many failures in a row.
func (t *trouble) patience(failures int) time.Duration {
	if t.class != fault.ClassUnavailable {
		return deniedRetry
	}
	wait := firstRetry
	for n := 1; n < failures && wait < lastRetry; n++ {
		wait *= 2
	}
	return min(wait, lastRetry)
}

func invalid(format string, args ...any) error {
	return &trouble{class: fault.ClassConfiguration, err: fmt.Errorf(format, args...)}
}

// troubleOf returns the trouble that err is.
func troubleOf(err error) *trouble {
	var t *trouble
	if errors.As(err, &t) {
		return t
	}
	return &trouble{class: fault.ClassUnavailable, err: err}
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
	if errors.Is(err, errGarbled) {
		return &trouble{class: fault.ClassUnavailable, stage: stage, err: fmt.Errorf("Vault %s: %w: is spec.vault.server the address of a Vault server? It is tried again", s.server, err)}
	}
	if !errors.As(err, &reply) {
		return &trouble{class: fault.ClassUnavailable, stage: stage, err: fmt.Errorf("Vault %s cannot be reached: %s; it is tried again", s.server, unreachable(err))}
	}
	t := s.refused(reply, stage, path)
	t.stage = stage
	return t
}

// refused reads an error that Vault has answered with.
func (s *session) refused(reply *api.ResponseError, stage stage, path string) *trouble {
	code, said := reply.StatusCode, saidBy(reply)
	say := func(c fault.Class, format string, args ...any) *trouble {
		return &trouble{class: c, err: fmt.Errorf("Vault %s "+format, append([]any{s.server}, args...)...)}
	}
	switch {
	case code == http.StatusServiceUnavailable && strings.Contains(said, "sealed"):
		return say(fault.ClassUnavailable, "is sealed: unseal it; it is tried again")
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusPreconditionFailed,
		code == http.StatusRequestTimeout:
		return say(fault.ClassUnavailable, "is out of order (%d): %s; it is tried again", code, said)
	case stage != stageSign:
		return say(fault.ClassCredential, "refused to log in by %s (%d): %s: correct spec.vault.auth, or the role and its policies in Vault", s.by, code, said)
	case code == http.StatusForbidden:
		return say(fault.ClassCredential, "does not let this issuer sign at %q (403): %s: give it a policy with the capability update on that path, or correct spec.vault.path", path, said)
	case code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
		return say(fault.ClassCredential, "does not sign at %q (%d): %s: correct spec.vault.path, or mount a PKI engine there", path, code, said)
	case code == http.StatusBadRequest && strings.Contains(said, "unknown role"):
		// As much a missing path as 404 is: no other request fares better.
		return say(fault.ClassCredential, "does not sign at %q (400): %s: correct spec.vault.path, or create the role", path, said)
	case code == http.StatusBadRequest && !reply.RawError: // Vault's own verdict, not a proxy's
		return say(fault.ClassPermanent, "will not sign this request: %s", said)
	default:
		return say(fault.ClassCredential, "answered %d at %q: %s", code, path, said)
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
