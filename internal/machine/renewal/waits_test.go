package renewal

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/golden"
)

// TestWaits is the table of the waits of Certificates after a failed issuance, by class and failures in a row. A change
// of it is one that people see: it comes with a line in CHANGELOG.
func TestWaits(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for _, class := range []fault.Class{
		"", fault.ClassPermanent, fault.ClassPolicy, fault.ClassRefused, fault.ClassValidation, fault.ClassSelfCheck, fault.ClassSolver,
		fault.ClassRateLimited, fault.ClassPaused, fault.ClassUnavailable, fault.ClassCredential, fault.ClassConfiguration,
	} {
		fmt.Fprintf(&out, "class %q:", class)
		for n := 1; n <= 8; n++ {
			b := Backoff{Min: time.Hour, Max: 32 * time.Hour, ByClass: true}
			wait, known := b.AfterClass(class, n)
			if !known {
				wait = b.After(n)
			}
			fmt.Fprint(&out, " ", wait)
		}
		out.WriteString("\n")
	}
	golden.Check(t, "waits.txt", out.String())
}
