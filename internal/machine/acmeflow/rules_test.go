package acmeflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

func TestRule1_AnOrderManagesOneChallengePerName(t *testing.T) {
	s := newOrderState().stored(acmev1.Pending, "pending")
	second := storedAuthorization(remoteAuthorization("pending"))
	second.URL, second.Identifier = "ca/authz/2", "b.example.com"
	reused := storedAuthorization(remoteAuthorization("valid"))
	reused.URL, reused.Identifier = "ca/authz/3", "c.example.com"
	s.Order.Status.Authorizations = append(s.Order.Status.Authorizations, second, reused)
	a := DecideOrder(s, start)
	equal(t, a.Step, OrderCreateChallenges)
	equal(t, a.Status.Authorizations[0].Solver, a.Challenges[0].Annotations[SolverChoiceAnnotation]) // the Order says why
	equal(t, len(a.Challenges), 2)
	for i, name := range []string{"a.example.com", "b.example.com"} {
		c := a.Challenges[i]
		equal(t, c.Spec.DNSName, name)
		equal(t, c.Namespace, "shop")
		equal(t, c.Finalizers, []string{acmev1.ChallengeFinalizer})
		equal(t, metav1.IsControlledBy(c, s.Order), true)
	}
}

func TestRule2_NothingHappensBeforeProcessing(t *testing.T) {
	for _, e := range environments() {
		a := DecideChallenge(challengeTrial().in(newChallengeState(), e), start.Add(e.after))
		equal(t, a.Step, ChallengeWait)
		equal(t, a.Status == nil, true)
		equal(t, a.Event == nil, true)
	}
}

func TestRule4_AScheduledChallengeIsFirstSynced(t *testing.T) {
	s := newChallengeState().processing()
	equal(t, DecideChallenge(s, start).Step, ChallengeFetch)

	valid := DecideChallenge(s.read("valid", "valid"), start)
	equal(t, valid.Status.State, acmev1.Valid)
	equal(t, valid.Status.Processing, false)

	pending := s.read("pending", "pending")
	equal(t, DecideChallenge(pending, start).Step, ChallengePresent)
	pending.Memory = pending.Memory.After(ChallengeOutcome{Step: ChallengePresent, At: start})
	shown := DecideChallenge(pending, start)
	equal(t, shown.Status.Presented, true)
	equal(t, shown.Step, ChallengeCheck)
}

func TestRule5_SelfCheckIsRetriedAtTheLatestEveryPeriod(t *testing.T) {
	s, now := newChallengeState().processing().presented().read("pending", "pending"), start
	var waits []time.Duration
	for range 10 {
		equal(t, DecideChallenge(s, now).Step, ChallengeCheck)
		s.Memory = s.Memory.Started(ChallengeCheck, now).After(ChallengeOutcome{
			Step: ChallengeCheck, At: now, Failure: failure(fault.ClassSelfCheck, "ns1.example.net. answers NXDOMAIN"),
		})
		a := DecideChallenge(s, now)
		if a.Status != nil {
			s = s.with(func(c *acmev1.Challenge) { c.Status = *a.Status })
		}
		waits = append(waits, a.Wake.Sub(now))
		now = a.Wake
	}
	ms := time.Millisecond
	equal(t, waits, []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 10000 * ms, 10000 * ms, 10000 * ms, 10000 * ms})
	equal(t, s.Challenge.Status.Reason, "Waiting for DNS-01 challenge propagation: ns1.example.net. answers NXDOMAIN; retried every 10s")

	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengeCheck, At: now})
	equal(t, DecideChallenge(s, now).Step, ChallengeAccept)
	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengeAccept, At: now})
	authz := remoteAuthorization("invalid")
	authz.Challenges[0].Error = problem("urn:ietf:params:acme:error:unauthorized: wrong TXT record")
	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengeFetch, At: now, Authorization: &authz})
	a := DecideChallenge(s, now)
	equal(t, a.Status.State, acmev1.Invalid)
	equal(t, a.Status.Reason, "Error accepting authorization: urn:ietf:params:acme:error:unauthorized: wrong TXT record")
}

