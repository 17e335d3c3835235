package exec

import (
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
)

// breaker pauses a credential that keeps failing, so that a thousand challenges do not
// lock an account or exhaust a quota. A failure that is about one record only, such
// as a zone that is not there, does not count.
type breaker struct {
	failures int
	until    time.Time
	last     time.Time
	words    string
}

// check returns nil if a request may be made. After a pause one is: if it fails too,
// the next pause begins.
func (b *breaker) check(provider string, now time.Time) error {
	if !now.Before(b.until) {
		return nil
	}
	return fault.After(b.until.Sub(now), ReasonPaused, "%s: requests with this credential pause after they kept failing: %s", provider, b.words)
}

func (b *breaker) note(err error, now time.Time) {
	if err == nil {
		*b = breaker{}
		return
	}
	f := fault.Of(err)
	if f == nil || f.Reason == ReasonRefused || f.Reason == ReasonBusy || f.Reason == ReasonInvalidConfig {
		return
	}
	b.failures++
	b.last, b.words = now, err.Error()
	if f.Reason == ReasonThrottled {
		b.until = now.Add(f.Delay) // the provider has said so: at once
	}
	if b.failures < tripAfter {
		return
	}
	pause := mostPause
	if shift := b.failures - tripAfter; shift < 5 {
		pause = min(leastPause<<shift, mostPause)
	}
	if until := now.Add(pause); until.After(b.until) {
		b.until = until
	}
}

// quiet tells whether there is nothing worth remembering.
func (b *breaker) quiet(now time.Time) bool {
	return b.failures == 0 || now.Sub(b.last) > rememberFor
}
