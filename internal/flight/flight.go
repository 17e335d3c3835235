// Package flight makes calls that leave the cluster, off the reconcile workers.
//
// A reconciler must never wait for a CA, a DNS server or a provider. It asks its
// Flights for the outcome of a call instead: the first time, the call takes off
// in a lane (one for each account, credential or server, bounded in number) and
// the reconciler returns; when it lands, the object is queued again and the next
// ask takes the outcome. A silent CA thus fills its own lane and nobody else's.
//
// It holds no policy: what to call, and what an outcome means, is decided by the
// pure packages.
package flight

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/fault"
)

// Key names one call: an object and what is asked for it.
type Key struct {
	// Object is the UID of the object the call is for.
	Object types.UID
	// Call tells several calls for one object apart.
	Call string
}

// Call is one call to make.
type Call struct {
	// Key names the call: while it is in the air, or its outcome waits to be
	// taken, no second one is made.
	Key Key
	// Lane is what the call is bounded by: an account, a credential, a server.
	Lane string
	// Urgency is who goes first among those that wait for the lane: the higher one, and of
	// equals the one that has waited longer.
	Urgency int
	// Run makes the call. Its context ends after the group's timeout, and when the
	// group ends. A panic in it is a fault.Panic in the outcome.
	Run func(ctx context.Context) (any, error)
	// Landed is called, once, after Run has returned: it queues the object again.
	Landed func()
}

// Outcome is what a call returned.
type Outcome struct {
	Value any
	Err   error
}

// Options bound a group of flights.
type Options struct {
	// PerLane is how many calls of one lane are in the air at once; at least 1.
	PerLane int
	// Timeout bounds each call; zero means none.
	Timeout time.Duration
}

// Flights makes calls in lanes. Use New.
type Flights struct {
	opts Options
	ctx  context.Context //nolint:containedctx // the group's life, which outlives any caller's context

	mu    sync.Mutex
	calls map[Key]*flight
	lanes map[string]*lane
}

type flight struct {
	call     Call
	outcome  Outcome
	landed   bool
	released bool
}

type lane struct {
	inAir   int
	waiting []*flight
}

// New returns flights that are called off when ctx ends.
func New(ctx context.Context, opts Options) *Flights {
	opts.PerLane = max(opts.PerLane, 1)
	return &Flights{opts: opts, ctx: ctx, calls: map[Key]*flight{}, lanes: map[string]*lane{}}
}

// Ask returns the outcome of the call if it has landed, and forgets it. Otherwise
// it makes the call, unless it is under way, and returns false.
func (f *Flights) Ask(c Call) (Outcome, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.calls[c.Key]; ok {
		if !known.landed {
			return Outcome{}, false
		}
		delete(f.calls, c.Key)
		return known.outcome, true
	}
	fl := &flight{call: c}
	f.calls[c.Key] = fl
	l := f.lanes[c.Lane]
	if l == nil {
		l = &lane{}
		f.lanes[c.Lane] = l
	}
	if l.inAir >= f.opts.PerLane {
		i := sort.Search(len(l.waiting), func(i int) bool { return l.waiting[i].call.Urgency < c.Urgency })
		l.waiting = slices.Insert(l.waiting, i, fl)
		return Outcome{}, false
	}
	l.inAir++
	go f.fly(fl)
	return Outcome{}, false
}

// InAir returns how many calls are under way or wait for their lane.
func (f *Flights) InAir() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, fl := range f.calls {
		if !fl.landed {
			n++
		}
	}
	return n
}

// Forget drops every call of an object that is gone: an outcome that waits is
// thrown away, one still to come is not kept.
func (f *Flights) Forget(object types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, fl := range f.calls {
		if k.Object == object {
			fl.released = true
			delete(f.calls, k)
		}
	}
}

func (f *Flights) fly(fl *flight) {
	for fl != nil {
		outcome := f.run(fl.call)
		f.mu.Lock()
		fl.outcome, fl.landed = outcome, true
		released := fl.released
		next := f.nextInLane(fl.call.Lane)
		f.mu.Unlock()
		if !released && fl.call.Landed != nil {
			fl.call.Landed()
		}
		fl = next
	}
}

// nextInLane hands the place of a landed call to the next one that waits, or
// gives it up. It is called with the lock held.
func (f *Flights) nextInLane(name string) *flight {
	l := f.lanes[name]
	for len(l.waiting) > 0 {
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		if !next.released {
			return next
		}
	}
	l.inAir--
	if l.inAir == 0 {
		delete(f.lanes, name)
	}
	return nil
}

func (f *Flights) run(c Call) (o Outcome) {
	defer fault.Contain(&o.Err)
	ctx := f.ctx
	if f.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.opts.Timeout)
		defer cancel()
	}
	v, err := c.Run(ctx)
	return Outcome{Value: v, Err: err}
}
