package processors

import (
	"math"
	"testing"
	"time"
)

// world is a process of a machine, looked at again and again.
type world struct {
	trend   trend
	n, most int
	changes int
}

// look has a window pass in which the process wants so many processors. What it wants beyond those
// it has cannot be seen.
func (w *world) look(wanted float64) {
	next := min(w.trend.next(min(wanted, float64(w.n)), w.n), w.most)
	if next != w.n {
		w.changes++
	}
	w.n = next
}

func TestProcessorsFollowTheLoad(t *testing.T) {
	const hour = int(time.Hour / window)
	for name, each := range map[string]struct {
		most, n int
		wanted  float64
		looks   int
		want    int
	}{
		"idle, not for long":               {64, 64, 0, calmLooks - 1, 64},
		"idle":                             {64, 64, 0, calmLooks, 1},
		"idle, an hour":                    {2, 2, 0, hour, 1},
		"a burst":                          {2, 1, 5, 1, 2},
		"a burst, 64 CPUs":                 {64, 1, 5, 1, 64},
		"five keys for ever, 64 CPUs":      {64, 1, 5, hour, 9},
		"five keys for ever, 2 CPUs":       {2, 1, 5, hour, 2},
		"all that there is":                {64, 64, 64, hour, 64},
		"most of what there is":            {64, 64, 40, hour, 64},
		"half of what there is":            {64, 64, 30, hour, 50},
		"more than is left":                {64, 9, 8, 1, 64},
		"a certificate after the other":    {2, 2, 0.25, calmLooks, 1},
		"ten certificates at a time":       {64, 64, 0.45, calmLooks, 1},
		"too much for one to be left with": {2, 2, 0.65, hour, 2},
		"not too much for one that is":     {2, 1, 0.75, hour, 1},
		"nearly too much for one":          {64, 1, 0.85, hour, 2},
		"a thread has ended":               {2, 2, -1, calmLooks, 1},
		"one CPU, idle":                    {1, 1, 0, hour, 1},
		"one CPU, busy":                    {1, 1, 5, hour, 1},
	} {
		w := world{most: each.most, n: each.n}
		for range each.looks {
			w.look(each.wanted)
		}
		if w.n != each.want {
			t.Errorf("%s: %d processors after %d looks, want %d", name, w.n, each.looks, each.want)
		}
	}
}

// TestNothingFlaps: in an hour of any load that is steady, give or take an eighth, the number settles at
// once, even if the same work takes a tenth more as soon as there are two processors.
func TestNothingFlaps(t *testing.T) {
	for _, most := range []int{1, 2, 64} {
		for load := 0.01; load <= 1.5*float64(most); load *= 1.03 {
			w := world{most: most, n: most}
			for i := range int(time.Hour / window) {
				wanted := load * (1 + math.Sin(float64(i))/8)
				if w.n > 1 {
					wanted *= 1.1
				}
				w.look(wanted)
			}
			// Down after the start; where that was too low, up and down once more.
			if w.changes > 3 {
				t.Errorf("a load of %.2f has the number of %d processors change %d times", load, most, w.changes)
			}
		}
	}
}

// TestChangesAreRare: whatever a load does, the number changes twice in calmLooks windows at most.
func TestChangesAreRare(t *testing.T) {
	const rounds = 100
	for period := 1; period <= 3*calmLooks; period++ {
		w := world{most: 64, n: 64}
		for i := range rounds * calmLooks {
			w.look(float64(i / period % 2 * 64))
		}
		if w.changes > 2*rounds {
			t.Errorf("a burst every %d windows has the number change %d times in %d windows", period, w.changes, rounds*calmLooks)
		}
	}
}
