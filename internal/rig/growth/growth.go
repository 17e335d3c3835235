// Package growth fails a test if the cost of a function grows much faster than the size of its input, for example with
// the square of the size. Growth in proportion to the size passes. Only tests import it.
package growth

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"
)

// Of eight times the input. Work that is linear takes 8 times as long, n·log n takes 10 times, and a square 64 times.
// Where all of it is more than the processor's caches hold, and an eighth is less, linear work was seen to take 26
// times.
const (
	part           = 8
	maxTimes       = 40.0
	maxBytes       = 16.0
	maxAllocations = 12.0
)

const (
	rounds = 5
	// tries is how often a cost that seems to grow too fast is measured again.
	tries = 6
	// roundTime is how long a round takes at least: less cannot be measured.
	roundTime = 2 * time.Millisecond
)

// Cost is what one call costs: the best of five rounds.
type Cost struct {
	// CPU time of the thread.
	CPU time.Duration
	// Allocations of memory, a number.
	Allocations float64
	// Bytes allocated.
	Bytes float64
}

// Linear fails a test in which do costs much more for bound things than for an eighth of them: more than 40 times the
// CPU time, 16 times the bytes, or 12 times the allocations. Prepare returns do for a number of things, and is not
// measured itself. The test must not be parallel. Nothing is measured under the race detector, which has costs of its
// own.
func Linear(t *testing.T, bound int, prepare func(size int) (do func())) {
	t.Helper()
	NotUnderRace(t)
	few, all := prepare(bound/part), prepare(bound)
	eighth, whole, problem := Measure(few), Measure(all), ""
	for range tries {
		if problem = compare(eighth, whole); problem == "" {
			break
		}
		eighth, whole = eighth.best(Measure(few)), whole.best(Measure(all)) // the machine may have been busy
	}
	t.Logf("%d: %s; %d: %s", bound/part, eighth, bound, whole)
	if problem != "" {
		t.Error(problem)
	}
}

// NotUnderRace skips a test under the race detector. It is for tests of one goroutine that measure or repeat much: the
// detector finds nothing there, has costs of its own, and takes ten times as long.
func NotUnderRace(t *testing.T) {
	t.Helper()
	if underRace {
		t.Skip("the race detector costs more than what is measured")
	}
}

// compare says what grows too fast, if anything.
func compare(eighth, whole Cost) string {
	switch {
	case float64(whole.CPU) > maxTimes*float64(eighth.CPU):
		return "the CPU time grows faster than the input"
	case whole.Allocations > maxAllocations*max(eighth.Allocations, 1):
		return "the number of allocations grows faster than the input"
	case whole.Bytes > maxBytes*max(eighth.Bytes, 1):
		return "the allocated bytes grow faster than the input"
	}
	return ""
}

// Measure returns what one call of do costs.
func Measure(do func()) Cost {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calls := 1
	for { // the first calls are not counted
		if once := round(do, calls); once.CPU*time.Duration(calls) >= roundTime {
			break
		}
		calls *= 2
	}
	best := Cost{math.MaxInt64, math.MaxFloat64, math.MaxFloat64}
	for range rounds {
		best = best.best(round(do, calls))
	}
	return best
}

// best is what the better of two measurements says.
func (c Cost) best(o Cost) Cost {
	return Cost{min(c.CPU, o.CPU), min(c.Allocations, o.Allocations), min(c.Bytes, o.Bytes)}
}

func round(do func(), calls int) Cost {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := threadTime()
	for range calls {
		do()
	}
	took := threadTime() - began
	runtime.ReadMemStats(&after)
	n := float64(calls)
	return Cost{took / time.Duration(calls), float64(after.Mallocs-before.Mallocs) / n, float64(after.TotalAlloc-before.TotalAlloc) / n}
}

// String writes the cost for people.
func (c Cost) String() string {
	return fmt.Sprintf("%s of CPU, %.0f allocations of %.0f bytes", c.CPU, c.Allocations, c.Bytes)
}
