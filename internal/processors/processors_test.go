package processors

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// process is one that wants so many processors, by a clock that can be stepped.
type process struct {
	mu    sync.Mutex
	load  float64
	then  time.Time
	total time.Duration
}

// wanted is as the system tells: of the load no more than the process has processors for.
func (p *process) wanted() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	share := min(p.load, float64(runtime.GOMAXPROCS(0)))
	p.total += time.Duration(share * float64(now.Sub(p.then)))
	p.then = now
	return p.total
}

// wants changes the load.
func (p *process) wants(load float64) {
	p.wanted()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.load = load
}

// step lets the time pass.
func step(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // steps the clock of the bubble
	synctest.Wait()
}

// processorsOfTest gives the test two processors at least, and the process in the end what it had.
func processorsOfTest(t *testing.T) (most int) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("there is one CPU only")
	}
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(0)
	runtime.SetDefaultGOMAXPROCS()
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	if most = runtime.GOMAXPROCS(0); most < 2 {
		t.Skip("one CPU may be used only")
	}
	return most
}

// TestProcessorsOfThisProcess: it is left one while it has nothing to do, all come back within a second of there
// being much, and when that is over nobody looks any more.
func TestProcessorsOfThisProcess(t *testing.T) {
	most := processorsOfTest(t)
	synctest.Test(t, func(t *testing.T) {
		p, g := &process{load: 9e9, then: time.Now()}, New()
		g.wanted = p.wanted
		is := func(what string, want int, idle bool) {
			t.Helper()
			if n := runtime.GOMAXPROCS(0); n != want || g.idle.Load() != idle {
				t.Fatalf("%s: %d processors, want %d; idle %v, want %v", what, n, want, g.idle.Load(), idle)
			}
		}
		g.Work() // before the start: for nothing
		step(time.Hour)
		is("before the start", most, false)
		g.Start()
		step(time.Hour)
		is("busy after the start", most, false)
		p.wants(0)
		step(calmLooks*window - time.Millisecond)
		is("not yet calm", most, false)
		step(window)
		is("calm", 1, true)
		step(time.Hour)
		p.wants(0.15)
		g.Work()
		step(window)
		is("after a little work", 1, true)
		for range 3 {
			p.wants(9e9)
			g.Work()
			step(window + time.Millisecond)
			is("much work", most, false)
			p.wants(0)
			step((calmLooks + 1) * window)
			is("after much work", 1, true)
		}
		p.wants(0.1)
		g.Work()
		step(window / 2)
		p.wants(9e9)
		step(2 * window)
		is("a burst in the middle of a window", most, false)
		p.wants(0)
		step(time.Minute)
		is("in the end", 1, true)
	})
}

// TestTheUserDecides: with GOMAXPROCS in the environment, and with one processor, nothing is done.
func TestTheUserDecides(t *testing.T) {
	most := processorsOfTest(t)
	for environment, processors := range map[string]int{"2": most, "": 1} {
		t.Setenv("GOMAXPROCS", environment)
		runtime.GOMAXPROCS(processors)
		synctest.Test(t, func(t *testing.T) {
			g := New()
			g.Start()
			g.Work()
			step(time.Hour)
			if n := runtime.GOMAXPROCS(0); n != processors || g.wanted != nil || g.idle.Load() {
				t.Errorf("GOMAXPROCS=%q: %d processors of %d", environment, n, processors)
			}
		})
	}
}
