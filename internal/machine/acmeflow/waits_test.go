package acmeflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/golden"
)

// TestWaits is the table of the waits of Orders and Challenges, by step, class and failures in a row. A change of it is
// one that people see: it comes with a line in CHANGELOG.
func TestWaits(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	classes := []fault.Class{
		fault.ClassPermanent, fault.ClassPolicy, fault.ClassRefused, fault.ClassValidation, fault.ClassSelfCheck, fault.ClassSolver,
		fault.ClassRateLimited, fault.ClassPaused, fault.ClassUnavailable, fault.ClassCredential, fault.ClassConfiguration,
		fault.ClassNotProcessed, fault.ClassNotReady, fault.ClassNotFound,
	}
	asks := map[string]time.Duration{"": 0, ", asks for 90s": 90 * time.Second, ", asks for 8d": 8 * 24 * time.Hour}
	for _, class := range classes {
		for _, asked := range sortedKeys(asks) {
			for _, kind := range []string{"", ", a page", ", not sent"} {
				if kind == ", a page" && class != fault.ClassNotFound || kind == ", not sent" && class != fault.ClassRateLimited && class != fault.ClassPaused {
					continue
				}
				f := after(asks[asked], class)
				if f.Unsent = kind == ", not sent"; kind == ", a page" {
					f.Unsure, f.Kind = true, fault.KindAfter
				}
				fmt.Fprintf(&out, "a call to the CA, class %q%s%s: %s\n", class, asked, kind, waitsOf(orderWaits(f)))
			}
			fmt.Fprintf(&out, "a call to a solver, class %q%s: %s\n", class, asked, waitsOf(solverWaits(after(asks[asked], class))))
		}
	}
	fmt.Fprint(&out, "a self check that does not pass:")
	for n := 1; n <= 14; n++ {
		fmt.Fprint(&out, " ", CheckDelay(n, 10*time.Second))
	}
	fmt.Fprint(&out, "\na look at what the CA has not finished:")
	for n := range 14 {
		fmt.Fprint(&out, " ", PollDelay(n, 0))
	}
	fmt.Fprintf(&out, "\na look at what the CA has not finished, later: %s, asked for 3s: %s, asked for a day: %s\n",
		PollDelay(longPolls, 0), PollDelay(1, 3*time.Second), PollDelay(1, 24*time.Hour))
	fmt.Fprintf(&out, "a finalize that the CA is not ready for:%s\n", finalizeWaits())
	golden.Check(t, "waits.txt", out.String())
}

// waitsOf says how long each of the failures in a row is waited after, at the least and at the most.
func waitsOf(wait func(jitter float64) []string) string {
	low, high := wait(0), wait(0.999)
	for i := range low {
		if low[i] != high[i] {
			low[i] += ".." + high[i]
		}
	}
	return golden.Fold(low)
}

// orderWaits has the look at an order fail again and again.
func orderWaits(f *fault.Fault) func(float64) []string {
	return func(jitter float64) (out []string) {
		s, now := newOrderState().stored("pending", "pending"), start
		s.Memory.Look = true
		for range 14 {
			s.Memory = s.Memory.Started(OrderFetch, now).After(OrderOutcome{Step: OrderFetch, At: now, Jitter: jitter, Failure: f})
			a := DecideOrder(s, now)
			switch {
			case a.Status != nil && a.Status.State.IsFailure():
				return append(out, "over")
			case a.Step == OrderFetch:
				out = append(out, "0s")
			default:
				out = append(out, a.Wake.Sub(now).Round(10*time.Millisecond).String())
				now = a.Wake
			}
		}
		return out
	}
}

// solverWaits has the presentation of an answer fail again and again.
func solverWaits(f *fault.Fault) func(float64) []string {
	return func(jitter float64) (out []string) {
		s, now := newChallengeState().processing().read("pending", "pending"), start
		s.Memory.Authorization.Expires = start.Add(10000 * time.Hour)
		for range 14 {
			s.Memory = s.Memory.Started(ChallengePresent, now).After(ChallengeOutcome{Step: ChallengePresent, At: now, Jitter: jitter, Failure: f})
			a := DecideChallenge(s, now)
			if a.Step != ChallengeWait {
				return append(out, a.Step.String())
			}
			out = append(out, a.Wake.Sub(now).Round(10*time.Millisecond).String())
			now = a.Wake
		}
		return out
	}
}

// finalizeWaits has the CA refuse to finalize again and again, with the order ready.
func finalizeWaits() string {
	s := newOrderState().stored("pending", "pending").owning("valid")
	var out strings.Builder
	now, refused := start, time.Time{}
	for a := DecideOrder(s, now); a.Status == nil || !a.Status.State.IsFailure(); a = DecideOrder(s, now) {
		o := OrderOutcome{Step: a.Step, At: now, Order: remoteOrder("ready")}
		switch {
		case a.Step == OrderWait:
			now = a.Wake
			continue
		case a.Step == OrderFinalize:
			if !refused.IsZero() {
				fmt.Fprint(&out, " ", now.Sub(refused))
			}
			refused, o.Failure = now, failure(fault.ClassNotReady, "no")
		}
		s.Memory = s.Memory.Started(a.Step, now).After(o)
	}
	return out.String() + " over"
}
