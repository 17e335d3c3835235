package cause

import (
	"testing"
	"time"
)

// TestRefusalsWait: what only a change helps against that is watched is not tried again soon, since each try would be
// told in the status. The rest is tried soon, and then more and more seldom.
func TestRefusalsWait(t *testing.T) {
	t.Parallel()
	for class, first := range map[Class]time.Duration{
		Quota: firstRefusal, Admission: firstRefusal, Rights: firstRefusal, Webhook: firstRefusal,
		Immutable: longestRefusal, Invalid: longestRefusal, TooLarge: longestRefusal, NamespaceTerminating: longestRefusal,
	} {
		var r Refusals
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for _, want := range []time.Duration{first, min(2*first, longestRefusal), min(4*first, longestRefusal)} {
			c := New(class, "", "Secret web", "no")
			if got := r.After(c, now); got != want || !c.NextTry.Time.Equal(now.Add(want)) {
				t.Errorf("%s: %s until %v, want %s", class, got, c.NextTry, want)
			}
			now = now.Add(want)
		}
	}
}
