// Package term tells whether the term of this process is over, so that the process can ask before it sends something.
// The term is the time in which a leader may act. The term ends if the leader does not renew the lease in time, and
// runs again when the leader renews the lease later.
//
// The package holds no lease: package leader holds the lease and extends the term. After the end of the term, the
// engine starts no call, and package leader blocks all writes to the API server. Packages egress and exec check the
// term once more before each request to another server or program.
package term

import (
	"context"
	"errors"
)

// ErrOver is why a context has ended with the term, and the answer to what would be sent after the term.
var ErrOver = errors.New("the lease of this process has run out, as when the process was stopped for a while or did not reach the " +
	"API server: another one may lead, so nothing is written, and nobody is asked")

// Term is the time for which a process may act.
type Term interface {
	// Over reports whether the process must not act.
	Over() bool
}

type key struct{}

// With returns a context that Check knows the term by.
func With(ctx context.Context, t Term) context.Context { return context.WithValue(ctx, key{}, t) }

// Check returns ErrOver if the term of a context is over. It reads the clock: a process that was stopped may get to
// send something before its timers have ended the context.
func Check(ctx context.Context) error {
	if t, is := ctx.Value(key{}).(Term); is && t.Over() {
		return ErrOver
	}
	return nil
}
