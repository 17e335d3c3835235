package acmeflow

import (
	"time"

	"chancery.dev/internal/fault"
)

// Attempts is what a process remembers of the external steps of one object: which step is under way, and whether the
// last step failed. The zero value of a step is the wait.
type Attempts[S comparable] struct {
	// Running is the step under way since Since; the wait if there is none.
	Running S
	Since   time.Time
	// Failed is the last step if it failed, FailedAt is when, Failure is how, and Failures is how many times in a row
	// with the same class. Jitter is that of the outcome. Failure is nil after a success.
	Failed   S
	FailedAt time.Time
	Failure  *fault.Fault
	Failures int
	Jitter   float64
}

// Finished notes that no step is under way: it has come back, or was not sent because the decision is another one by
// now.
func (a *Attempts[S]) Finished() {
	var wait S
	a.Running, a.Since = wait, time.Time{}
}

// Certain returns the failure of a step, nil if there is none. A page that has come maxPages times in a row counts as
// the answer of the CA.
func (a *Attempts[S]) Certain(step S, f *fault.Fault) *fault.Fault {
	if f == nil || !f.Unsure || a.Failed != step || a.Failure == nil || !a.Failure.Unsure || a.Failures+1 < maxPages {
		return f
	}
	return f.Certain()
}

// RetryAt is when the failed step may be tried again.
func (a *Attempts[S]) RetryAt() time.Time {
	return a.FailedAt.Add(Backoff(a.Failure, a.Failures, a.Jitter))
}

// Fail notes the failure of a step. Failures of one kind in a row make the back-off.
func (a *Attempts[S]) Fail(step S, f *fault.Fault, at time.Time, jitter float64) {
	if a.Failed != step || a.Failure.Class != f.Class || a.Failure.Unsure != f.Unsure {
		a.Failures = 0
	}
	a.Failed, a.FailedAt, a.Failure, a.Jitter = step, at, f, jitter
	if !f.Unsent {
		a.Failures++
	}
}
