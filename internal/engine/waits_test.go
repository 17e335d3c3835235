package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/golden"
)

// TestWaits is the table of the waits of calls that the engine repeats, by class and by failures in a row. A change of
// it is one that people see: it comes with a line in CHANGELOG.
func TestWaits(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	say := func(what string, err error) {
		fmt.Fprintf(&out, "%s: %s\n", what, golden.Waits(14, func(failures int, jitter float64) time.Duration {
			return BackOff(err, failures, jitter)
		}))
	}
	say("any error", errors.New("no"))
	say("terminal", fault.Terminal("R", "no"))
	say("an event has to come first", fault.Pending("R", "no"))
	for _, class := range []fault.Class{
		"", fault.ClassPermanent, fault.ClassPolicy, fault.ClassRefused, fault.ClassValidation, fault.ClassSelfCheck, fault.ClassSolver,
		fault.ClassRateLimited, fault.ClassPaused, fault.ClassUnavailable, fault.ClassCredential, fault.ClassConfiguration,
		fault.ClassNotProcessed, fault.ClassNotReady, fault.ClassNotFound,
	} {
		say(fmt.Sprintf("class %q", class), class.After(0, "R", "no"))
		say(fmt.Sprintf("class %q, asks for 90s", class), class.After(90*time.Second, "R", "no"))
		say(fmt.Sprintf("class %q, asks for 8d", class), class.Turn(8*24*time.Hour, "R", "no"))
		say(fmt.Sprintf("class %q, terminal", class), fault.Failed(class, "R", "no"))
	}
	golden.Check(t, "waits.txt", out.String())
}