func TestRule5_WhatIsMissedForLongIsPresentedAgain(t *testing.T) {
	s := newChallengeState().processing().presented().read("pending", "pending")
	now := start.Add(s.Settings.RepresentAfter)
	s.Memory.Checks, s.Memory.CheckedAt = 40, now.Add(-s.Settings.CheckPeriod)
	equal(t, DecideChallenge(s, now).Step, ChallengePresent)
	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengePresent, At: now})
	equal(t, DecideChallenge(s, now).Step, ChallengeCheck)

	parked := s.with(func(c *acmev1.Challenge) { c.Status.Processing = false })
	parked.Memory.PresentTried = time.Time{}
	equal(t, DecideChallenge(parked, now).Step, ChallengeCheck) // a parked one only looks, and wants a slot
	equal(t, DecideChallenge(parked, now).Ready, true)
	equal(t, DecideChallenge(parked, now.Add(-time.Second)).Ready, false)
	for _, wait := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute} { // ever less often
		parked.Memory = parked.Memory.After(ChallengeOutcome{Step: ChallengePresent, At: now})
		equal(t, DecideChallenge(parked, now.Add(wait-time.Second)).Ready, false)
		now = now.Add(wait)
		equal(t, DecideChallenge(parked, now).Ready, true)
	}
}

// TestNothingIsPresentedAfterCleanUp: a valid Challenge that stays says so with its finalizer, after a short wait in
// which most Orders delete it; one that is deleted goes at once, and one that was not cleaned up says nothing.
func TestNothingIsPresentedAfterCleanUp(t *testing.T) {
	s := newChallengeState().final(acmev1.Valid)
	s.Memory = s.Memory.Started(ChallengeCleanUp, start).After(ChallengeOutcome{Step: ChallengeCleanUp, At: start})
	soon := DecideChallenge(s, start)
	equal(t, soon, ChallengeAction{Wake: start.Add(lingering)})
	late := DecideChallenge(s, soon.Wake)
	equal(t, late.Step, ChallengeRemoveFinalizer)
	equal(t, late.Status.Presented, false)
	equal(t, late.Status.State, acmev1.Valid)
	deleted := DecideChallenge(s.deleted(), start)
	equal(t, deleted, ChallengeAction{Step: ChallengeRemoveFinalizer})
}

func TestRule6_EveryFinalStateFreesTheSlotWithTheSameWrite(t *testing.T) {
	for status, state := range map[acme.Status]acmev1.State{
		"valid": acmev1.Valid, "invalid": acmev1.Invalid, "expired": acmev1.Expired,
		"revoked": acmev1.Errored, "deactivated": acmev1.Errored,
	} {
		a := DecideChallenge(newChallengeState().processing().presented().read(status, "pending"), start)
		equal(t, a.Status.State, state)
		equal(t, a.Status.Processing, false)
		if a.Status.Reason == "" {
			t.Errorf("%s has no reason", status)
		}
	}
	// Whatever clean-up does.
	stuck := newChallengeState().final(acmev1.Valid)
	stuck.Memory = stuck.Memory.Started(ChallengeCleanUp, start).After(ChallengeOutcome{
		Step: ChallengeCleanUp, At: start, Failure: failure(fault.ClassSolver, "no credentials"),
	})
	a := DecideChallenge(stuck, start)
	equal(t, a.Status.Processing, false)
	equal(t, a.Event.Reason, acmev1.ChallengeReasonCleanUpError)
	limit := start.Add(10 * time.Minute)
	equal(t, DecideChallenge(stuck, limit).Step, ChallengeCleanUp) // the last try
	stuck.Memory = stuck.Memory.Started(ChallengeCleanUp, limit).After(ChallengeOutcome{
		Step: ChallengeCleanUp, At: limit, Failure: failure(fault.ClassSolver, "no credentials"),
	})
	end := DecideChallenge(stuck, limit)
	equal(t, end.Step, ChallengeRemoveFinalizer)
	equal(t, end.Event.Reason, acmev1.ChallengeReasonCleanUpAbandoned)
	if !strings.Contains(end.Event.Message, "the TXT record of _acme-challenge.a.example.com") {
		t.Errorf("the event does not say what is left behind: %s", end.Event.Message)
	}
	stuck = stuck.with(func(c *acmev1.Challenge) {
		c.Spec.Type, c.Spec.AccountLabel = acmev1.ChallengeTypeDNSAccount01, "ujmmovf2vn55tgye"
	})
	end = DecideChallenge(stuck, start.Add(10*time.Minute))
	if !strings.Contains(end.Event.Message, "the TXT record of _ujmmovf2vn55tgye._acme-challenge.a.example.com") {
		t.Errorf("the event does not say what is left behind: %s", end.Event.Message)
	}
}

