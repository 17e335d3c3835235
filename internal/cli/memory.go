package cli

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"chancery.dev/internal/app"
)

const (
	// startPercent is Go's GOGC during the start. Decoding 10,000 certificates makes much garbage, and what is kept
	// lies scattered in it: the less garbage there is at a time, the fewer pages of memory stay half empty.
	startPercent = 25
	// A start is over once less than calmAllocation bytes are allocated in a calmWindow, or after startWindows of them.
	calmAllocation = 8 << 20
	calmWindow     = 5 * time.Second
	startWindows   = 60
	// roomy is how much garbage a small heap may hold, in bytes, before a collection; a large heap may hold as much as
	// it keeps, which is Go's default.
	roomy = 24 << 20
	// maxPercent bounds the GOGC that follows from it.
	maxPercent = 300
)

// fitHeap collects garbage often while a starts, returns the memory of a large start to the system, and lets small
// heaps be collected less often than Go would. It does nothing if the user has set GOGC.
func fitHeap(ctx context.Context, a *app.App) {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(startPercent)
	if !a.Synced(ctx) {
		return
	}
	if percent := percentFor(live()); percent > 100 {
		debug.SetGCPercent(percent)
		return
	}
	returnMemory(ctx, 100)
}

// returnMemory returns what the start of a controller has used and does not keep to the system, once the start is over.
// From then on, percent is Go's GOGC.
func returnMemory(ctx context.Context, percent int) {
	tick := time.NewTicker(calmWindow)
	defer tick.Stop()
	if untilIdle(ctx, tick.C, allocated) {
		debug.SetGCPercent(percent)
		debug.FreeOSMemory()
	}
}

// untilIdle waits until all objects have been reconciled once; false if ctx ends first.
func untilIdle(ctx context.Context, tick <-chan time.Time, allocated func() uint64) bool {
	before := allocated()
	for range startWindows {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
		}
		now := allocated()
		if now-before < calmAllocation {
			break
		}
		before = now
	}
	return true
}

// allocated is how much has been allocated since the start, in bytes.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// live is how large the heap is, in bytes; it has little garbage after the start.
func live() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// percentFor is the GOGC for a heap that keeps that many bytes.
func percentFor(kept uint64) int {
	return int(min(max(roomy*100/max(kept, 1), 100), maxPercent))
}
