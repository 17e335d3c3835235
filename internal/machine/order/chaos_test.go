package order_test

import (
	"fmt"
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/rig/flows"
	"chancery.dev/internal/rig/slow"
)

// chaos answers the calls of Orders.
type chaos struct{ *flows.Chaos }

// order answers an external step of an Order.
func (c chaos) order(a order.Action, finalized bool) order.Outcome {
	o := order.Outcome{Step: a.Step, At: c.Now, Jitter: c.R.Float64()}
	status := acme.StatusPending
	switch {
	case c.Wild():
		if o.Failure = c.Failure(); o.Failure != nil {
			return o
		}
		status = flows.Pick[acme.Status](c.R, "", "pending", "ready", "processing", "valid", "invalid", "nonsense")
	case c.Verdict == "forget" && a.Step != order.Create:
		o.Failure = acmeflow.NewFault(fault.ClassNotFound, "forgotten")
		return o
	case c.Verdict == "refuse" && (a.Step == order.Create || a.Step == order.Finalize):
		o.Failure = flows.Refusal(fault.ClassPermanent, acme.CodeRejectedIdentifier)
		return o
	case c.Verdict == "lag" && a.Step == order.Finalize:
		o.Failure = acmeflow.NewFault(fault.ClassNotReady, "lagging")
		return o
	case c.Verdict == "stuck":
		status = "processing"
	case c.Verdict == "issue" && (finalized || a.Step == order.Finalize):
		status = "valid"
	case c.Verdict == "issue":
		status = "ready"
	}
	switch a.Step {
	case order.FetchAuthorizations:
		initial := acme.StatusPending
		if c.Wild() {
			initial = flows.Pick[acme.Status](c.R, "pending", "pending", "valid", "invalid", "deactivated", "expired", "nonsense")
		}
		for _, url := range a.URLs {
			authz := flows.RemoteAuthorization(initial)
			authz.URL = url
			o.Authorizations = append(o.Authorizations, authz)
		}
	case order.Download:
		o.Chain = []byte("chain")
	case order.Deactivate:
	default:
		o.Order = flows.RemoteOrder(status)
	}
	return o
}

// settle ends what is still open of an Order's Challenges.
func (c chaos) settle(s *flows.OrderState) bool {
	for i, owned := range s.Challenges {
		if owned.Status.State.IsFinal() {
			continue
		}
		s.Challenges[i] = owned.DeepCopy()
		s.Challenges[i].Status.State = acmev1.Valid
		if c.Verdict == "fail" {
			s.Challenges[i].Status.State = flows.Pick(c.R, acmev1.Invalid, acmev1.Errored, acmev1.Expired)
		}
		return true
	}
	return false
}

// follow does what was decided about an Order, and reports whether it is done.
func (c chaos) follow(s *flows.OrderState, a order.Action) (done bool) {
	if a.Status != nil {
		s.Order = s.Order.DeepCopy()
		s.Order.Status = *a.Status
		s.Memory = s.Memory.Wrote(a, c.Now)
	}
	switch {
	case a.Step == order.Done:
		return true
	case a.Step.External():
		s.Memory = s.Memory.Started(a.Step, c.Now).After(c.order(a, !s.Memory.Finalized.IsZero()))
	case a.Step == order.CreateChallenges:
		s.Challenges = append(s.Challenges, a.Challenges...)
	case a.Step == order.DeleteChallenges:
		var kept []*acmev1.Challenge
		for _, owned := range s.Challenges {
			if !strings.Contains(" "+strings.Join(a.Delete, " ")+" ", " "+owned.Name+" ") {
				kept = append(kept, owned)
			}
		}
		s.Challenges = kept
	}
	return false
}

// TestEveryOrderEnds starts in every state there is.
func TestEveryOrderEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]int{}
	for seed := range flows.Seeds(slow.Runs(slow.Faults), 600) {
		situations := orderSituations()
		situation := situations[int(seed)%len(situations)]
		c, s := chaos{flows.NewChaos(seed, "issue", "refuse", "forget", "stuck", "lag", "fail")}, situation.State
		s.Memory.Running = order.Wait
		for step := 0; ; step++ {
			s.Issuer, s.Account.ParkedUntil = flows.ReadyIssuer(), c.ParkedUntil()
			s.Issuer.Readiness = c.Readiness()
			if s.Account.URL = "ca/acct/1"; s.Issuer.Readiness != acmeflow.IssuerReady && c.R.Intn(2) == 0 || s.Issuer.Readiness == acmeflow.IssuerStarting {
				s.Account.URL = ""
			}
			if c.Wild() && c.R.Intn(50) == 0 {
				s.Memory = order.Memory{}
			}
			s.Memory = s.Memory.Seen(c.Now)
			a := s.Decide(c.Now)
			flows.CheckOrder(t, s, a, c.Now, c.Told)
			c.Say(flows.Text(a, c.Now))
			if c.follow(&s, a) {
				break
			}
			if a.Step == order.Wait && a.Status == nil && !c.Sleep(a.Wake) && !c.settle(&s) || step > 50_000 {
				t.Fatalf("seed %d, from %q: nothing gets it out of here\n%s", seed, situation.Name, c.Told())
			}
		}
		end := s.Order.Status
		if !end.State.IsFinal() || (end.State == acmev1.Valid) != (len(end.Certificate) > 0) || end.State.IsFailure() && end.Reason == "" && end.FailureTime != nil {
			t.Fatalf("seed %d, from %q: it ends as %+v\n%s", seed, situation.Name, end, c.Told())
		}
		ends[fmt.Sprint(end.State, " ", order.Class(end))]++
	}
	for _, end := range []string{"valid ", "errored " + string(fault.ClassPermanent), "errored " + string(fault.ClassRefused), "expired " + string(fault.ClassValidation)} {
		if ends[end] == 0 {
			t.Errorf("no walk ended as %s: %v", end, ends)
		}
	}
}