// TestNothingIsLeftWhereNoZoneIs: a name without a zone is given up at once, but not if
// there was a zone before, nor if DNS only does not answer.
func TestNothingIsLeftWhereNoZoneIs(t *testing.T) {
	nowhere, silent := nowhere(), failure(fault.ClassSolver, "no answer")
	for _, c := range []struct {
		present, cleanUp *fault.Fault
		want             ChallengeStep
	}{{nowhere, nowhere, ChallengeRemoveFinalizer}, {nowhere, silent, ChallengeWait}, {silent, nowhere, ChallengeWait}} {
		s := newChallengeState().processing().read("pending", "pending")
		s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengePresent, At: start, Failure: c.present})
		s = s.deleted()
		equal(t, DecideChallenge(s, start).Step, ChallengeCleanUp)
		s.Memory = s.Memory.Started(ChallengeCleanUp, start).After(ChallengeOutcome{Step: ChallengeCleanUp, At: start, Failure: c.cleanUp})
		equal(t, DecideChallenge(s, start).Step, c.want)
		equal(t, DecideChallenge(s.presented(), start).Step, ChallengeWait)
	}
}

func TestATerminalChallengeSettlesItsOrder(t *testing.T) {
	s := newOrderState().stored(acmev1.Pending, "pending")
	other := storedAuthorization(remoteAuthorization("pending"))
	other.URL, other.Identifier = "ca/authz/2", "b.example.com"
	s.Order.Status.Authorizations = append(s.Order.Status.Authorizations, other)
	s = s.owning(acmev1.Invalid)
	a := DecideOrder(s, start)
	equal(t, a.Status.State, acmev1.Invalid)
	equal(t, a.Status.FailureTime.Time, start)
	equal(t, a.Step, OrderDeactivate)
	equal(t, a.URLs, []string{"ca/authz/2"})
	if !strings.Contains(a.Status.Reason, `"a.example.com"`) || !strings.Contains(a.Status.Reason, "because") {
		t.Errorf("the reason does not say why: %s", a.Status.Reason)
	}
}

func TestNoSolverIsSaidOnceAndClearsWhenTheIssuerChanges(t *testing.T) {
	s := newOrderState().stored(acmev1.Pending, "pending")
	s.Issuer.Solvers = nil
	a := DecideOrder(s, start)
	equal(t, a.Event.Reason, acmev1.OrderReasonSolver)
	s.Order.Status = *a.Status
	again := DecideOrder(s, start)
	equal(t, again.Status == nil, true)
	equal(t, again.Event == nil, true)
	s.Issuer = readyIssuer()
	a = DecideOrder(s, start)
	equal(t, a.Step, OrderCreateChallenges)
	equal(t, a.Status.Reason, "")
}

