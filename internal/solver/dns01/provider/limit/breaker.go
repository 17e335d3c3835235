package limit

import (
	"context"
	"errors"
	"time"

	"chancery.dev/internal/fault"
)

const (
	// tripAfter is how many failures in a row pause a credential.
	tripAfter = 3
	// rememberFor is how long a failure is remembered without another one.
	rememberFor = time.Hour
	// probePeriod is the wait of calls while one call tries whether the pause is over, and probeLimit how long that
	// call may take.
	probePeriod = 5 * time.Second
	probeLimit  = 2 * time.Minute
)

// breaker pauses a credential that keeps failing. A failure that concerns one record only, such as a missing zone, does
// not count. A changed credential is another credential.
type breaker struct {
	failures int
	// until is the end of the pause; zero if there is none. It stays after the pause, until a call has succeeded.
	until time.Time
	// probe is when the one call began that is made after the pause.
	probe time.Time
	// pauses counts the pauses: the failure of a call that began before a pause does not count.
	pauses int
	last   time.Time
	// class and words are those of the last failure.
	class fault.Class
	words string
}

// check returns nil if a call may be made.
func (b *breaker) check(provider string, now time.Time) error {
	const words = "%s: requests with this credential pause until about %s, after they kept failing: %s"
	until := b.until.UTC().Format("15:04:05 UTC")
	switch {
	case now.Before(b.until):
		return b.class.AfterExactly(b.until.Sub(now), ReasonPaused, words, provider, until, b.words)
	case !b.probe.IsZero() && now.Sub(b.probe) < probeLimit:
		return b.class.After(probePeriod, ReasonPaused, words, provider, until, b.words)
	default:
		return nil
	}
}

// admit is check for a call that is made now. After a pause, one call is made: if it fails, too, the next pause begins.
// The caller hands pauses to note when the call has ended.
func (b *breaker) admit(provider string, now time.Time) (pauses int, err error) {
	if err := b.check(provider, now); err != nil {
		return 0, err
	}
	if !b.until.IsZero() {
		b.probe = now
	}
	return b.pauses, nil
}

// note takes in the end of a call.
func (b *breaker) note(err error, pauses int, now time.Time) {
	if err == nil {
		*b = breaker{pauses: b.pauses}
		return
	}
	if pauses != b.pauses {
		return
	}
	b.probe = time.Time{}
	class, delay := classOf(err)
	if class != fault.ClassUnavailable && class != fault.ClassRateLimited && class != fault.ClassCredential {
		return
	}
	if b.quiet(now) {
		b.failures = 0
	}
	b.failures++
	b.last, b.class, b.words = now, class, err.Error()
	var pause time.Duration
	patient := fault.Breakers.With("")
	if class == fault.ClassRateLimited {
		pause = min(delay, patient.Obeyed) // at once: the provider has asked for it
	}
	if beyond := b.failures - tripAfter; beyond >= 0 {
		pause = max(pause, patient.Step(beyond+1))
	}
	if pause > 0 {
		b.until = now.Add(pause)
		b.pauses++
	}
}

// classOf returns the class of an error, and the wait that the provider asks for.
func classOf(err error) (fault.Class, time.Duration) {
	switch f := fault.Of(err); {
	case f != nil:
		return f.Class, f.Delay
	case errors.Is(err, context.Canceled):
		return "", 0 // nobody waits for the call any more
	default:
		return fault.ClassUnavailable, 0 // there is no answer, or not the expected one
	}
}

// quiet reports whether there is nothing to remember.
func (b *breaker) quiet(now time.Time) bool {
	return b.failures == 0 || now.Sub(b.last) > rememberFor
}
