package venafi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Venafi/vcert/v5/pkg/endpoint"
	"github.com/Venafi/vcert/v5/pkg/verror"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
)

// zoneAgain is the wait before a missing zone is looked for again: no event tells that somebody has created it.
const zoneAgain = 5 * time.Minute

// finalStatuses are the statuses of a SaaS request that will never be issued. To the library, all but FAILED are
// pending.
func finalStatuses() []string {
	return []string{"FAILED", "REJECTED", "REJECTED_APPROVAL", "CANCELLED", "DELETED", "REVOKED"}
}

// classify makes a fault of the error of a call. The caller adds the reason later. The class comes from the last
// exchange, because the library has the same errors for a server that is unavailable and for one that refuses. A
// fault.KindPending says that the certificate is not there yet, a fault.KindTerminal that the server refuses the
// request.
func (a *session) classify(x *exchange, err error) error {
	f := &fault.Fault{}
	if f.Kind, f.Class = a.classOf(x, err); f.Class == fault.ClassNotFound || x.unfit != nil {
		f.Delay = zoneAgain
	}
	if x.retryAfter > 0 {
		f.Delay = x.retryAfter
	}
	_, text := x.said()
	said := fault.Quote(cmp.Or(text, x.unquoted(err)))
	var pending endpoint.ErrCertificatePending
	switch {
	case x.unfit != nil:
		f.Err = fmt.Errorf("%s: the policy of zone %q %s: have it shortened at the server, or name another zone in spec.venafi.zone", a.server, a.zone, fault.Quote(x.unfit.Error()))
	case x.err != nil:
		f.Err = fmt.Errorf("%s cannot be reached: %s", a.server, egress.Cause(x.err))
	case f.Class == fault.ClassNotFound && noZone(err):
		f.Err = fmt.Errorf("%s has no zone %q, or it is not shown to these credentials: correct spec.venafi.zone, or the rights of the credentials in Secret %s", a.server, a.zone, a.secret)
	case f.Class == fault.ClassCredential:
		f.Err = fmt.Errorf("%s does not accept the credentials in Secret %s: %s", a.server, a.secret, said)
	case errors.As(err, &pending):
		f.Err = fmt.Errorf("%s: %s", a.server, fault.Quote(cmp.Or(pending.Status, text, "pending")))
	case x.status >= http.StatusBadRequest && !json.Valid(x.body):
		f.Err = fmt.Errorf("%s answers %d: %s, in words that are not Certificate Manager's", a.server, x.status, http.StatusText(x.status))
	case x.status >= http.StatusBadRequest:
		f.Err = fmt.Errorf("%s answers %d: %s", a.server, x.status, said)
	default:
		f.Err = fmt.Errorf("%s: %s", a.server, fault.Quote(x.unquoted(err)))
	}
	return f
}

// classOf says what to do about a failure, and its class. A zone that cannot be read is handled like a missing one.
func (a *session) classOf(x *exchange, err error) (fault.Kind, fault.Class) {
	answer, _ := x.said()
	var pending endpoint.ErrCertificatePending
	switch {
	case x.unfit != nil:
		return fault.KindAfter, fault.ClassPolicy
	case x.err != nil:
		return fault.KindAfter, fault.ClassUnavailable
	case x.step == stepPolicy:
		return fault.KindTerminal, fault.ClassPolicy
	case x.status == http.StatusTooManyRequests:
		return fault.KindAfter, fault.ClassRateLimited
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden:
		return fault.KindAfter, fault.ClassCredential
	case a.product == productTPP && x.step == stepRetrieve && answer.Stage > 0 && x.status >= http.StatusBadRequest:
		return fault.KindTerminal, fault.ClassPolicy // refused by the CA behind the server, at that stage
	case x.status >= http.StatusInternalServerError:
		return fault.KindAfter, fault.ClassUnavailable
	case x.step == stepLogin:
		return fault.KindAfter, fault.ClassCredential // RFC 6749 §5.2: invalid_grant is a 400
	case errors.As(err, &pending) && isPending(x.status, pending.Status):
		return fault.KindPending, ""
	case errors.As(err, &pending):
		return fault.KindTerminal, fault.ClassPolicy
	case noZone(err), x.step == stepZone && x.status >= http.StatusBadRequest:
		return fault.KindAfter, fault.ClassNotFound
	case x.step == stepZone:
		return fault.KindAfter, fault.ClassUnavailable
	case x.status >= http.StatusBadRequest && !json.Valid(x.body):
		return fault.KindAfter, fault.ClassUnavailable // a proxy has answered: the server answers in JSON
	default:
		return fault.KindTerminal, fault.ClassPolicy
	}
}

// noZone reports whether the server said that there is no such zone.
func noZone(err error) bool {
	return errors.Is(err, verror.ZoneNotFoundError) || errors.Is(err, verror.ApplicationNotFoundError)
}

// isPending reports whether the certificate may still be issued. SaaS answers 404 and 409, too, if there is none yet.
func isPending(code int, status string) bool {
	early := code < http.StatusBadRequest || code == http.StatusNotFound || code == http.StatusConflict
	return early && !slices.Contains(finalStatuses(), strings.ToUpper(status))
}

// The least and the longest wait before a certificate is fetched again that is not issued yet. The wait grows with the
// request's age, which a restart does not change.
const firstPoll, lastPoll = 2 * time.Second, time.Minute

// patience is a quarter of the time that has been waited, within bounds.
func patience(waited time.Duration) time.Duration { return min(max(waited/4, firstPoll), lastPoll) }

// probeFault says what an issuer does about a call that did not work out.
func probeFault(err error) error {
	f := fault.Of(err)
	if f == nil {
		return err
	}
	reason, hint := certmanagerv1.IssuerReasonVenafiErrorSetup, ""
	switch f.Class {
	case fault.ClassCredential:
		reason, hint = certmanagerv1.IssuerReasonVenafiAuthenticateFailed, ": correct them, or get a new token"
	case fault.ClassUnavailable, fault.ClassRateLimited:
		hint = "; retrying with back-off"
	default:
	}
	return f.Class.After(f.Delay, reason, "Failed to set up the Certificate Manager issuer: %w%s", f.Err, hint)
}

// fault says what a request does about a call that did not work out; refused is the reason if the server refuses the
// request. Only a refusal ends the request: any other failure may be mended elsewhere. Other errors are returned as
// they are.
func (w words) fault(err error, refused string, waited time.Duration) error {
	f := fault.Of(err)
	if f == nil || f.Reason != "" {
		return err
	}
	switch {
	case f.Kind == fault.KindPending:
		return fault.After(patience(waited), w.pending, "The certificate is not issued yet: %w", f.Err)
	case f.Kind == fault.KindTerminal:
		return fault.Failed(f.Class, refused, "%w", f.Err)
	case f.Class == fault.ClassCredential, f.Class == fault.ClassNotFound, f.Class == fault.ClassPolicy:
		// The issuer, or its zone, has to be corrected.
		return f.Class.After(f.Delay, w.initError, "%w", f.Err)
	default:
		return f.Class.After(f.Delay, w.pending, "%w; trying again", f.Err)
	}
}