// TestReplacesIsDroppedWhenTheCARefusesIt: CAs do not agree about the problem that says
// so, so the first refusal of any kind is taken for one, and the second ends the order.
func TestReplacesIsDroppedWhenTheCARefusesIt(t *testing.T) {
	for _, class := range []fault.Class{fault.ClassRefused, fault.ClassPermanent, fault.ClassNotFound} {
		s := newOrderState()
		s.Order.Spec.Replaces = "aki.serial"
		equal(t, DecideOrder(s, start).NewOrder.Replaces, "aki.serial")
		refused := OrderOutcome{Step: OrderCreate, At: start, Failure: failure(class, "no")}
		s.Memory = s.Memory.After(refused)
		a := DecideOrder(s, start)
		equal(t, a.Step, OrderCreate)
		equal(t, a.NewOrder.Replaces, "")
		unavailable := OrderOutcome{Step: OrderCreate, At: start, Failure: failure(fault.ClassUnavailable, "")}
		s.Memory = s.Memory.After(unavailable)
		equal(t, DecideOrder(s, start).Step, OrderWait)
		s.Memory = s.Memory.After(refused)
		a = DecideOrder(s, start)
		equal(t, a.Status.State, acmev1.Errored)
		equal(t, a.Status.Reason, "Failed to create Order: no")
	}
}

// TestReplacesIsDoubtedWhenTheCAStumbles: Pebble answers with a fault of its own where it does not
// know the certificate. That does not hold an Order up for ever, nor cost it the field for good.
func TestReplacesIsDoubtedWhenTheCAStumbles(t *testing.T) {
	s := newOrderState()
	s.Order.Spec.Replaces = "aki.serial"
	now := start
	for i, want := range []string{"aki.serial", "aki.serial", "", "aki.serial", "aki.serial", ""} {
		a := DecideOrder(s, now)
		equal(t, a.Step, OrderCreate)
		if a.NewOrder.Replaces != want {
			t.Errorf("attempt %d replaces %q, want %q", i+1, a.NewOrder.Replaces, want)
		}
		s.Memory = s.Memory.After(OrderOutcome{Step: OrderCreate, At: now, Failure: failure(fault.ClassUnavailable, "oops")})
		a = DecideOrder(s, now)
		equal(t, a.Step, OrderWait)
		now = a.Wake
	}
}

// TestWhatAFailedOrderLeavesPendingIsDeactivated although the process died with the
// failure written, and only once.
func TestWhatAFailedOrderLeavesPendingIsDeactivated(t *testing.T) {
	s := newOrderState().stored(acmev1.Pending, "pending").owning(acmev1.Errored)
	s.Memory = s.Memory.Started(OrderFetch, start)
	a := DecideOrder(s, start)
	equal(t, a.Step, OrderWait) // a call is under way
	s.Order.Status = *a.Status
	s.Memory = OrderMemory{}
	for _, s.Issuer.Readiness = range []Readiness{IssuerStarting, IssuerNotReady} {
		s.Account.URL = "" // there is no account at hand; no event tells a failed Order of one
		waiting := DecideOrder(s, start)
		equal(t, []any{waiting.Step, waiting.Wake}, []any{OrderWait, start.Add(startingPause)})
	}
	s.Issuer, s.Account.URL = readyIssuer(), "ca/acct/1"
	for try := range 4 {
		now := start.Add(time.Duration(try) * time.Minute)
		a = DecideOrder(s, now)
		equal(t, a.URLs, []string{"ca/authz/1"})
		o := OrderOutcome{Step: a.Step, At: now, Failure: failure(fault.ClassUnavailable, "")}
		if s.Memory = s.Memory.After(o); s.Memory.Deactivated {
			equal(t, try, maxDeactivations-1)
			break
		}
	}
	equal(t, DecideOrder(s, start.Add(5*time.Minute)).Step, OrderWait)
	equal(t, DecideOrder(s, start.Add(deactivationWindow)).Step, OrderDone)
	s.Memory = OrderMemory{}
	equal(t, DecideOrder(s, start.Add(deactivationWindow)).Step, OrderDone)
}

