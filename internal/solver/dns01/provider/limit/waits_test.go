package limit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/golden"
)

// TestWaits is the table of the pauses of a credential, by class and failures in a row. A change of it is one that
// people see: it comes with a line in CHANGELOG.
func TestWaits(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	say := func(what string, err error) {
		now, b := time.Unix(1_800_000_000, 0), breaker{}
		var waits []string
		for range 10 {
			pauses, refusal := b.admit("p", now)
			if refusal != nil {
				t.Fatal(refusal)
			}
			b.note(err, pauses, now)
			pause := max(b.until.Sub(now), 0)
			waits = append(waits, pause.String())
			now = now.Add(pause)
		}
		fmt.Fprintf(&out, "%s: %s\n", what, golden.Fold(waits))
	}
	say("any error", errors.New("no"))
	for _, class := range []fault.Class{
		"", fault.ClassPermanent, fault.ClassPolicy, fault.ClassRefused, fault.ClassSolver, fault.ClassRateLimited, fault.ClassUnavailable,
		fault.ClassCredential, fault.ClassConfiguration,
	} {
		say(fmt.Sprintf("class %q", class), class.After(0, "R", "no"))
		say(fmt.Sprintf("class %q, asks for 90s", class), class.Turn(90*time.Second, "R", "no"))
		say(fmt.Sprintf("class %q, asks for an hour", class), class.Turn(time.Hour, "R", "no"))
	}
	golden.Check(t, "waits.txt", out.String())
}
