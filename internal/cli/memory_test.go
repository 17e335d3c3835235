package cli

import (
	"context"
	"testing"
	"time"
)

func TestPercentForHeap(t *testing.T) {
	for kept, want := range map[uint64]int{0: 300, 1 << 20: 300, 12 << 20: 200, 24 << 20: 100, 1 << 30: 100} {
		if got := percentFor(kept); got != want {
			t.Errorf("GOGC for %d bytes is %d, want %d", kept, got, want)
		}
	}
}

// TestStartLastsUntilIdle: on a slow machine a start takes as long as it takes, but not for ever.
func TestStartLastsUntilIdle(t *testing.T) {
	tick := make(chan time.Time, 2*startWindows)
	for range cap(tick) {
		tick <- time.Time{}
	}
	for name, each := range map[string]struct {
		allocated []uint64 // at the start, and in each window after it; the last for ever
		looks     int
	}{
		"at once":    {[]uint64{0, calmAllocation - 1}, 2},
		"at last":    {[]uint64{0, calmAllocation, calmAllocation, 0}, 4},
		"never calm": {[]uint64{calmAllocation}, startWindows + 1},
	} {
		looks, sum := 0, uint64(0)
		calm := untilIdle(t.Context(), tick, func() uint64 {
			sum += each.allocated[min(looks, len(each.allocated)-1)]
			looks++
			return sum
		})
		if !calm || looks != each.looks {
			t.Errorf("%s: %v after %d looks, want %d", name, calm, looks, each.looks)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if untilIdle(ended, nil, allocated) {
		t.Error("calm although all has ended")
	}
}