// TestAFinalizeWithoutEffectIsNotRepeatedAtOnce: a CA that says yes and goes on showing the
// order as ready is asked a few times, with pauses, and then given up.
func TestAFinalizeWithoutEffectIsNotRepeatedAtOnce(t *testing.T) {
	s := newOrderState().stored(acmev1.Pending, "pending").owning(acmev1.Valid)
	now, finalized := start, 0
	var a OrderAction
	for a = DecideOrder(s, now); a.Status == nil; a = DecideOrder(s, now) {
		switch a.Step {
		case OrderWait:
			now = a.Wake
		case OrderFinalize:
			finalized++
			fallthrough
		default:
			s.Memory = s.Memory.After(OrderOutcome{Step: a.Step, At: now, Order: remoteOrder("ready")})
		}
	}
	equal(t, finalized, maxRefused)
	equal(t, now.Sub(start), 15*time.Second) // 1, 2, 4 and 8 s between them
	equal(t, a.Status.State, acmev1.Errored)
	equal(t, OrderClass(*a.Status), fault.ClassRefused)
}

func TestAnOrderIsNotProcessedForEver(t *testing.T) {
	s := newOrderState().stored(acmev1.Pending, "pending").saw("processing")
	s.Memory.RemoteAt = s.Memory.Remote.Expires.Add(expiryGrace + time.Second)
	a := DecideOrder(s, s.Memory.RemoteAt)
	equal(t, a.Status.State, acmev1.Errored)
	equal(t, OrderClass(*a.Status), fault.ClassUnavailable)
}

func TestALostFinalizeIsResolvedByLooking(t *testing.T) {
	for _, class := range []fault.Class{fault.ClassNotReady, fault.ClassUnavailable} {
		s := newOrderState().stored(acmev1.Pending, "pending").owning(acmev1.Valid)
		s.Memory = s.Memory.After(OrderOutcome{Step: OrderFinalize, At: start, Failure: failure(class, "lost")})
		now := start.Add(time.Minute)
		equal(t, DecideOrder(s, now).Step, OrderFetch)
		s.Memory = s.Memory.After(OrderOutcome{Step: OrderFetch, At: now, Order: remoteOrder("valid")})
		a := DecideOrder(s, now)
		equal(t, a.Step, OrderDownload)
		s.Memory = s.Memory.After(OrderOutcome{Step: OrderDownload, At: now, Chain: []byte("chain")})
		a = DecideOrder(s, now)
		equal(t, string(a.Status.Certificate), "chain")
		equal(t, a.Event.Message, "Order completed successfully")
	}
}

func TestASilentCAHoldsNoSlot(t *testing.T) {
	s := newChallengeState().processing()
	s.Memory = s.Memory.Started(ChallengeFetch, start)
	early := DecideChallenge(s, start.Add(time.Second))
	equal(t, early.Yield, false)
	equal(t, early.Wake, start.Add(s.Settings.YieldAfter))
	late := DecideChallenge(s, start.Add(s.Settings.YieldAfter))
	equal(t, late.Yield, true)
	equal(t, late.NotBefore.After(start.Add(time.Minute)), true) // not started again meanwhile
}

func TestWaitInsteadOfSelfCheck(t *testing.T) {
	s := newChallengeState().processing().read("pending", "pending").with(func(c *acmev1.Challenge) {
		c.Spec.Solver.WaitInsteadOfSelfCheck = &metav1.Duration{Duration: 30 * time.Second}
	})
	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengePresent, At: start})
	a := DecideChallenge(s, start)
	equal(t, a.Status.Reason, "Waiting 30s before accepting DNS-01 challenge without self-check")
	equal(t, a.Wake, start.Add(30*time.Second))
	s = s.with(func(c *acmev1.Challenge) { c.Status = *a.Status })
	equal(t, DecideChallenge(s, a.Wake).Step, ChallengeAccept)
}

