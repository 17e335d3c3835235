package acmeorder

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/golden"
)

// TestWaits is the table of the waits of an issuer whose account is not registered or not given another key, and of a
// Certificate whose CA does not say when to renew, by class and failures in a row. A change of it is one that people
// see: it comes with a line in CHANGELOG.
func TestWaits(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	say := func(what string, err error) {
		fmt.Fprintf(&out, "%s: %s\n", what, golden.Waits(10, func(failures int, jitter float64) time.Duration {
			return engine.BackOff(err, failures, jitter)
		}))
	}
	for _, class := range []fault.Class{
		fault.ClassPermanent, fault.ClassRefused, fault.ClassRateLimited, fault.ClassPaused, fault.ClassUnavailable,
		fault.ClassNotProcessed, fault.ClassNotReady, fault.ClassNotFound,
	} {
		for _, asked := range []time.Duration{0, 90 * time.Second, 8 * 24 * time.Hour} {
			for _, page := range []bool{false, true} {
				if page && class != fault.ClassNotFound {
					continue
				}
				what := fmt.Sprintf("class %q", class)
				if asked > 0 {
					what += ", asks for " + asked.String()
				}
				if page {
					what += ", a page"
				}
				f := fault.Answered(class, "", asked, errors.New("no"))
				if page {
					f.Unsure, f.Kind = true, fault.KindAfter
				}
				say("a call for an account, "+what, failureOf(f))
				say("a question when to renew, "+what, fault.After(renewalInfoAgain(f), "", "no"))
			}
		}
	}
	say("a registration that is refused for good", fault.ClassPermanent.After(refusedAgain, "", "no"))
	golden.Check(t, "waits.txt", out.String())
}
