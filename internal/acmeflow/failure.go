package acmeflow

import (
	"fmt"
	"strings"
	"time"

	"chancery.dev/internal/acme"
)

// ErrorClass says what kind of trouble a call came back with. What follows from
// it depends on the step.
type ErrorClass int

const (
	// ErrorBadNonce: the nonce was refused (RFC 8555 §6.5), or the account was parked before
	// the call was sent; the same call may go out as soon as the account is not parked.
	ErrorBadNonce ErrorClass = iota + 1
	// ErrorUnavailable: no answer, a broken one, or a 5xx.
	ErrorUnavailable
	// ErrorRateLimited: 429 or the problem rateLimited.
	ErrorRateLimited
	// ErrorSolver: a solver failed to present or to clean up.
	ErrorSolver
	// ErrorNotYet: a self check does not see the answer.
	ErrorNotYet
	// ErrorNotReady: 403 at finalize: the order is not (or no longer) ready
	// (RFC 8555 §7.4).
	ErrorNotReady
	// ErrorReplaces: the CA refuses the replaces field (RFC 9773 §5) and says so.
	ErrorReplaces
	// ErrorMalformed: the problem malformed. Of a resource: the CA no longer knows it.
	ErrorMalformed
	// ErrorNotFound: 404 or 410.
	ErrorNotFound
	// ErrorMissing: 404 or 410 with a page in place of a problem document. It may be the page
	// of a proxy that does not find the CA: it is retried, and an ErrorNotFound once it has
	// come for long enough.
	ErrorMissing
	// ErrorPermanent: any other refusal: repeating does not cure it.
	ErrorPermanent
)

// String returns the name of the class.
func (c ErrorClass) String() string {
	names := [...]string{
		"None", "BadNonce", "Unavailable", "RateLimited", "Solver", "NotYet", "NotReady", "Replaces",
		"Malformed", "NotFound", "Missing", "Permanent",
	}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("ErrorClass(%d)", int(c))
	}
	return names[c]
}

// Failure is what a step came back with in place of a result.
type Failure struct {
	// Class says what kind of trouble it is.
	Class ErrorClass
	// Detail is for people. It SHOULD be the same each time the same thing happens: it
	// is written to status.reason, and a reason that did not change is not written.
	Detail string
	// RetryAfter is how long the CA (or a fault.After) asks to wait; zero if it does
	// not say.
	RetryAfter time.Duration
	// Nowhere says of a solver's failure that there is no place where an answer could be, so
	// that the call has changed nothing and there is nothing to clean up.
	Nowhere bool
	// Unsent says that the call was not made, because its answer is known. It does not count as
	// another attempt.
	Unsent bool
}

// Classify finds the class of an ACME answer: its HTTP status (0 if there was
// none), its problem type and its detail (both may be empty).
func Classify(httpStatus int, problemType, detail string) ErrorClass {
	problem := strings.TrimPrefix(problemType, acme.ProblemNamespace)
	switch {
	case problem == "badNonce":
		return ErrorBadNonce
	case problem == "rateLimited" || httpStatus == 429:
		return ErrorRateLimited
	case httpStatus < 400 || httpStatus >= 500 || problem == "serverInternal":
		return ErrorUnavailable
	case problem == "alreadyReplaced" || (problem == "malformed" && strings.Contains(detail, "replaces")):
		return ErrorReplaces
	case problem == "orderNotReady":
		return ErrorNotReady
	case httpStatus == 404 || httpStatus == 410:
		return ErrorNotFound
	case problem == "malformed":
		return ErrorMalformed
	case httpStatus == 408:
		return ErrorUnavailable
	default:
		return ErrorPermanent
	}
}

const (
	// shortPark is the park of an account that is not worth a write to each of its Orders: a CA
	// that is busy asks for that again and again, and serves others in between.
	shortPark = time.Minute
	// shortSettle is a wait after a self check that is not worth a write.
	shortSettle = 2 * time.Second
	// maxUntold is for how long an order may be held back without its time being told. An account
	// at its limit holds thousands of them for a minute again and again.
	maxUntold = 10 * time.Minute
)

const (
	networkBackoff    = time.Second
	maxNetworkBackoff = 5 * time.Minute
	solverBackoff     = 2 * time.Second
	maxSolverBackoff  = 5 * time.Minute
	// freeNonceRetries is how many refused nonces in a row cost no delay.
	freeNonceRetries = 5
	// MaxRetryAfter is the longest of the limits that CAs publish. Who asks for more has made
	// a mistake, and is asked once a week.
	MaxRetryAfter = 7 * 24 * time.Hour
	// maxMissing is how many pages in a row are taken for a proxy's, about twenty minutes of
	// them. A CA that has forgotten an order may know no better answer: nobody waits for ever.
	maxMissing = 12
)

