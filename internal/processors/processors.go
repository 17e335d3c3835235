// Package processors has a process use as many of Go's processors (GOMAXPROCS) as it has
// work for.
//
// Work in short bursts, as a controller's, costs more the more processors there are: at each
// burst Go wakes another thread, which looks for work everywhere and finds none. With one
// processor in place of two the controller takes 11 to 12 % less CPU for an ACME certificate. But the
// start, and RSA keys, are work for all CPUs. What that costs with one processor: computing
// goroutines take turns of 10 ms until more are given, and a system call that blocks, such as the
// reading of a file, holds the others up until Go's monitor sees it, 10 ms at most. The network
// blocks nobody.
//
// It gives no more than Go does, which knows the CPUs and the limit of the cgroup. It does not
// know what the work is.
package processors

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// Governor sets how many processors the process uses. Use New; there should be one only.
type Governor struct {
	// idle while nobody looks: then the process has one processor.
	idle atomic.Bool

	// wanted is the CPU time that the process has wanted so far; nil if the Governor does nothing.
	wanted func() time.Duration

	// The rest belongs to whoever has taken idle away.

	trend   trend
	lowered bool
}

// New returns the Governor of this process, which does nothing before Start. It never does
// anything where the user has decided, by GOMAXPROCS in the environment, where Go has but one
// processor, and where the system does not tell how much CPU is used.
func New() *Governor {
	g := &Governor{}
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) > 1 {
		g.wanted = meter()
	}
	return g
}

// Start begins to look, and is called once. Until then the process has all processors.
func (g *Governor) Start() {
	if g.wanted != nil {
		g.await(time.Now(), g.wanted())
	}
}

// Work is to be called whenever there may be work, and costs next to nothing. So a process
// that is idle is not woken to be looked at.
func (g *Governor) Work() {
	if g.idle.Load() && g.idle.CompareAndSwap(true, false) {
		g.await(time.Now(), g.wanted())
	}
}

// await has the window looked at that begins now.
func (g *Governor) await(now time.Time, wanted time.Duration) {
	time.AfterFunc(window, func() { g.look(now, wanted) })
}

// look looks back on the window that has begun then, when so much had been wanted.
func (g *Governor) look(then time.Time, before time.Duration) {
	now, total := time.Now(), g.wanted()
	wanted := float64(total-before) / float64(now.Sub(then))
	n := runtime.GOMAXPROCS(0)
	next := g.trend.next(wanted, n)
	g.use(next, n)
	if next == 1 && wanted < calm {
		g.trend = trend{}
		g.idle.Store(true)
		return
	}
	g.await(now, total)
}

// use has the process use next processors in place of n. With all of them Go follows the
// limit of the cgroup when it changes; with fewer it does not, until all are wanted again.
func (g *Governor) use(next, n int) {
	switch {
	case next < n:
		runtime.GOMAXPROCS(next)
		g.lowered = true
	case next == all && g.lowered:
		runtime.SetDefaultGOMAXPROCS()
		g.lowered = false
	}
}
