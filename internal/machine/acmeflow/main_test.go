package acmeflow

import (
	"os"
	"runtime/debug"
	"testing"

	"chancery.dev/internal/rig/slow"
)

// TestMain makes garbage collections rare: the heap is small, and each collection stops what is only counting.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// seeds is how many random histories a run has time for: a third, or all in the slow part faults.
func seeds(all int64) int64 {
	if slow.Runs(slow.Faults) {
		return all
	}
	return all / 3
}
