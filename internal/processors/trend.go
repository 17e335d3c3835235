package processors

import (
	"math"
	"time"
)

const (
	// window is what a look looks back on.
	window = 500 * time.Millisecond
	// saturated is the share of its processors' time from which on a process may want more of them.
	saturated = 0.8
	// comfortable is the share that may be wanted of what is left when some are taken away.
	comfortable = 0.6
	// calm is the share that a process with one processor wants less of when it need not be
	// looked at any more, until there is work again.
	calm = 0.2
	// calmLooks is how many looks in a row have to agree before processors are taken away.
	calmLooks = 10
	// all is as many processors as Go chooses.
	all = math.MaxInt
)

// trend is what recent looks have seen. It gives quickly and takes slowly. How much more a
// process wants that is out of processors cannot be seen: it gets all, and so a burst has them
// after one window or two, on 64 CPUs as on 2. What is taken away is what none of calmLooks
// windows has needed. After that a load has to grow by a third before it saturates what was
// left, so that none flaps that is steady; and whatever it does, the number changes
// twice in calmLooks windows at most.
type trend struct {
	looks int
	peak  float64
}

// next returns how many processors a process is to have that has n, and has wanted so many,
// on average, in the last window.
func (t *trend) next(wanted float64, n int) int {
	if wanted >= saturated*float64(n) {
		*t = trend{}
		return all
	}
	t.looks++
	t.peak = max(t.peak, wanted)
	if t.looks < calmLooks {
		return n
	}
	enough := max(int(math.Ceil(t.peak/comfortable)), 1)
	*t = trend{}
	return min(enough, n)
}
