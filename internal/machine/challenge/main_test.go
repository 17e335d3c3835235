package challenge_test

import (
	"os"
	"runtime/debug"
	"testing"

	"chancery.dev/internal/rig/flows"
)

var (
	start = flows.Start()
	equal = flows.Equal
)

// TestMain makes garbage collections rare: the heap is small, and each collection stops what is only counting.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