// MayPass reports whether the same call may work later.
func (c ErrorClass) MayPass() bool {
	switch c {
	case ErrorBadNonce, ErrorUnavailable, ErrorRateLimited, ErrorSolver, ErrorNotYet, ErrorMissing:
		return true
	default:
		return false
	}
}

// believed is the failure of a step that has failed before, that many times in a row: a page
// that keeps coming is the CA's word.
func (f *Failure) believed(before *Failure, failures int) *Failure {
	if f == nil || before == nil || f.Class != ErrorMissing || before.Class != ErrorMissing || failures+1 < maxMissing {
		return f
	}
	gone := *f
	gone.Class = ErrorNotFound
	return &gone
}

// Backoff is how long to wait before the attempt after the given number of
// failures in a row (1 for the first). Jitter in [0,1) spreads objects that failed
// together. A RetryAfter of up to a week is never undercut.
func Backoff(f Failure, failures int, jitter float64) time.Duration {
	failures = max(failures, 1)
	var wait time.Duration
	switch f.Class {
	case ErrorBadNonce:
		if failures <= freeNonceRetries {
			return 0
		}
		wait = doubled(networkBackoff, failures-freeNonceRetries, maxNetworkBackoff)
	case ErrorRateLimited:
		wait = integrationGuide(failures)
	case ErrorSolver:
		wait = doubled(solverBackoff, failures, maxSolverBackoff)
	case ErrorPermanent, ErrorNotFound, ErrorMalformed:
		wait = maxSolverBackoff
	default:
		wait = doubled(networkBackoff, failures, maxNetworkBackoff)
	}
	if after := min(f.RetryAfter, MaxRetryAfter); after > 0 {
		return after + time.Duration(jitter*float64(min(after/10, time.Minute)))
	}
	return wait*3/4 + time.Duration(jitter*float64(wait/2))
}

// retrying ends the reason of a step that will be tried again. It gives a time where
// the CA rules when, or a solver names a turn; else it stays the same from try to try, and is
// written once. So it does for an order that was not sent. A solver's short wait in whole seconds is a period; a turn is no round time.
func (f Failure) retrying(at time.Time) string {
	if f.Unsent && f.RetryAfter <= maxUntold {
		return "; it is sent as soon as the server takes such orders again"
	}
	if f.Class == ErrorSolver && f.RetryAfter > 0 && f.RetryAfter <= time.Minute && f.RetryAfter%time.Second == 0 {
		return fmt.Sprintf("; retried every %s", f.RetryAfter)
	}
	if f.RetryAfter > 0 || f.Class == ErrorRateLimited {
		return "; retrying at " + instant(at)
	}
	return "; retrying with back-off"
}

// integrationGuide is the retry schedule that Let's Encrypt's integration guide
// asks for, up to the point where an order would outlive its usefulness: 1, 10,
// then every 100 minutes.
func integrationGuide(failures int) time.Duration {
	switch failures {
	case 1:
		return time.Minute
	case 2:
		return 10 * time.Minute
	default:
		return 100 * time.Minute
	}
}

// doubled is base·2^(n-1), at most limit.
func doubled(base time.Duration, n int, limit time.Duration) time.Duration {
	d := base
	for i := 1; i < n && d < limit; i++ {
		d *= 2
	}
	return min(d, limit)
}

const (
	firstPoll = 25 * time.Millisecond
	maxPoll   = 5 * time.Second
	// longPolls is how many polls it takes until a CA is known to be slow, about five
	// minutes; from then on it is asked once in slowPoll.
	longPolls = 60
	slowPoll  = time.Minute
	// maxPollRetryAfter bounds what a CA may ask for between two polls: some say a day.
	maxPollRetryAfter = 10 * time.Minute
	firstCheck        = 250 * time.Millisecond
)

// PollDelay is how long to wait before the next poll of an authorization or an
// order, given how many were made since the CA was asked to act and what its last
// answer's Retry-After says. The first poll comes fast: a CA that is already done
// has no reason to be waited for.
func PollDelay(polls int, retryAfter time.Duration) time.Duration {
	if retryAfter > 0 && polls > 0 {
		return min(retryAfter, maxPollRetryAfter)
	}
	if polls >= longPolls {
		return slowPoll
	}
	return doubled(firstPoll, polls+1, maxPoll)
}

// CheckDelay is how long to wait after the given number of failed self checks in
// a row: ¼ s, doubling, settling at the period.
func CheckDelay(failures int, period time.Duration) time.Duration {
	return doubled(firstCheck, max(failures, 1), period)
}
