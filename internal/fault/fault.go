// Package fault defines the errors that signers and solvers return.
//
// A controller needs to know what to do after an error: give up, try again at a known time, or wait for an event. A
// Fault says which of the three to do. It also has a reason (CamelCase, shown in conditions and events) and a message
// for a person. An error that is not a Fault is unexpected: the call that returned the error is repeated with back-off.
//
// The package also has the one table of waits (patience.go): how long each caller waits before it tries again, and how
// much of a Retry-After it obeys. It does not log, retry or write anything: internal/engine acts on faults.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what to do about a Fault.
type Kind string

const (
	// KindPending waits for an event: nothing is retried before a watched object changes.
	KindPending Kind = "pending"
	// KindAfter is retried once Delay has passed.
	KindAfter Kind = "after"
	// KindTerminal is never retried: only a change of the object or its issuer helps.
	KindTerminal Kind = "terminal"
)

// Fault is an error that knows what to do about itself.
type Fault struct {
	// Kind says what to do next.
	Kind Kind
	// Reason is a CamelCase word for conditions and events.
	Reason string
	// Delay is how long to wait before the next try; only for KindAfter.
	Delay time.Duration
	// Exact says that the end of Delay was set for this very call: a turn in a queue, a Retry-After. Else Delay
	// is a period, the same after each try.
	Exact bool
	// Class says what kind of failure it is; empty if nothing is known.
	Class Class
	// Problem is the type of the problem document in the other side's answer (RFC 9457), such as
	// urn:ietf:params:acme:error:caa; empty if there is none.
	Problem string
	// Subject is what it is about: a host, or an object with its kind; may be empty.
	Subject string
	// Unsure says that the answer may come from somebody else: a page came in place of a problem document, and a proxy
	// may have sent it.
	Unsure bool
	// Unsent says that the call was not made, because its answer is known: it does not count as another failure.
	Unsent bool
	// Err says what happened, for a person; never nil.
	Err error
}

// Class says what kind of failure it is. Failures of one class call for the same patience. It is the one
// vocabulary for that: of the calls to a CA, a DNS provider or Vault, of what an Order or a Challenge waits for
// (status.failureClass), and of how a request has failed (the condition chancery.dev/FailureClass).
type Class string

// The classes that objects show.
const (
	// ClassPermanent fails again until somebody changes something: a name that the CA
	// refuses, a profile it does not know.
	ClassPermanent Class = "Permanent"
	// ClassPolicy means that a rule of the other side forbids what is asked for, and that a change over there helps:
	// of a Vault role, of the CA behind a server.
	ClassPolicy Class = "Policy"
	// ClassRefused means that the other side refuses this call, but not for what is asked for: the same call
	// fails again, and starting over may succeed.
	ClassRefused Class = "Refused"
	// ClassValidation means that the CA did not find what it looked for at the names.
	ClassValidation Class = "Validation"
	// ClassSelfCheck means that the self check does not see the answer that the CA will look for.
	ClassSelfCheck Class = "SelfCheck"
	// ClassSolver means that a solver could not present the answer, or clean it up.
	ClassSolver Class = "Solver"
	// ClassRateLimited means that the other side wants fewer requests.
	ClassRateLimited Class = "RateLimited"
	// ClassPaused means that the other side takes no such request before a person has lifted a pause there.
	ClassPaused Class = "Paused"
	// ClassUnavailable means that the other side was out of order.
	ClassUnavailable Class = "Unavailable"
	// ClassCredential means that the other side does not take the credential, whatever it is used for.
	ClassCredential Class = "Credential"
	// ClassConfiguration means that an object in the cluster, or a setting, is missing or wrong.
	ClassConfiguration Class = "Configuration"
)

// The classes of single calls, which no object shows.
const (
	// ClassNotProcessed means that the call was not sent, or not looked at (a refused nonce): nothing has
	// failed, and the same call may be sent again.
	ClassNotProcessed Class = "NotProcessed"
	// ClassNotReady means that the other side is not, or no longer, ready for the call.
	ClassNotReady Class = "NotReady"
	// ClassNotFound means that the other side does not know what the call is about.
	ClassNotFound Class = "NotFound"
)

// Passes reports whether a call that has failed with the class may work later, as far as the class alone tells.
func (c Class) Passes() bool {
	switch c {
	case ClassPermanent, ClassRefused, ClassNotReady, ClassNotFound:
		return false
	default:
		return true
	}
}

// Answered is the failure of a call that the other side has answered. problem is the type of the problem document, and
// wait the time that the answer asks to wait; both may be empty.
func Answered(class Class, problem string, wait time.Duration, err error) *Fault {
	f := &Fault{Kind: KindAfter, Class: class, Problem: problem, Exact: true, Delay: wait, Err: err}
	if !class.Passes() {
		f.Kind = KindTerminal
	}
	return f
}

// MayPass reports whether the same call may work later.
func (f *Fault) MayPass() bool { return f.Kind != KindTerminal }

// Certain returns the fault without Unsure, for a caller that knows that the other side has sent the answer.
func (f *Fault) Certain() *Fault {
	sure := *f
	sure.Unsure = false
	if !f.Class.Passes() {
		sure.Kind = KindTerminal
	}
	return &sure
}

// ReasonNoZone is the reason of a solver's fault: DNS has answered that no zone has the name, so the solver cannot
// present anything there, and has not done so. If a server does not answer, the fault has another reason.
const ReasonNoZone = "NoZone"

// Error returns the message of the underlying error.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the underlying error.
func (f *Fault) Unwrap() error { return f.Err }

// Terminal reports a failure that no retry mends. The format may wrap an error with %w.
func Terminal(reason, format string, args ...any) error {
	return Failed("", reason, format, args...)
}

// Failed is Terminal for a failure whose class is known.
func Failed(class Class, reason, format string, args ...any) error {
	return &Fault{Kind: KindTerminal, Class: class, Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Pending reports that an event has to come first: an object that must appear or change.
func Pending(reason, format string, args ...any) error {
	return &Fault{Kind: KindPending, Reason: reason, Err: fmt.Errorf(format, args...)}
}

// After reports that the same call may work once delay has passed.
func After(delay time.Duration, reason, format string, args ...any) error {
	return Class("").After(delay, reason, format, args...)
}

// After is the function After for a failure whose class is known.
func (c Class) After(delay time.Duration, reason, format string, args ...any) error {
	return &Fault{Kind: KindAfter, Class: c, Reason: reason, Delay: delay, Err: fmt.Errorf(format, args...)}
}

// AfterExactly is After for a call whose next try has a time of its own: a turn in a queue, a Retry-After.
func (c Class) AfterExactly(delay time.Duration, reason, format string, args ...any) error {
	return &Fault{Kind: KindAfter, Class: c, Exact: true, Reason: reason, Delay: delay, Err: fmt.Errorf(format, args...)}
}

// Of returns the outermost Fault in err's chain, or nil if err carries none.
func Of(err error) *Fault {
	f, _ := errors.AsType[*Fault](err)
	return f
}

// Is reports whether an error of a type is in err's chain.
func Is[T error](err error) bool {
	_, is := errors.AsType[T](err)
	return is
}

// IsTerminal reports whether err carries a Fault that no retry mends.
func IsTerminal(err error) bool {
	f := Of(err)
	return f != nil && f.Kind == KindTerminal
}
