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
	// startPercent is Go's GOGC during the start. Ten thousand certificates are read among
	// their own rubbish, and what is then kept lies scattered: the less rubbish there may
	// be at a time, the fewer pages are half empty for ever.
	startPercent = 25
	// A start is over once no more than calmAllocation bytes are allocated in a calmWindow,
	// or after startWindows of them, in which a controller has to be that has much to do.
	calmAllocation = 8 << 20
	calmWindow     = 5 * time.Second
	startWindows   = 60
	// roomy is how much rubbish a small heap may hold, in bytes, before it is collected; a
	// large one may hold as much as it keeps, as is usual.
	roomy = 24 << 20
	// maxPercent bounds what that comes to.
	maxPercent = 300
)

// fitHeap keeps the heap tight while a starts with much to know, gives the system back
// what such a start has taken, and lets small heaps be collected less often than Go would.
// GOGC, if the user sets it, is left alone.
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
	tick := time.NewTicker(calmWindow)
	defer tick.Stop()
	if untilCalm(ctx, tick.C, allocated) {
		debug.SetGCPercent(100)
		debug.FreeOSMemory()
	}
}

// untilCalm waits until everything has been looked at; false if ctx ends first.
func untilCalm(ctx context.Context, tick <-chan time.Time, allocated func() uint64) bool {
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

// live is how large the heap is, in bytes, rubbish included of which there is little.
func live() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// percentFor is the GOGC for a heap that keeps that many bytes.
func percentFor(kept uint64) int {
	return int(min(max(roomy*100/max(kept, 1), 100), maxPercent)) //nolint:gosec // at most maxPercent
}
