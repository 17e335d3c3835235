// Package yardstick tells how much slower a core is than it can be, while something else is measured.
//
// On a machine that is shared, neighbours take from a core what no process is shown: the other
// half of a hyper-threaded core, caches, clock rate. The CPU time of the same work then varies
// by a factor of two from one moment to the next. A Yardstick does a small piece of work again
// and again, always the same, and notes what CPU time that took. CPU time that was measured
// meanwhile, divided by Slowdown, is about what it would have been on a quiet core.
//
// The piece of work fits into the nearest cache, which is warm, and allocates nothing. So what
// neighbours do to larger caches is not in the result: it is on the careful side.
package yardstick

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// period is how often the work is done: it takes about a hundredth of a core.
	period = 50 * time.Millisecond
	// rounds make a piece of work, a few hundred microseconds. As many go before it, which do not count: to find
	// caches and predictors cold is the lot of a core that rests in between, quiet or not.
	rounds = 8
	// calibration is how many pieces are done before anything is measured.
	calibration = 60
	// quietest is which of all the pieces, from the fastest on, counts as done on a quiet core: one in ten.
	quietest = 10
)

// Yardstick measures from Start on.
type Yardstick struct {
	mu    sync.Mutex
	took  []time.Duration
	first chan struct{}
}

// Start measures until ctx ends. It returns after three seconds, in which it finds out how fast a core can be.
func Start(ctx context.Context) *Yardstick {
	y := &Yardstick{first: make(chan struct{})}
	go y.run(ctx)
	select {
	case <-y.first:
	case <-ctx.Done():
	}
	return y
}

func (y *Yardstick) run(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text := []byte("[" + strings.Repeat(`{"name": "of some length", "numbers": [1, 2.5, 1e9], "yes": true}, `, 100) + "null]")
	work := func() time.Duration {
		before := threadCPU()
		for range rounds {
			json.Valid(text)
		}
		return threadCPU() - before
	}
	piece := func() {
		work()
		y.note(work())
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for n := 0; ; n++ {
		if n == calibration {
			close(y.first)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			piece()
		}
	}
}

func (y *Yardstick) note(took time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.took = append(y.took, took)
}

// Mark is a point in time for Slowdown.
type Mark int

// Mark returns the present one.
func (y *Yardstick) Mark() Mark {
	y.mu.Lock()
	defer y.mu.Unlock()
	return Mark(len(y.took))
}

// Slowdown is how many times the CPU time of a quiet core the work has needed since a mark, in the
// mean. It is 1 if nothing was measured since then, as where a thread's CPU time cannot be read.
func (y *Yardstick) Slowdown(since Mark) float64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slowdown(y.took, since)
}

func slowdown(took []time.Duration, since Mark) float64 {
	if int(since) >= len(took) {
		return 1
	}
	quiet := slices.Sorted(slices.Values(took))[len(took)/quietest]
	var sum time.Duration
	for _, t := range took[since:] {
		sum += t
	}
	if quiet <= 0 {
		return 1
	}
	return float64(sum) / float64(len(took)-int(since)) / float64(quiet)
}
