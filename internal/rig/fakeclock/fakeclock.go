// Package fakeclock is a test clock that skips waits. The clock runs like the machine's clock. When the system is idle,
// the clock jumps past the end of the next wait, if this end is at most eight hours away. So a test of back-offs of an
// hour takes a second, and no test has to step the clock.
//
// The system is idle when all queues are empty, no worker is busy, all requests have ended, and every watch has
// reported every write. All of this must have been true for a short time. The length of this time is a guess, because
// three kinds of work cannot be counted: an informer's work before it queues an event, the calls of the engine, and
// Pebble's work between two requests. If the guess is wrong, the clock jumps during such work. The code under test then
// sees a slow machine, and it must tolerate a slow machine. Only tests import the package.
package fakeclock

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"chancery.dev/internal/rig/spent"
)

const (
	// quiet is for how long nothing may have happened before the clock leaps.
	quiet = 60 * time.Millisecond
	// horizon is how far the clock leaps at most: the first question for renewal
	// information is within it, renewals are further away.
	horizon = 8 * time.Hour
	// slack is what a leap goes beyond a wait's end, and so is half of the wait: waits
	// that end close to each other end in one leap.
	slack = time.Second
	// turns is how often the clock lets everybody else have the processor before a leap.
	turns = 8
)

// Clock implements controller.Clock. The zero value is not ready: use New.
type Clock struct {
	mu    sync.Mutex
	ahead time.Duration
	waits map[*wait]bool
	// queues may hold something that no worker has taken yet.
	queues []*queue
	// busy is how much is going on, and since when nothing is.
	busy  int
	since time.Time
	leaps int
	// ended is how many waits have ended by themselves.
	ended int
	news  news
}

type wait struct {
	at    time.Time
	timer *time.Timer
}

// New returns a clock that leaps until ctx ends.
func New(ctx context.Context) *Clock {
	c := &Clock{waits: map[*wait]bool{}, since: time.Now(), news: newNews()}
	go c.run(ctx)
	return c
}

// Steady returns a clock that never leaps, for tests that count the waits of what should wait for nothing (Ended).
func Steady() *Clock { return &Clock{waits: map[*wait]bool{}, since: time.Now(), news: newNews()} }

// Ended is how many waits have come to their end: those that began with some time to go, and were not taken back.
func (c *Clock) Ended() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Now is the machine's time and all leaps.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time { return time.Now().Add(c.ahead) }

// Ahead is how far the clock has leapt altogether.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// String says what the clock is waiting for.
func (c *Clock) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []time.Duration
	for w := range c.waits {
		left = append(left, w.at.Sub(c.now()).Round(time.Millisecond))
	}
	slices.Sort(left)
	return fmt.Sprintf("%s ahead after %d leaps, %d things going on, %d writes untold, still for %s, waits of %v",
		c.ahead, c.leaps, c.busy, len(c.news.untold), time.Since(c.since), left)
}

// AfterFunc calls f when d has passed by this clock.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = time.Now()
	w := &wait{at: c.now().Add(d)}
	c.waits[w] = true
	w.timer = time.AfterFunc(max(d, 0), func() {
		if c.ends(w) {
			c.count(d)
			f()
		}
	})
	return func() {
		c.ends(w)
		w.timer.Stop()
	}
}

// count counts a wait that has come to its end.
func (c *Clock) count(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d > 0 {
		c.ended++
	}
}

// ends reports whether the wait was still on.
func (c *Clock) ends(w *wait) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	on := c.waits[w]
	delete(c.waits, w)
	if on {
		c.since = time.Now()
	}
	return on
}

// Begin says that something is going on, until done is called.
func (c *Clock) Begin() (done func()) {
	c.change(1)
	return sync.OnceFunc(func() { c.change(-1) })
}

func (c *Clock) change(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy += by
	c.since = time.Now()
}

func (c *Clock) run(ctx context.Context) {
	look := time.NewTicker(quiet / 4)
	defer look.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			late := time.Since(last) > quiet/2
			last = time.Now()
			if late {
				c.change(0) // the machine has not let us look: nor has it let others go on
			}
			if !c.still() {
				continue
			}
			for range turns {
				runtime.Gosched() // whoever could have gone on, but had no processor, goes on now
			}
			c.leap()
		}
	}
}

// still reports whether nothing is going on.
func (c *Clock) still() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isStill()
}

func (c *Clock) isStill() bool {
	queued := slices.ContainsFunc(c.queues, (*queue).holds)
	return c.busy == 0 && !queued && time.Since(c.since) >= quiet && c.news.told()
}

// leap jumps to where the next wait ends, if nothing is going on.
func (c *Clock) leap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isStill() {
		return
	}
	now, next := c.now(), time.Duration(-1)
	for w := range c.waits {
		if left := w.at.Sub(now); next < 0 || left < next {
			next = max(left, 0)
		}
	}
	if next < 0 || next > horizon {
		return
	}
	spent.On("waiting until a clock leaps", c.since)
	by := next + next/2 + slack
	c.ahead += by
	c.leaps++
	c.since = time.Now()
	for w := range c.waits {
		w.timer.Reset(max(w.at.Sub(now)-by, 0))
	}
}
