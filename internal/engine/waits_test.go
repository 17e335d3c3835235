package engine

import (
	"errors"
	"testing"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/golden"
)

// TestWaits is the table of the waits of calls that the engine repeats.
func TestWaits(t *testing.T) {
	t.Parallel()
	var waits golden.Waits
	add := func(what string, failure func(asked time.Duration) error) {
		waits.Add("calls", what, func(asked time.Duration, chance float64) func(int) string {
			return func(failures int) string { return golden.TextOrNever(BackOff(failure(asked), failures, chance)) }
		})
	}
	add("any error", func(time.Duration) error { return errors.New("no") })
	for _, class := range golden.Classes() {
		add(string(class), func(asked time.Duration) error { return class.AfterExactly(asked, "R", "no") })
	}
	add("a terminal fault", func(time.Duration) error { return fault.Failed(fault.ClassUnavailable, "R", "no") })
	add("a fault that is pending", func(time.Duration) error { return fault.Pending("R", "no") })
	waits.Check(t, "Whoever has the engine make a call waits so, unless the call says otherwise: see the tables of the signers.")
}
