package challenge_test

import (
	"testing"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
)

// TestUntouchedIsNotCleanedUp: what failed before it could change anything leaves nothing behind, whatever failed.
func TestUntouchedIsNotCleanedUp(t *testing.T) {
	t.Parallel()
	failed := acmeflow.NewFault(fault.ClassUnavailable, "no answer in time")
	for _, untouched := range []bool{true, false} {
		m := challenge.Memory{}.After(challenge.Outcome{Step: challenge.Present, At: start, Failure: failed, Untouched: untouched})
		if m.Touched == untouched {
			t.Errorf("untouched %v: touched %v", untouched, m.Touched)
		}
		again := m.After(challenge.Outcome{Step: challenge.Present, At: start, Failure: failed})
		if !again.Touched {
			t.Error("a later try that may have changed something is forgotten")
		}
	}
}
