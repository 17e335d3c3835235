package limit

import (
	"maps"
	"time"
)

// bucket limits a rate by the generic cell rate algorithm: a token bucket whose state is one time. It tells how long
// the wait is, and keeps the turn of a caller who comes back, which the buckets of libraries do not. The zero value is
// full.
type bucket struct {
	// next is when the bucket would be full again.
	next time.Time
	// turns are the times of calls that were sent away, so that each is sent away once.
	turns map[string]time.Time
}

// turn returns how long a call has to wait for its turn. A call that is sent away keeps its turn.
func (b *bucket) turn(id string, now time.Time, o Options) time.Duration {
	if o.QPS <= 0 {
		return 0
	}
	at, ok := b.turns[id]
	if !ok {
		each := time.Duration(float64(time.Second) / o.QPS)
		if b.next.Before(now) {
			b.next = now
		}
		at = b.next.Add(-each * time.Duration(max(o.Burst, 1)-1))
		b.next = b.next.Add(each)
	}
	wait := max(at.Sub(now), 0)
	if wait <= patience {
		delete(b.turns, id)
		return wait
	}
	switch {
	case ok:
		return wait
	case b.turns == nil:
		b.turns = map[string]time.Time{}
	case len(b.turns) >= maxTurns:
		b.forget(now)
	}
	if len(b.turns) < maxTurns { // else the call gets another turn when it comes back
		b.turns[id] = at
	}
	return wait
}

// forget drops the turns whose callers have not come back.
func (b *bucket) forget(now time.Time) {
	maps.DeleteFunc(b.turns, func(_ string, at time.Time) bool { return now.Sub(at) > turnsHold })
}

// full reports whether the bucket has not been used of late, and no call waits.
func (b *bucket) full(now time.Time) bool {
	b.forget(now)
	return len(b.turns) == 0 && !b.next.After(now)
}
