package fault

import (
	"math"
	"testing"
	"time"
)

// TestStep: the waits of each row grow up to the longest one, however many failures there are, and however long that
// is.
func TestStep(t *testing.T) {
	t.Parallel()
	rows := map[string]Patience{
		"no end":    {First: time.Second, Factor: 2, Most: math.MaxInt64},
		"no factor": {First: time.Second, Most: time.Hour},
	}
	for waiter, classes := range patience {
		for class, p := range classes {
			rows[string(waiter)+" "+string(class)] = p
		}
	}
	for name, p := range rows {
		last := time.Duration(0)
		for _, n := range []int{-1, 0, 1, 2, 3, 8, 64, 1000, math.MaxInt} {
			got := p.Step(n)
			if most := max(p.Most, last); got < last || len(p.Steps) == 0 && got > most {
				t.Errorf("%s: %s after %d, %s before", name, got, n, last)
			}
			last = got
		}
		if asked := p.Wait(math.MaxInt64, p.Free+1, 0.5); p.Obeyed > 0 && asked > p.Obeyed+p.Over+p.Spread {
			t.Errorf("%s: a wait of %s is obeyed", name, asked)
		}
	}
	if got := (Patience{First: time.Minute, Factor: 10, Most: time.Hour}).Step(3); got != time.Hour {
		t.Errorf("third: %s", got)
	}
}
