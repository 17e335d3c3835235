package processors

import (
	"runtime"
	"testing"
	"time"
)

// compute keeps so many goroutines busy until then.
func compute(n int, until time.Time) {
	for range n - 1 {
		go func() {
			for time.Now().Before(until) {
			}
		}()
	}
	for time.Now().Before(until) {
	}
}

// TestWhatIsWaitedForIsWanted: threads that there are no CPUs for want some all the same.
func TestWhatIsWaitedForIsWanted(t *testing.T) {
	before := runtime.GOMAXPROCS(4 * runtime.NumCPU())
	defer runtime.GOMAXPROCS(before)
	if waited("/proc/self/schedstat") == 0 {
		t.Skip("this kernel does not tell who waits")
	}
	total, start := cpuWanted(), time.Now()
	compute(4*runtime.NumCPU(), start.Add(time.Second))
	got, most := cpuWanted()-total, time.Since(start)*time.Duration(runtime.NumCPU())
	if got < most*3/2 {
		t.Errorf("%v wanted by four times as many threads as there are CPUs, which had %v to give", got, most)
	}
}
