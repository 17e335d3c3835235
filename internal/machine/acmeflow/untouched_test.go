package acmeflow

import (
	"testing"

	"chancery.dev/internal/fault"
)

// TestUntouchedIsNotCleanedUp: what failed before it could change anything leaves nothing behind, whatever failed.
func TestUntouchedIsNotCleanedUp(t *testing.T) {
	t.Parallel()
	failed := failure(fault.ClassUnavailable, "no answer in time")
	for _, untouched := range []bool{true, false} {
		m := ChallengeMemory{}.After(ChallengeOutcome{Step: ChallengePresent, At: start, Failure: failed, Untouched: untouched})
		if m.Touched == untouched {
			t.Errorf("untouched %v: touched %v", untouched, m.Touched)
		}
		again := m.After(ChallengeOutcome{Step: ChallengePresent, At: start, Failure: failed})
		if !again.Touched {
			t.Error("a later try that may have changed something is forgotten")
		}
	}
}
