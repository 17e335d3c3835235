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
	// leastPause and mostPause bound a pause; each one is twice as long as the last.
	leastPause = 30 * time.Second
	mostPause  = 10 * time.Minute
	// rememberFor is how long a failure is remembered without another one.
	rememberFor = time.Hour
	// probePeriod is when to ask again while one call tries whether the pause is over, and
	// probeLimit how long that one may take.
	probePeriod = 5 * time.Second
	probeLimit  = 2 * time.Minute
)

// breaker pauses a credential that keeps failing. A failure that is about one record only,
// such as a zone that is not there, does not count. A changed credential is another one.
type breaker struct {
	failures int
	// until is when the pause ends; zero if there is none. It stays when it is over, until a
	// call has succeeded.
	until time.Time
	// probe is when the one call began that may be made then.
	probe time.Time
	// pauses counts them: a call that began before one says nothing new by failing.
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
		return b.class.Turn(b.until.Sub(now), ReasonPaused, words, provider, until, b.words)
	case !b.probe.IsZero() && now.Sub(b.probe) < probeLimit:
		return b.class.After(probePeriod, ReasonPaused, words, provider, until, b.words)
	default:
		return nil
	}
}

// admit is check for a call that is made now. After a pause one is: if it fails too, the
// next pause begins. How the call ends is to be noted with what admit returns.
func (b *breaker) admit(provider string, now time.Time) (pauses int, err error) {
	if err := b.check(provider, now); err != nil {
		return 0, err
	}
	if !b.until.IsZero() {
		b.probe = now
	}
	return b.pauses, nil
}

// note learns from how a call ended.
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
	if class == fault.ClassRateLimited {
		pause = min(delay, mostPause) // the provider has said so: at once
	}
	if beyond := b.failures - tripAfter; beyond >= 0 {
		pause = max(pause, min(leastPause<<min(beyond, 5), mostPause))
	}
	if pause > 0 {
		b.until = now.Add(pause)
		b.pauses++
	}
}

// classOf says what kind of failure an error is, and how long the other side wants to be left alone.
func classOf(err error) (fault.Class, time.Duration) {
	switch f := fault.Of(err); {
	case f != nil:
		return f.Class, f.Delay
	case errors.Is(err, context.Canceled):
		return "", 0 // nobody waits for it any more
	default:
		return fault.ClassUnavailable, 0 // nobody has answered, or not what was expected
	}
}

// quiet tells whether there is nothing worth remembering.
func (b *breaker) quiet(now time.Time) bool {
	return b.failures == 0 || now.Sub(b.last) > rememberFor
}