func TestDeletedMidFlightIsCleanedUpBeforeTheFinalizerGoes(t *testing.T) {
	s := newChallengeState().processing().read("pending", "pending").deleted()
	s.Memory = s.Memory.Started(ChallengePresent, start)
	a := DecideChallenge(s, start)
	equal(t, a.Step, ChallengeWait) // Present may still act
	equal(t, a.Status.Processing, false)
	s = s.with(func(c *acmev1.Challenge) { c.Status = *a.Status })
	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengePresent, At: start})
	equal(t, DecideChallenge(s, start).Step, ChallengeCleanUp)
	restarted := s
	restarted.Memory = ChallengeMemory{}
	equal(t, DecideChallenge(restarted, start).Step, ChallengeCleanUp)
	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengeCleanUp, At: start})
	equal(t, DecideChallenge(s, start).Step, ChallengeRemoveFinalizer)
}

// TestAnIncompleteAnswerIsNotAskedForAtOnce: a CA that leaves out what RFC 8555 §7.1.3 and
// §7.1.4 ask for is given time, and people are told.
func TestAnIncompleteAnswerIsNotAskedForAtOnce(t *testing.T) {
	const patience = 100
	bare := func(step OrderStep) (asked int, said string) {
		s, now := newOrderState(), start
		for range patience {
			a := DecideOrder(s, now)
			if a.Status != nil {
				s.Order = s.Order.DeepCopy()
				s.Order.Status, said = *a.Status, a.Status.Reason
			}
			if a.Step == OrderWait {
				now = a.Wake
				continue
			}
			o := OrderOutcome{Step: a.Step, At: now, Order: remoteOrder("pending")}
			if a.Step == step {
				asked++
			}
			if step == OrderFetch {
				o.Order.Finalize = ""
			}
			o.Authorizations = []acme.Authorization{{URL: "ca/authz/1", Status: "pending"}}
			s.Memory = s.Memory.After(o)
		}
		return asked, said
	}
	for _, step := range []OrderStep{OrderFetch, OrderFetchAuthorizations} {
		asked, said := bare(step)
		equal(t, asked <= patience/2+1, true)
		equal(t, strings.Contains(said, "sent an"), true)
	}
}

// TestManyAuthorizationsAreReadInParts: one call has to be over before its time runs out,
// however slow the CA is.
func TestManyAuthorizationsAreReadInParts(t *testing.T) {
	s := newOrderState()
	remote := remoteOrder("pending")
	remote.Authorizations = nil
	s.Order = s.Order.DeepCopy()
	for i := range 100 {
		s.Order.Spec.DNSNames = append(s.Order.Spec.DNSNames, fmt.Sprintf("%d.example.com", i))
		remote.Authorizations = append(remote.Authorizations, fmt.Sprint("ca/authz/", i))
	}
	s.Memory = s.Memory.After(OrderOutcome{Step: OrderCreate, At: start, Order: remote})
	for range 100/authorizationsAtOnce + 1 {
		a := DecideOrder(s, start)
		if a.Step != OrderFetchAuthorizations {
			break
		}
		equal(t, len(a.URLs) <= authorizationsAtOnce, true)
		o := OrderOutcome{Step: a.Step, At: start}
		for _, url := range a.URLs {
			authz := remoteAuthorization("pending")
			authz.URL = url
			o.Authorizations = append(o.Authorizations, authz)
		}
		s.Memory = s.Memory.After(o)
	}
	equal(t, DecideOrder(s, start).Step, OrderCreateChallenges)
}

