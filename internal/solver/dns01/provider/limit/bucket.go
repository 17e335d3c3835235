package limit

import "time"

// bucket limits a rate by the generic cell rate algorithm: a token bucket that is one
// time. Those of libraries tell neither how long a wait would be without having the caller
// wait, nor keep a turn for who comes back. The zero value is full.
type bucket struct {
	// next is when the bucket would be full again.
	next time.Time
	// turns are those of calls that were sent away, so that each is sent away once.
	turns map[string]time.Time
}

// turn returns how long it is until the turn of a call. One that is sent away keeps its turn.
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
	if !ok {
		b.keep(id, at, now)
	}
	return wait
}

// keep remembers a turn, if there is place: without, the call gets another one.
func (b *bucket) keep(id string, at, now time.Time) {
	if b.turns == nil {
		b.turns = map[string]time.Time{}
	}
	if len(b.turns) >= maxTurns {
		b.forget(now)
	}
	if len(b.turns) < maxTurns {
		b.turns[id] = at
	}
}

// forget drops the turns that nobody came for.
func (b *bucket) forget(now time.Time) {
	for id, at := range b.turns {
		if now.Sub(at) > turnsHold {
			delete(b.turns, id)
		}
	}
}

// full tells whether nobody has used it of late, nor waits.
func (b *bucket) full(now time.Time) bool {
	b.forget(now)
	return len(b.turns) == 0 && !b.next.After(now)
}
