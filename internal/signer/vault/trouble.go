package vault

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
)

// stage says where something went wrong. It is the reason that a CertificateRequest shows (spec §3.4).
type stage string

const (
	// stageMissing: a Secret, or an entry of one, is not there.
	stageMissing stage = "SecretMissing"
	// stageLogin: the issuer's spec, the connection, Vault's health or the login.
	stageLogin stage = "VaultInitError"
	// stageSign: the call that signs.
	stageSign stage = "SigningError"
)

// told returns an error with the reason that suits its reader: a kind of request (spec §3.4, §4.5), or an issuer.
func told(err error, kind string) error {
	f := fault.Of(err)
	if f == nil {
		return err
	}
	out := *f
	switch kind {
	case certmanagerv1.CertificateRequestKind:
	case certmanagerv1.IssuerKind:
		out.Reason = certmanagerv1.IssuerReasonVaultError
	default: // CertificateSigningRequest
		out.Reason = map[stage]string{
			stageMissing: "SecretNotFound", stageLogin: "ErrorVaultInit", stageSign: "ErrorSigning",
		}[stage(f.Reason)]
	}
	return &out
}

// misplacedAgain is the time until something is looked for again that somebody has to create in Vault: no event tells.
const misplacedAgain = 5 * time.Minute

// waits waits for a Secret or the issuer's spec to change.
func (s stage) waits(format string, args ...any) error {
	return &fault.Fault{Kind: fault.KindPending, Class: fault.ClassConfiguration, Reason: string(s), Err: fmt.Errorf(format, args...)}
}

// missing waits for a Secret, or an entry of one.
func missing(format string, args ...any) error { return stageMissing.waits(format, args...) }

// invalid waits for the issuer's spec, or a Secret that the spec names, to change.
func invalid(format string, args ...any) error { return stageLogin.waits(format, args...) }

// away says that Vault, or what stands between, is out of order.
func (s stage) away(format string, args ...any) error { return s.busy(0, format, args...) }

// busy is away where the answer asks for a wait (RFC 9110 §10.2.3, RFC 6585 §4); zero if it does not.
func (s stage) busy(wait time.Duration, format string, args ...any) error {
	return fault.ClassUnavailable.AfterExactly(wait, string(s), format, args...)
}

// denied says that Vault does not accept the credential, or not for this.
func (s stage) denied(format string, args ...any) error {
	return fault.ClassCredential.After(0, string(s), format, args...)
}

// misplaced says that a path, a role or a service account is not where it is looked for.
func (s stage) misplaced(format string, args ...any) error {
	return fault.ClassNotFound.After(misplacedAgain, string(s), format, args...)
}

// rejected says that Vault will not sign this request: its role may be changed.
func rejected(format string, args ...any) error {
	return fault.Failed(fault.ClassPolicy, string(stageSign), format, args...)
}

// explain says what an error of a call means. path is what was to sign, if anything was.
func (s *session) explain(err error, at stage, path string) error {
	var reply *api.ResponseError
	var wait time.Duration
	if a := (*asking)(nil); errors.As(err, &a) {
		wait = a.wait
	}
	switch {
	case fault.Of(err) != nil:
		return err
	case errors.Is(err, errGarbled):
		return at.away("Vault %s: %s: is spec.vault.server the address of a Vault server? It is tried again", s.server, fault.Quote(err.Error()))
	case errors.As(err, &reply):
		return s.refused(reply, wait, at, path)
	default:
		return at.away("Vault %s cannot be reached: %s; it is tried again", s.server, unreachable(err))
	}
}

// refused reads an error that Vault has answered with. The wait is obeyed only where Vault is out of order: what
// somebody has to correct does not get right by waiting.
func (s *session) refused(reply *api.ResponseError, wait time.Duration, at stage, path string) error {
	code, said := reply.StatusCode, saidBy(reply)
	switch {
	case code == http.StatusServiceUnavailable && strings.Contains(said, "sealed"):
		return at.busy(wait, "Vault %s is sealed: unseal it; it is tried again", s.server)
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusPreconditionFailed,
		code == http.StatusRequestTimeout:
		return at.busy(wait, "Vault %s is out of order (%d): %s; it is tried again", s.server, code, said)
	case at != stageSign:
		return at.denied("Vault %s refused to log in by %s (%d): %s: correct spec.vault.auth, or the role and its policies in Vault", s.server, s.by, code, said)
	case code == http.StatusForbidden && strings.Contains(said, "invalid token"):
		return at.denied("Vault %s does not take the token of this issuer (403): %s: it has expired or was revoked; put another one where spec.vault.auth says", s.server, said)
	case code == http.StatusForbidden:
		return at.denied("Vault %s does not let this issuer sign at %q (403): %s: give it a policy with the capability update on that path, or correct spec.vault.path", s.server, path, said)
	case code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
		return at.misplaced("Vault %s does not sign at %q (%d): %s: correct spec.vault.path, or mount a PKI engine there", s.server, path, code, said)
	case code == http.StatusBadRequest && strings.Contains(said, "unknown role"):
		// A missing role is a missing path: every other request would fail, too.
		return at.misplaced("Vault %s does not sign at %q (400): %s: correct spec.vault.path, or create the role", s.server, path, said)
	case code == http.StatusBadRequest && !reply.RawError: // Vault has decided, not a proxy
		return rejected("Vault %s will not sign this request: %s", s.server, said)
	default:
		return at.misplaced("Vault %s answered %d at %q: %s", s.server, code, path, said)
	}
}

// saidBy returns the errors of Vault's answer. An answer in another form is not quoted: whoever may create an Issuer
// would read any server that the controller can reach.
func saidBy(reply *api.ResponseError) string {
	if reply.RawError {
		return http.StatusText(reply.StatusCode) + ", in words that are not Vault's: is spec.vault.server the address of a Vault server?"
	}
	said := slices.DeleteFunc(slices.Clone(reply.Errors), func(line string) bool { return strings.TrimSpace(line) == "" })
	if len(said) == 0 {
		return http.StatusText(reply.StatusCode)
	}
	return fault.Quote(strings.Join(said, "; "))
}

// unreachable describes an error of the network the same way each time: without the port of this end.
func unreachable(err error) string {
	var certificate *tls.CertificateVerificationError
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &certificate):
		return fmt.Sprintf("its certificate cannot be verified: %s: set spec.vault.caBundle or caBundleSecretRef to the CA of the server, or serverName to the name that the certificate is for", fault.Quote(certificate.Err.Error()))
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	case errors.As(err, &dns), !errors.As(err, &op):
		return egress.Cause(err)
	case op.Addr == nil:
		return fmt.Sprintf("%s: %s", op.Op, op.Err)
	default:
		return fmt.Sprintf("%s %s: %s", op.Op, op.Addr, op.Err)
	}
}