// TestAnOrderEndsWhoseAuthorizationsNoOrderHolds: a hostile CA lists more authorizations than an order of one
// name can have, or longer ones than a status can hold. The Order ends and says why, and nothing of them is
// kept.
func TestAnOrderEndsWhoseAuthorizationsNoOrderHolds(t *testing.T) {
	many := remoteOrder("pending")
	many.Authorizations = make([]string, 20)
	long := remoteAuthorization("pending")
	for range 20 {
		long.Challenges = append(long.Challenges, acme.Challenge{Type: "x", Token: strings.Repeat("x", 64<<10)})
	}
	for name, outcomes := range map[string][]OrderOutcome{
		"more than": {{Step: OrderCreate, At: start, Order: many}},
		"too long": {
			{Step: OrderCreate, At: start, Order: remoteOrder("pending")},
			{Step: OrderFetchAuthorizations, At: start, Authorizations: []acme.Authorization{long}},
		},
	} {
		s := newOrderState()
		for _, o := range outcomes {
			s.Memory = s.Memory.After(o)
		}
		a := DecideOrder(s, start)
		if a.Status == nil || a.Status.State != acmev1.Errored || !strings.Contains(a.Status.Reason, name) ||
			sizeOf(s.Memory.Authorizations) != 0 || len(a.URLs) > 1 {
			t.Fatalf("%s: %+v", name, a)
		}
	}
}

// TestAForgottenAcceptIsRepeated: a CA that has said yes and does nothing for minutes is told
// again, for RFC 8555 §8.2 lets a client do so. One that is parked wants a slot for that, and
// looks on.
func TestAForgottenAcceptIsRepeated(t *testing.T) {
	for _, processing := range []bool{true, false} {
		s := newChallengeState().processing().read("pending", "pending").presented()
		s.Memory.Passed = start
		s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengeAccept, At: start})
		if !processing {
			s = s.with(func(c *acmev1.Challenge) { c.Status = ParkChallenge(c.Status, time.Time{}) })
		}
		now := start
		var a ChallengeAction
		for a = DecideChallenge(s, now); a.Step != ChallengeAccept && !a.Ready && now.Before(start.Add(time.Hour)); a = DecideChallenge(s, now) {
			if a.Step == ChallengeWait {
				now = a.Wake
				continue
			}
			authz := remoteAuthorization("pending")
			s.Memory = s.Memory.After(ChallengeOutcome{Step: a.Step, At: now, Authorization: &authz})
		}
		equal(t, a.Step == ChallengeAccept, processing)
		equal(t, a.Ready && a.Wake.After(now), !processing)
		equal(t, now.Sub(start) > 4*time.Minute && now.Sub(start) < 6*time.Minute, true)
	}
}

// TestAShortParkIsNotWrittenDown: a CA that asks for a while again and again must not cost a
// write for each time and each Order of the account.
func TestAShortParkIsNotWrittenDown(t *testing.T) {
	order, challenge := newOrderState().stored(acmev1.Pending, "pending"), newChallengeState().processing()
	for park, written := range map[time.Duration]bool{time.Minute: false, time.Minute + time.Second: true} {
		order.Account.ParkedUntil, challenge.Account.ParkedUntil = start.Add(park), start.Add(park)
		o, c := DecideOrder(order, start), DecideChallenge(challenge, start)
		equal(t, []any{o.Step, o.Wake, o.Status != nil}, []any{OrderWait, start.Add(park), written})
		equal(t, []any{c.Step, c.Wake, c.Status != nil}, []any{ChallengeWait, start.Add(park), written})
	}
}

