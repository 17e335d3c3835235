package acmeflow

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
)

// IsGone reports that the CA no longer knows a resource. Some CAs call the request malformed then.
func IsGone(f *fault.Fault) bool {
	return f.Class == fault.ClassNotFound || CodeOf(f) == acme.CodeMalformed
}

// NewFault is a failure that the CA has not told of.
func NewFault(class fault.Class, what string) *fault.Fault {
	return fault.Answered(class, "", 0, errors.New(what))
}

// CodeOf is the ACME problem that the CA has answered with; empty if it has not.
func CodeOf(f *fault.Fault) acme.Code { return acme.CodeOf(f.Problem) }

// Failure is a failure as the status of an object shows it: its class, the problem that the CA has answered with, what
// it is about, and what was said of it where that is not the whole reason. All may be empty.
type Failure struct {
	Class         fault.Class
	Code          acme.Code
	Subject, Said string
	// End is how the reason ends.
	End string
	// NoSolver says that no solver is for the subject.
	NoSolver bool
	// Next is when the next try is, where the CA or the solver has named a time; zero if none has.
	Next time.Time
}

// Cause is the failure as it travels up to the Certificate; nil if there is none.
func (f Failure) Cause(reason string) *cmmeta.Cause {
	class := cause.Class(f.ShownClass())
	switch {
	case f.Class == "":
		return nil
	case f.NoSolver:
		class = cause.NoSolver
	}
	c := cause.New(class, f.ProblemType(), f.Subject, cmp.Or(f.Said, reason))
	if !f.Next.IsZero() {
		c.NextTry = &metav1.Time{Time: f.Next.Truncate(time.Second)}
	}
	return c
}

// FailureOf is a failure that no problem of the CA stands behind; FailureOf("") is none.
func FailureOf(class fault.Class) Failure { return Failure{Class: class} }

// FailureOfCall is the failure of a call.
func FailureOfCall(f *fault.Fault) Failure { return Failure{Class: f.Class, Code: CodeOf(f)} }

// ProblemType is the type of the problem (RFC 8555 §6.7).
func (f Failure) ProblemType() string {
	if f.Code == "" {
		return ""
	}
	return f.Code.Type()
}

// ShownClass is the class as objects show it: a single call was the failure only while the call may be repeated.
func (f Failure) ShownClass() acmev1.FailureClass {
	switch c := f.Class; c {
	case fault.ClassNotProcessed, fault.ClassNotFound:
		return acmev1.FailureClass(fault.ClassUnavailable)
	case fault.ClassNotReady:
		return acmev1.FailureClass(fault.ClassRefused)
	default:
		return acmev1.FailureClass(c)
	}
}

const (
	// ShortPark is the longest park of an account that its Orders do not mention: a busy CA asks for short parks again
	// and again, and each would cost a write to each Order.
	ShortPark = time.Minute
	// maxUntold is how long an order may be held back without a time in its reason. An account at its limit holds back
	// thousands of orders, for a minute again and again.
	maxUntold = 10 * time.Minute
)

// maxPages is how many pages in a row count as those of a proxy: about twenty minutes of them. After that they
// count as the answer of the CA, because some CAs send nothing better for an order that they have forgotten.
const maxPages = 12

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

// Retrying is how the reason of a step ends that will be tried again. It gives a time only where the CA or the solver
// has named one. Otherwise, and for an order that was not sent, the text is the same for each try, and is written once.
func Retrying(f *fault.Fault, at time.Time) string {
	switch {
	case NamesTime(f):
		return "retrying at " + Instant(at)
	case f.Unsent && f.Delay <= maxUntold:
		return sentLater
	case f.Delay > 0:
		return fmt.Sprintf("retried every %s", f.Delay)
	default:
		return WithBackOff
	}
}

// NamesTime reports whether the CA or the solver has named the time of the next try, or a limit does.
func NamesTime(f *fault.Fault) bool {
	if f.Unsent && f.Delay <= maxUntold || !f.Exact && f.Delay > 0 {
		return false
	}
	return f.Delay > 0 || f.Class == fault.ClassRateLimited || f.Class == fault.ClassPaused
}

// WithEnd is a reason with what ends it; the end may be empty.
func WithEnd(what, end string) string {
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

// LongPolls is how many polls it takes until a CA is known to be slow, about five minutes.
const LongPolls = 60

// PollDelay is how long to wait before the next poll of an authorization or an
// order, given how many polls were made since the CA was asked to act, and the Retry-After of its last answer. The
// first poll comes fast, because the CA may be done already.
func PollDelay(polls int, retryAfter time.Duration) time.Duration {
	p := fault.Polls.With("")
	if polls >= LongPolls {
		p = fault.SlowPolls.With("")
	}
	if retryAfter > 0 && polls > 0 {
		return min(retryAfter, p.Obeyed)
	}
	return p.Step(polls + 1)
}

// TextOf is the words of a problem; empty for none.
func TextOf(p *acme.Problem) string {
	if p == nil {
		return ""
	}
	return p.Error()
}

// Instant is a time as reasons give it.
func Instant(at time.Time) string { return at.UTC().Truncate(time.Second).Format(time.RFC3339) }
