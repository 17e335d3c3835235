package bench

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// timing is how long each of a number of things took, and all of them together.
type timing struct {
	each []time.Duration
	all  time.Duration
}

// add joins the timing of a later part, as if there had been no pause in between.
func (t *timing) add(o timing) {
	t.each = append(t.each, o.each...)
	t.all += o.all
}

// pace summarises.
func (t *timing) pace() Pace {
	sorted := slices.Sorted(slices.Values(t.each))
	return Pace{P50Millis: millis(quantile(sorted, 0.50)), P99Millis: millis(quantile(sorted, 0.99)), PerSecond: float64(len(t.each)) / t.all.Seconds()}
}

// quantile is the smallest value that at least the share q of the sorted values does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

// loop does work 0 … count-1, at most concurrency at once, each worker taking the next when it has finished one: a slow
// system is offered less, so latencies are those of a system that keeps up. The first error ends it.
func loop(ctx context.Context, count, concurrency int, work func(ctx context.Context, i int) error) (timing, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	t := timing{each: make([]time.Duration, count)}
	began := time.Now()
	for range min(concurrency, count) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= count {
					return
				}
				start := time.Now()
				if err := work(ctx, i); err != nil {
					cancel(err)
					return
				}
				t.each[i] = time.Since(start)
			}
		})
	}
	workers.Wait()
	t.all = time.Since(began)
	return t, context.Cause(ctx)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
