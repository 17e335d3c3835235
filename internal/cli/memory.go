package cli

import (
	"context"
	"runtime/debug"
	"time"

	"chancery.dev/internal/app"
)

const (
	// startPercent is Go's GOGC during the start. Ten thousand certificates are read among
	// their own rubbish, and what is then kept lies scattered: the less rubbish there may
	// be at a time, the fewer pages are half empty for ever.
	startPercent = 25
	// startLasts is how long after the caches have synced everything has been looked at,
	// on any machine that is not overwhelmed.
	startLasts = 10 * time.Second
)

// startSmall keeps the heap tight while a starts, then gives the system back what the
// start has taken. A stricter GOGC of the user's stays.
func startSmall(ctx context.Context, a *app.App) {
	usual := debug.SetGCPercent(startPercent)
	if usual < startPercent {
		debug.SetGCPercent(usual)
	}
	if !a.Synced(ctx) {
		return
	}
	timer := time.NewTimer(startLasts)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
		debug.SetGCPercent(usual)
		debug.FreeOSMemory()
	}
}
