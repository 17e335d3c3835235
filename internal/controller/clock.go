package controller

import (
	"time"
)

// Clock is what all waiting goes by. Tests bring one that leaps over waits.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f, in a goroutine of its own, when d has passed. The returned
	// function takes that back, if it is not too late.
	AfterFunc(d time.Duration, f func()) (stop func())
	// Queue returns a queue whose delays go by the clock.
	Queue(name string, limiter Limiter) Queue
}

// AfterFunc is that of the clock.
func (d *Deps) AfterFunc(wait time.Duration, f func()) (stop func()) {
	if d.Clock != nil {
		return d.Clock.AfterFunc(wait, f)
	}
	return afterFunc(wait, f)
}

// afterFunc is that of the machine's clock.
func afterFunc(wait time.Duration, f func()) (stop func()) {
	timer := time.AfterFunc(wait, f)
	return func() { timer.Stop() }
}