// A page in place of an answer is a proxy's at first. One that keeps coming is the CA's.
func TestAPageIsBelievedOnceItKeepsComing(t *testing.T) {
	page := page("404 page not found")
	order, challenge := newOrderState().stored(acmev1.Pending, "pending"), newChallengeState().processing()
	var waited time.Duration
	for n := 1; n < maxPages; n++ {
		order.Memory = order.Memory.After(OrderOutcome{Step: OrderFetch, At: start, Failure: page})
		challenge.Memory = challenge.Memory.After(ChallengeOutcome{Step: ChallengeFetch, At: start, Failure: page})
		waited += Backoff(page, n, 0.5)
		for at, step := range map[time.Time]OrderStep{start: OrderWait, start.Add(time.Hour): OrderCreateChallenges} {
			a := DecideOrder(order, at)
			if a.Step != step || a.Status != nil && a.Status.State.IsFailure() {
				t.Fatalf("after %d pages %s: %+v", n, a.Step, a.Status)
			}
		}
		equal(t, DecideChallenge(challenge, start).Status.State, acmev1.Unknown)
		equal(t, DecideChallenge(challenge, start.Add(time.Hour)).Step, ChallengeFetch)
	}
	if waited < 10*time.Minute || waited > time.Hour {
		t.Errorf("it is believed after %s", waited)
	}
	interrupted := order.Memory.After(OrderOutcome{Step: OrderFetch, At: start, Failure: failure(fault.ClassUnavailable, "502")})
	equal(t, interrupted.After(OrderOutcome{Step: OrderFetch, At: start, Failure: page}).Failure.Unsure, true)

	order.Memory = order.Memory.After(OrderOutcome{Step: OrderFetch, At: start, Failure: page})
	equal(t, DecideOrder(order, start).Status.State, acmev1.Errored)
	challenge.Memory = challenge.Memory.After(ChallengeOutcome{Step: ChallengeFetch, At: start, Failure: page})
	equal(t, DecideChallenge(challenge, start).Status.State, acmev1.Expired)
	equal(t, page.Unsure, true)
}

// The limit of clean-up is counted from the first try, however long that takes to come back.
func TestCleanUpIsBoundedFromItsFirstTry(t *testing.T) {
	s := newChallengeState().final(acmev1.Invalid)
	noAnswer := failure(fault.ClassSolver, "no answer")
	back := start.Add(90 * time.Second)
	s.Memory = s.Memory.Started(ChallengeCleanUp, start).After(ChallengeOutcome{Step: ChallengeCleanUp, At: back, Failure: noAnswer})
	s.Memory = s.Memory.Started(ChallengeCleanUp, back).After(ChallengeOutcome{Step: ChallengeCleanUp, At: back, Failure: noAnswer})
	limit := start.Add(s.Settings.CleanUpLimit)
	equal(t, DecideChallenge(s, limit.Add(-time.Second)).Step, ChallengeCleanUp)
	equal(t, DecideChallenge(s, limit).Step, ChallengeCleanUp) // the last try
	s.Memory = s.Memory.Started(ChallengeCleanUp, limit).After(ChallengeOutcome{Step: ChallengeCleanUp, At: limit, Failure: noAnswer})
	equal(t, DecideChallenge(s, limit).Step, ChallengeRemoveFinalizer)
}

func TestMendedCredentialIsTriedAtOnce(t *testing.T) {
	s := newChallengeState().processing().read("pending", "pending")
	for range 9 {
		s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengePresent, At: start, Failure: failure(fault.ClassSolver, "bad key")})
	}
	equal(t, DecideChallenge(s, start.Add(time.Minute)).Step, ChallengeWait)
	mended := s
	mended.Memory = s.Memory.CredentialChanged()
	equal(t, DecideChallenge(mended, start.Add(time.Minute)).Step, ChallengePresent)
	// What the CA has said has nothing to do with it.
	s = newChallengeState().processing()
	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengeFetch, At: start, Failure: failure(fault.ClassRateLimited, "too many")})
	s.Memory = s.Memory.CredentialChanged()
	equal(t, DecideChallenge(s, start).Step, ChallengeWait)
}

// TestAFailedChallengeKeepsItsReason: once it is cleaned up, it still says why it has failed.
func TestAFailedChallengeKeepsItsReason(t *testing.T) {
	s := newChallengeState()
	s.Challenge.Status = acmev1.ChallengeStatus{State: acmev1.Invalid, Reason: "CAA forbids it", FailureClass: "Validation"}
	s.Memory.Presented, s.Memory.CleanedUp = start, true
	if a := DecideChallenge(s, start); a.Status != nil {
		t.Errorf("it is written anew: %+v", a.Status)
	}
}
