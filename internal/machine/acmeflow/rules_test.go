package acmeflow_test

import (
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/rig/flows"
)

// TestAShortParkIsNotWrittenDown: a CA that asks for a while again and again must not cost a
// write for each time and each Order of the account.
func TestAShortParkIsNotWrittenDown(t *testing.T) {
	ordered, challenged := flows.NewOrderState().Stored(acmev1.Pending, "pending"), flows.NewChallengeState().Processing()
	for park, written := range map[time.Duration]bool{time.Minute: false, time.Minute + time.Second: true} {
		ordered.Account.ParkedUntil, challenged.Account.ParkedUntil = start.Add(park), start.Add(park)
		o, c := ordered.Decide(start), challenged.Decide(start)
		equal(t, []any{o.Step, o.Wake, o.Status != nil}, []any{order.Wait, start.Add(park), written})
		equal(t, []any{c.Step, c.Wake, c.Status != nil}, []any{challenge.Wait, start.Add(park), written})
	}
}

// A page in place of an answer is a proxy's at first. One that keeps coming is the CA's.
func TestAPageIsBelievedOnceItKeepsComing(t *testing.T) {
	page := flows.Page("404 page not found")
	ordered, challenged := flows.NewOrderState().Stored(acmev1.Pending, "pending"), flows.NewChallengeState().Processing()
	var waited time.Duration
	for n := 1; n < acmeflow.MaxPages; n++ {
		ordered.Memory = ordered.Memory.After(order.Outcome{Step: order.Fetch, At: start, Failure: page})
		challenged.Memory = challenged.Memory.After(challenge.Outcome{Step: challenge.Fetch, At: start, Failure: page})
		waited += acmeflow.Backoff(page, n, 0.5)
		for at, step := range map[time.Time]order.Step{start: order.Wait, start.Add(time.Hour): order.CreateChallenges} {
			a := ordered.Decide(at)
			if a.Step != step || a.Status != nil && a.Status.State.IsFailure() {
				t.Fatalf("after %d pages %s: %+v", n, a.Step, a.Status)
			}
		}
		equal(t, challenged.Decide(start).Status.State, acmev1.Unknown)
		equal(t, challenged.Decide(start.Add(time.Hour)).Step, challenge.Fetch)
	}
	if waited < 10*time.Minute || waited > time.Hour {
		t.Errorf("it is believed after %s", waited)
	}
	interrupted := ordered.Memory.After(order.Outcome{Step: order.Fetch, At: start, Failure: acmeflow.NewFault(fault.ClassUnavailable, "502")})
	equal(t, interrupted.After(order.Outcome{Step: order.Fetch, At: start, Failure: page}).Failure.Unsure, true)

	ordered.Memory = ordered.Memory.After(order.Outcome{Step: order.Fetch, At: start, Failure: page})
	equal(t, ordered.Decide(start).Status.State, acmev1.Errored)
	challenged.Memory = challenged.Memory.After(challenge.Outcome{Step: challenge.Fetch, At: start, Failure: page})
	equal(t, challenged.Decide(start).Status.State, acmev1.Expired)
	equal(t, page.Unsure, true)
}
