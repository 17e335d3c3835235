package acmeflow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
)

// isGone reports that the CA no longer knows a resource. Some CAs call the request malformed then.
func isGone(f *fault.Fault) bool {
	return f.Class == fault.ClassNotFound || codeOf(f) == acme.CodeMalformed
}

// failure is one that the CA has not told of.
func failure(class fault.Class, what string) *fault.Fault {
	return fault.Answered(class, "", 0, errors.New(what))
}

// codeOf is the ACME problem that the CA has answered with; empty if it has not.
func codeOf(f *fault.Fault) acme.Code { return acme.CodeOf(f.Problem) }

// failed is a failure as the status of an object shows it: its class, the problem that the CA has answered with, what
// it is about, and what was said of it where that is not the whole reason. All may be empty.
type failed struct {
	class         fault.Class
	code          acme.Code
	subject, said string
	// end is how the reason ends.
	end string
	// noSolver says that no solver is for the subject.
	noSolver bool
	// next is when the next try is, where the CA or the solver has named a time; zero if none has.
	next time.Time
}

// cause is the failure as it travels up to the Certificate; nil if there is none.
func (f failed) cause(reason string) *cmmeta.Cause {
	class := cause.Class(f.shown())
	switch {
	case f.class == "":
		return nil
	case f.noSolver:
		class = cause.NoSolver
	}
	c := cause.New(class, f.problemType(), f.subject, cmp.Or(f.said, reason))
	if !f.next.IsZero() {
		c.NextTry = &metav1.Time{Time: f.next.Truncate(time.Second)}
	}
	return c
}

// of is a failure that no problem of the CA stands behind; of("") is none.
func of(class fault.Class) failed { return failed{class: class} }

// failedBy is the failure of a call.
func failedBy(f *fault.Fault) failed { return failed{class: f.Class, code: codeOf(f)} }

// problemType is the type of the problem (RFC 8555 §6.7).
func (f failed) problemType() string {
	if f.code == "" {
		return ""
	}
	return f.code.Type()
}

// shown is the class as objects show it: a single call was the failure only while the call may be repeated.
func (f failed) shown() acmev1.FailureClass {
	switch c := f.class; c {
	case fault.ClassNotProcessed, fault.ClassNotFound:
		return acmev1.FailureClass(fault.ClassUnavailable)
	case fault.ClassNotReady:
		return acmev1.FailureClass(fault.ClassRefused)
	default:
		return acmev1.FailureClass(c)
	}
}

const (
	// shortPark is the longest park of an account that its Orders do not mention: a busy CA asks for short parks again
	// and again, and each would cost a write to each Order.
	shortPark = time.Minute
	// shortSettle is the longest wait after a self check that is not written to the status.
	shortSettle = 2 * time.Second
	// maxUntold is how long an order may be held back without a time in its reason. An account at its limit holds back
	// thousands of orders, for a minute again and again.
	maxUntold = 10 * time.Minute
)

// maxPages is how many pages in a row count as those of a proxy: about twenty minutes of them. After that they
// count as the answer of the CA, because some CAs send nothing better for an order that they have forgotten.
const maxPages = 12

// OrderClass is the class of the failure that ended an Order, which decides when to order anew; empty while the Order
// has not failed. It is read from the Order, so it is the same after a restart.
func OrderClass(s acmev1.OrderStatus) fault.Class {
	return finalClass(s.State, s.FailureClass, s.Reason)
}

// OrderProblem is the CA's problem behind the failure that has ended an Order, or that its status shows; empty if there
// is none.
func OrderProblem(s acmev1.OrderStatus) acme.Code {
	if s.FailureClass == "" && s.State.IsFailure() { // another controller has left it
		return codeIn(s.Reason)
	}
	return acme.CodeOf(s.ProblemType)
}

// challengeClass is that of a Challenge.
func challengeClass(s acmev1.ChallengeStatus) fault.Class {
	return finalClass(s.State, s.FailureClass, s.Reason)
}

func finalClass(state acmev1.State, class acmev1.FailureClass, reason string) fault.Class {
	switch {
	case !state.IsFailure():
		return ""
	case class != "":
		return fault.Class(class)
	default:
		return leftClass(state, reason)
	}
}

// ContradictsSelfCheck reports whether a Challenge has ended as invalid because the CA did not find what the self check
// had found. Other problems, such as a CAA record, have nothing to do with how soon an answer is seen (RFC 8555 §6.7).
func (m ChallengeMemory) ContradictsSelfCheck(c *acmev1.Challenge) bool {
	if m.Passed.IsZero() || c.Status.State != acmev1.Invalid {
		return false
	}
	mine, _ := m.remoteChallenge(c.Spec.URL)
	return slices.Contains([]acme.Code{
		"", acme.CodeUnauthorized, acme.CodeIncorrectResponse, acme.CodeDNS, acme.CodeConnection, acme.CodeTLS,
	}, mine.Error.Cause())
}

// Backoff is how long to wait before the attempt after the given number of failures in a row (1 for the first). Jitter
// in [0,1) spreads objects that failed together. A Retry-After of up to a week is never undercut.
func Backoff(f *fault.Fault, failures int, jitter float64) time.Duration {
	return fault.Orders.With(f.Class).Wait(f.Delay, failures, jitter)
}

const (
	// WithBackOff ends the reason of a step that is tried again soon, if nobody has said when.
	WithBackOff = "retrying with back-off"
	// sentLater ends the reason of an order that was not sent.
	sentLater = "it is sent as soon as the server takes such orders again"
)

// retrying is how the reason of a step ends that will be tried again. It gives a time only where the CA or the solver
// has named one. Otherwise, and for an order that was not sent, the text is the same for each try, and is written once.
func retrying(f *fault.Fault, at time.Time) string {
	switch {
	case names(f):
		return "retrying at " + instant(at)
	case f.Unsent && f.Delay <= maxUntold:
		return sentLater
	case f.Delay > 0:
		return fmt.Sprintf("retried every %s", f.Delay)
	default:
		return WithBackOff
	}
}

// names reports whether the CA or the solver has named the time of the next try, or a limit does.
func names(f *fault.Fault) bool {
	if f.Unsent && f.Delay <= maxUntold || !f.Exact && f.Delay > 0 {
		return false
	}
	return f.Delay > 0 || f.Class == fault.ClassRateLimited || f.Class == fault.ClassPaused
}

// ending is a reason with what ends it; the end may be empty.
func ending(what, end string) string {
	if end == "" {
		return what
	}
	return what + "; " + end
}

// Said returns a reason without its ending: what is wrong.
func Said(reason, end string) string {
	if end == "" {
		return reason
	}
	return strings.TrimSuffix(reason, "; "+end)
}

// longPolls is how many polls it takes until a CA is known to be slow, about five minutes.
const longPolls = 60

// PollDelay is how long to wait before the next poll of an authorization or an
// order, given how many polls were made since the CA was asked to act, and the Retry-After of its last answer. The
// first poll comes fast, because the CA may be done already.
func PollDelay(polls int, retryAfter time.Duration) time.Duration {
	p := fault.Polls.With("")
	if polls >= longPolls {
		p = fault.SlowPolls.With("")
	}
	if retryAfter > 0 && polls > 0 {
		return min(retryAfter, p.Obeyed)
	}
	return p.Step(polls + 1)
}

// CheckDelay is how long to wait after the given number of failed self checks in
// a row: ¼ s, doubling, settling at the period.
func CheckDelay(failures int, period time.Duration) time.Duration {
	return min(fault.SelfChecks.With("").Step(failures), period)
}
