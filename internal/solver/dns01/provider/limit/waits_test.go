package limit

import (
	"context"
	"errors"
	"testing"
	"time"

	"chancery.dev/internal/rig/golden"
)

// TestWaits is the table of the pauses of a credential.
func TestWaits(t *testing.T) {
	t.Parallel()
	var waits golden.Waits
	add := func(what string, failure func(asked time.Duration) error) {
		waits.Add("breaker", what, func(asked time.Duration, _ float64) func(int) string {
			now, b := time.Unix(1_800_000_000, 0), breaker{}
			return func(int) string {
				pauses, refusal := b.admit("p", now)
				if refusal != nil {
					t.Fatal(refusal)
				}
				b.note(failure(asked), pauses, now)
				pause := max(b.until.Sub(now), 0)
				now = now.Add(pause)
				return golden.Text(pause)
			}
		})
	}
	add("any error", func(time.Duration) error { return errors.New("no") })
	add("a caller that has given up", func(time.Duration) error { return context.Canceled })
	for _, class := range golden.Classes() {
		add(string(class), func(asked time.Duration) error { return class.AfterExactly(asked, "R", "no") })
	}
	waits.Check(t, "A wait is a pause of the credential, for all calls with it. The object that was refused waits by itself, too: see DNS programs.")
}
