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
	// server is the CPU time of API server and etcd meanwhile, if it was measured.
	server time.Duration
}

// add joins the timing of a later part, as if there had been no pause in between.
func (t *timing) add(o timing) {
	t.each = append(t.each, o.each...)
	t.all += o.all
	t.server += o.server
}

// pace is how fast something goes: quantiles of the latency in milliseconds, and how many there are in a second.
type pace struct{ p50, p99, perSecond float64 }

func (t *timing) pace() pace {
	sorted := slices.Sorted(slices.Values(t.each))
	return pace{millis(quantile(sorted, 0.50)), millis(quantile(sorted, 0.99)), float64(len(t.each)) / t.all.Seconds()}
}

func (p pace) rows(name string) []Row {
	return []Row{
		{Name: name, Part: "p50", Value: p.p50, Unit: "ms"},
		{Name: name, Part: "p99", Value: p.p99, Unit: "ms"},
		{Name: name, Part: "per second", Value: p.perSecond},
	}
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

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
