package acmeflow_test

import (
	"testing"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/rig/flows"
	"chancery.dev/internal/rig/golden"
)

// trouble is how a call fails that is asked to wait, and troubled says what an object does about one after another.
type (
	trouble  func(asked time.Duration) *fault.Fault
	troubled func(trouble) golden.Row
)

// TestWaits is the table of the waits of Orders and Challenges, after failures and between looks.
func TestWaits(t *testing.T) {
	t.Parallel()
	var waits golden.Waits
	add := func(caller string, row troubled) {
		for _, class := range golden.Classes() {
			waits.Add(caller, string(class), row(func(asked time.Duration) *fault.Fault { return flows.After(asked, class) }))
		}
	}
	page := func(asked time.Duration) *fault.Fault {
		f := flows.After(asked, fault.ClassNotFound)
		f.Unsure, f.Kind = true, fault.KindAfter
		return f
	}
	add("Orders", orderWaits)
	for _, class := range []fault.Class{fault.ClassRateLimited, fault.ClassPaused} {
		waits.Add("Orders", string(class)+" (not sent)", orderWaits(func(asked time.Duration) *fault.Fault {
			f := flows.After(asked, class)
			f.Unsent = true
			return f
		}))
	}
	waits.Add("Orders", "Unsure (404 with a page)", orderWaits(page))
	add("Challenges", challengeWaits(challenge.Fetch))
	waits.Add("Challenges", "Unsure (404 with a page)", challengeWaits(challenge.Fetch)(page))
	add("solvers", challengeWaits(challenge.Present))
	waits.Add("polls", "a look at an order", orderPolls(0))
	waits.Add("polls", "a look at an order (after 60 others)", orderPolls(60))
	waits.Add("polls", "a look at an authorization", challengePolls)
	waits.Add("self checks", "SelfCheck", selfChecks)
	waits.Add("finalize", "NotReady (403 orderNotReady)", finalizeWaits)
	waits.Check(t, `solvers: the answer of a Challenge is not presented.
polls: nothing has failed. A wait is that until the next look at what the CA has not finished, after so many looks.
finalize: the order is ready, and the CA refuses to finalize it.`)
}

// orderWaits makes the look at an order fail.
func orderWaits(failure trouble) golden.Row {
	return func(asked time.Duration, chance float64) func(int) string {
		s, now := flows.NewOrderState().Stored("pending", "pending"), start
		s.Memory.Look = true
		return func(int) string {
			s.Memory = s.Memory.Started(order.Fetch, now).After(order.Outcome{Step: order.Fetch, At: now, Jitter: chance, Failure: failure(asked)})
			a := s.Decide(now)
			switch {
			case a.Status != nil && a.Status.State.IsFailure():
				return golden.Over
			case a.Step == order.Fetch:
				return golden.Text(0)
			}
			wait := a.Wake.Sub(now)
			now = a.Wake
			return golden.Text(wait)
		}
	}
}

// challengeWaits makes a step of a Challenge fail: the look at its authorization, or the presentation of its answer.
func challengeWaits(step challenge.Step) troubled {
	return func(failure trouble) golden.Row {
		return func(asked time.Duration, chance float64) func(int) string {
			s, now := flows.NewChallengeState().Processing(), start
			if step == challenge.Present {
				s = s.Read("pending", "pending")
				s.Memory.Authorization.Expires = start.Add(10000 * time.Hour)
			}
			return func(int) string {
				s.Memory = s.Memory.Started(step, now).After(challenge.Outcome{Step: step, At: now, Jitter: chance, Failure: failure(asked)})
				a := s.Decide(now)
				switch {
				case a.Status != nil && a.Status.State.IsFailure():
					return golden.Over
				case a.Step == step:
					return golden.Text(0)
				case a.Step != challenge.Wait:
					return a.Step.String()
				}
				wait := a.Wake.Sub(now)
				now = a.Wake
				return golden.Text(wait)
			}
		}
	}
}

// orderPolls lets the CA take its time with a certificate, which was looked at so often before.
func orderPolls(before int) golden.Row {
	return func(asked time.Duration, chance float64) func(int) string {
		s, now := flows.NewOrderState().Stored("pending", "valid"), start
		s.Order.Status.State = "processing"
		look := func(int) string {
			remote := flows.RemoteOrder("processing")
			remote.RetryAfter = asked
			s.Memory = s.Memory.Started(order.Fetch, now).After(order.Outcome{Step: order.Fetch, At: now, Jitter: chance, Order: remote})
			wait := s.Decide(now).Wake.Sub(now)
			now = now.Add(wait)
			return golden.Text(wait)
		}
		for n := range before {
			look(n)
		}
		return look
	}
}

// challengePolls lets the CA take its time with a validation.
func challengePolls(asked time.Duration, chance float64) func(int) string {
	s, now := flows.NewChallengeState().Processing().Presented(), start
	s.Memory = s.Memory.Started(challenge.Accept, now).After(challenge.Outcome{Step: challenge.Accept, At: now})
	return func(int) string {
		remote := flows.RemoteAuthorization("pending")
		remote.RetryAfter, remote.Challenges[0].Status = asked, "processing"
		s.Memory = s.Memory.Started(challenge.Fetch, now).After(challenge.Outcome{Step: challenge.Fetch, At: now, Jitter: chance, Authorization: &remote})
		wait := s.Decide(now).Wake.Sub(now)
		now = now.Add(wait)
		return golden.Text(wait)
	}
}

// selfChecks makes the self check of a Challenge fail.
func selfChecks(asked time.Duration, chance float64) func(int) string {
	s, now := flows.NewChallengeState().Processing().Presented().Read("pending", "pending"), start
	return func(int) string {
		o := challenge.Outcome{Step: challenge.Check, At: now, Jitter: chance, Failure: flows.After(asked, fault.ClassSelfCheck)}
		s.Memory = s.Memory.Started(challenge.Check, now).After(o)
		wait := s.Decide(now).Wake.Sub(now)
		now = now.Add(wait)
		return golden.Text(wait)
	}
}

// finalizeWaits makes the CA refuse to finalize, with the order ready.
func finalizeWaits(asked time.Duration, chance float64) func(int) string {
	s, now := flows.NewOrderState().Stored("pending", "pending").Owning("valid"), start
	// until goes on until the order is to be finalized; false if it has failed.
	until := func() bool {
		for {
			a := s.Decide(now)
			switch {
			case a.Status != nil && a.Status.State.IsFailure():
				return false
			case a.Step == order.Finalize:
				return true
			case a.Step == order.Wait:
				now = a.Wake
			default:
				s.Memory = s.Memory.Started(a.Step, now).After(order.Outcome{Step: a.Step, At: now, Order: flows.RemoteOrder("ready")})
			}
		}
	}
	until()
	return func(int) string {
		refused := now
		s.Memory = s.Memory.Started(order.Finalize, now).After(order.Outcome{
			Step: order.Finalize, At: now, Jitter: chance, Order: flows.RemoteOrder("ready"), Failure: flows.After(asked, fault.ClassNotReady),
		})
		if !until() {
			return golden.Over
		}
		return golden.Text(now.Sub(refused))
	}
}
