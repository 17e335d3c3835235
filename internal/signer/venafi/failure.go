package venafi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Venafi/vcert/v5/pkg/endpoint"
	"github.com/Venafi/vcert/v5/pkg/verror"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver"
)

// class says whose turn it is after a call did not work out.
type class int

const (
	// classUnavailable: the server, or the way to it, was out of order.
	classUnavailable class = iota + 1
	// classLimited: the server wants fewer calls.
	classLimited
	// classLogin: the server does not accept the credentials, or they lack a right.
	classLogin
	// classZone: there is no such zone, or it cannot be read.
	classZone
	// classPending: the certificate is not there yet.
	classPending
	// classRefused: the server refuses the request.
	classRefused
)

// failure is why a call did not work out.
type failure struct {
	class class
	// retryAfter is what the server asked for; zero if nothing.
	retryAfter time.Duration
	err        error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// maxRetryAfter is the longest wait that a server is granted, in seconds.
const maxRetryAfter = 3600

// finalStatuses are those of a SaaS request that will never be issued; the library
// takes all but FAILED for pending.
func finalStatuses() []string {
	return []string{"FAILED", "REJECTED", "REJECTED_APPROVAL", "CANCELLED", "DELETED", "REVOKED"}
}

// failureOf classes what went wrong by the last exchange: the library's errors do not
// tell a server that is away from one that says no.
func (a *account) failureOf(x *exchange, err error) error {
	f := &failure{class: a.classOf(x, err)}
	if seconds, err := strconv.Atoi(x.retryAfter); err == nil && seconds > 0 {
		f.retryAfter = time.Duration(min(seconds, maxRetryAfter)) * time.Second
	}
	_, said := x.said()
	foreign := x.unquoted(err)
	var pending endpoint.ErrCertificatePending
	switch {
	case x.err != nil:
		f.err = fmt.Errorf("%s cannot be reached: %s", a.server, solver.Cause(x.err))
	case f.class == classZone && noZone(err):
		f.err = fmt.Errorf("%s has no zone %q, or it is not shown to these credentials: correct spec.venafi.zone, or the rights of the credentials in Secret %s", a.server, a.zone, a.secret)
	case f.class == classLogin:
		f.err = fmt.Errorf("%s does not accept the credentials in Secret %s: %s", a.server, a.secret, oneLine(or(said, foreign)))
	case errors.As(err, &pending):
		f.err = fmt.Errorf("%s: %s", a.server, oneLine(or(pending.Status, or(said, "pending"))))
	case x.status >= http.StatusBadRequest && !json.Valid(x.body):
		f.err = fmt.Errorf("%s answers %d: %s, in words that are not Certificate Manager's", a.server, x.status, http.StatusText(x.status))
	case x.status >= http.StatusBadRequest:
		f.err = fmt.Errorf("%s answers %d: %s", a.server, x.status, oneLine(or(said, foreign)))
	default:
		f.err = fmt.Errorf("%s: %s", a.server, oneLine(foreign))
	}
	return f
}

func (a *account) classOf(x *exchange, err error) class {
	answer, _ := x.said()
	var pending endpoint.ErrCertificatePending
	switch {
	case x.step == stepPolicy:
		return classRefused
	case x.err != nil:
		return classUnavailable
	case x.status == http.StatusTooManyRequests:
		return classLimited
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden:
		return classLogin
	case a.product == productTPP && x.step == stepRetrieve && answer.Stage > 0 && x.status >= http.StatusBadRequest:
		return classRefused // by the CA behind the server, at that stage
	case x.status >= http.StatusInternalServerError:
		return classUnavailable
	case x.step == stepLogin:
		return classLogin // RFC 6749 §5.2: invalid_grant is a 400
	case errors.As(err, &pending):
		return pendingClass(x.status, pending.Status)
	case noZone(err), x.step == stepZone && x.status >= http.StatusBadRequest:
		return classZone
	case x.step == stepZone:
		return classUnavailable
	case x.status >= http.StatusBadRequest && !json.Valid(x.body):
		return classUnavailable // a proxy's words: the server's own are JSON
	default:
		return classRefused
	}
}

// noZone reports whether the server said that there is no such zone.
func noZone(err error) bool {
	return errors.Is(err, verror.ZoneNotFoundError) || errors.Is(err, verror.ApplicationNotFoundError)
}

// pendingClass tells what is pending from what is over: SaaS says that there is no
// certificate yet by 404 and 409 too.
func pendingClass(code int, status string) class {
	early := code < http.StatusBadRequest || code == http.StatusNotFound || code == http.StatusConflict
	if !early || slices.Contains(finalStatuses(), strings.ToUpper(status)) {
		return classRefused
	}
	return classPending
}

// How long a request waits before the next call. It grows with the request's age,
// which is the one thing that a restart does not forget.
const (
	firstPoll, lastPoll   = 2 * time.Second, time.Minute
	firstRetry, lastRetry = 5 * time.Second, 5 * time.Minute
)

// patience is a quarter of the time that has been waited, within bounds.
func patience(waited, least, most time.Duration) time.Duration {
	return min(max(waited/4, least), most)
}

// requestFault says what a request does about a call that did not work out; reason is
// the word for a refusal. Only a refusal ends the request: whatever may be mended
// elsewhere is waited for.
func (p *pass) requestFault(err error, reason string) error {
	waited := p.Now().Sub(p.r.Source.GetCreationTimestamp().Time)
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{class: classUnavailable, err: err}
	}
	retry := patience(waited, firstRetry, lastRetry)
	switch f.class {
	case classPending:
		return fault.After(patience(waited, firstPoll, lastPoll), p.words.pending, "The certificate is not issued yet: %w", f)
	case classRefused:
		return fault.Failed(fault.ClassPermanent, reason, "%w", f)
	case classLogin, classZone:
		// The issuer is at fault: let it say so.
		p.Doubt(p.issuer)
		return fault.After(retry, p.words.initError, "%w", f)
	default:
		return fault.After(max(f.retryAfter, retry), p.words.pending, "%w; trying again", f)
	}
}
