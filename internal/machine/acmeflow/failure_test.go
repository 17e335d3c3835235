package acmeflow_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/rig/flows"
)

func TestBackoff(t *testing.T) {
	for _, f := range flows.Failures() {
		class, last := f.Class, time.Duration(-1)
		for n := 1; n < 20; n++ {
			low, high := acmeflow.Backoff(f, n, 0), acmeflow.Backoff(f, n, 0.999)
			if low < last || high < low || high > 2*time.Hour+5*time.Minute {
				t.Errorf("%s after %d: between %s and %s, before %s", class, n, low, high, last)
			}
			last = low
			if got := acmeflow.Backoff(flows.After(90*time.Second, class), n, 0); got < 90*time.Second && !(class == fault.ClassNotProcessed && n <= fault.Orders.With(class).Free) {
				t.Errorf("%s after %d: %s undercuts Retry-After", class, n, got)
			}
		}
	}
	equal(t, acmeflow.Backoff(acmeflow.NewFault(fault.ClassUnavailable, ""), 0, 0.5), time.Second)
	equal(t, acmeflow.Backoff(acmeflow.NewFault(fault.ClassRateLimited, ""), 2, 0.5), 10*time.Minute)
	// A year is no answer: a person would have to notice.
	equal(t, acmeflow.Backoff(flows.After(366*24*time.Hour, fault.ClassUnavailable), 1, 0), 7*24*time.Hour)
}

func TestPollDelay(t *testing.T) {
	equal(t, acmeflow.PollDelay(0, time.Hour), fault.Polls.With("").First) // the first look comes fast
	equal(t, acmeflow.PollDelay(1, 3*time.Second), 3*time.Second)
	equal(t, acmeflow.PollDelay(1, 24*time.Hour), fault.Polls.With("").Obeyed)
	equal(t, acmeflow.PollDelay(3, 0), 200*time.Millisecond)
	equal(t, acmeflow.PollDelay(30, 0), fault.Polls.With("").Most)
	equal(t, acmeflow.PollDelay(acmeflow.LongPolls, 0), fault.SlowPolls.With("").First)
	equal(t, acmeflow.PollDelay(acmeflow.LongPolls, 3*time.Second), 3*time.Second)
}

// TestRetrying writes no time where a solver asks for the same wait each time: a reason that changed would be a
// write for each try. Whether the wait is the same each time is said, not guessed from its length.
func TestRetrying(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, f := range map[string]*fault.Fault{
		"retried every 3.217s":             {Class: fault.ClassSolver, Delay: 3217 * time.Millisecond},
		"retried every 1h0m0s":             {Class: fault.ClassCredential, Delay: time.Hour},
		"retrying at 2026-01-02T03:04:05Z": {Class: fault.ClassSolver, Delay: 5 * time.Second, Exact: true},
		"retrying with back-off":           {Class: fault.ClassSolver},
	} {
		equal(t, acmeflow.Retrying(f, at), text)
	}
	equal(t, acmeflow.Retrying(acmeflow.NewFault(fault.ClassRateLimited, ""), at), "retrying at 2026-01-02T03:04:05Z")
	equal(t, acmeflow.Retrying(flows.After(5*time.Second, fault.ClassUnavailable), at), "retrying at 2026-01-02T03:04:05Z")
}

// TestShownClasses: the schema takes each class that an Order or a Challenge may show, and no other.
func TestShownClasses(t *testing.T) {
	t.Parallel()
	want := []string{}
	for _, c := range flows.ShownClasses() {
		want = append(want, string(c))
	}
	slices.Sort(want)
	for _, kind := range []string{"orders", "challenges"} {
		text, err := os.ReadFile("../../../api/crds/acme.cert-manager.io_" + kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		enum := regexp.MustCompile(`failureClass:\n(?:.*\n)*?\s+enum:\n((?:\s+- \w+\n)+)`).FindStringSubmatch(string(text))
		if enum == nil {
			t.Fatalf("the schema of %s has no enum for failureClass", kind)
		}
		got := strings.Fields(strings.ReplaceAll(enum[1], "- ", ""))
		slices.Sort(got)
		equal(t, got, want)
	}
}
