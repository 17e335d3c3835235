package challenge_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/rig/flows"
)

func TestRule2_NothingHappensBeforeProcessing(t *testing.T) {
	for _, e := range flows.Environments() {
		a := challengeTrial().In(flows.NewChallengeState(), e).Decide(start.Add(e.After))
		equal(t, a.Step, challenge.Wait)
		equal(t, a.Status == nil, true)
		equal(t, a.Event == nil, true)
	}
}

func TestRule4_AScheduledChallengeIsFirstSynced(t *testing.T) {
	s := flows.NewChallengeState().Processing()
	equal(t, s.Decide(start).Step, challenge.Fetch)

	valid := s.Read("valid", "valid").Decide(start)
	equal(t, valid.Status.State, acmev1.Valid)
	equal(t, valid.Status.Processing, false)

	pending := s.Read("pending", "pending")
	equal(t, pending.Decide(start).Step, challenge.Present)
	pending.Memory = pending.Memory.After(challenge.Outcome{Step: challenge.Present, At: start})
	shown := pending.Decide(start)
	equal(t, shown.Status.Presented, true)
	equal(t, shown.Step, challenge.Check)
}

func TestRule5_SelfCheckIsRetriedAtTheLatestEveryPeriod(t *testing.T) {
	s, now := flows.NewChallengeState().Processing().Presented().Read("pending", "pending"), start
	var waits []time.Duration
	for range 10 {
		equal(t, s.Decide(now).Step, challenge.Check)
		s.Memory = s.Memory.Started(challenge.Check, now).After(challenge.Outcome{
			Step: challenge.Check, At: now, Failure: acmeflow.NewFault(fault.ClassSelfCheck, "ns1.example.net. answers NXDOMAIN"),
		})
		a := s.Decide(now)
		if a.Status != nil {
			s = s.With(func(c *acmev1.Challenge) { c.Status = *a.Status })
		}
		waits = append(waits, a.Wake.Sub(now))
		now = a.Wake
	}
	ms := time.Millisecond
	equal(t, waits, []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 10000 * ms, 10000 * ms, 10000 * ms, 10000 * ms})
	equal(t, s.Challenge.Status.Reason, "Waiting for DNS-01 challenge propagation: ns1.example.net. answers NXDOMAIN; retried every 10s")

	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Check, At: now})
	equal(t, s.Decide(now).Step, challenge.Accept)
	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Accept, At: now})
	authz := flows.RemoteAuthorization("invalid")
	authz.Challenges[0].Error = flows.Problem("urn:ietf:params:acme:error:unauthorized: wrong TXT record")
	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Fetch, At: now, Authorization: &authz})
	a := s.Decide(now)
	equal(t, a.Status.State, acmev1.Invalid)
	equal(t, a.Status.Reason, "Error accepting authorization: urn:ietf:params:acme:error:unauthorized: wrong TXT record")
}

func TestRule5_WhatIsMissedForLongIsPresentedAgain(t *testing.T) {
	s := flows.NewChallengeState().Processing().Presented().Read("pending", "pending")
	now := start.Add(s.Settings.RepresentAfter)
	s.Memory.Checks, s.Memory.CheckedAt = 40, now.Add(-s.Settings.CheckPeriod)
	equal(t, s.Decide(now).Step, challenge.Present)
	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Present, At: now})
	equal(t, s.Decide(now).Step, challenge.Check)

	parked := s.With(func(c *acmev1.Challenge) { c.Status.Processing = false })
	parked.Memory.PresentTried = time.Time{}
	equal(t, parked.Decide(now).Step, challenge.Check) // a parked one only looks, and wants a slot
	equal(t, parked.Decide(now).Ready, true)
	equal(t, parked.Decide(now.Add(-time.Second)).Ready, false)
	for _, wait := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute} { // ever less often
		parked.Memory = parked.Memory.After(challenge.Outcome{Step: challenge.Present, At: now})
		equal(t, parked.Decide(now.Add(wait-time.Second)).Ready, false)
		now = now.Add(wait)
		equal(t, parked.Decide(now).Ready, true)
	}
}

// TestNothingIsPresentedAfterCleanUp: a valid Challenge that stays says so with its finalizer, after a short wait in
// which most Orders delete it; one that is deleted goes at once, and one that was not cleaned up says nothing.
func TestNothingIsPresentedAfterCleanUp(t *testing.T) {
	s := flows.NewChallengeState().Final(acmev1.Valid)
	s.Memory = s.Memory.Started(challenge.CleanUp, start).After(challenge.Outcome{Step: challenge.CleanUp, At: start})
	soon := s.Decide(start)
	equal(t, soon, challenge.Action{Wake: start.Add(challenge.Lingering)})
	late := s.Decide(soon.Wake)
	equal(t, late.Step, challenge.RemoveFinalizer)
	equal(t, late.Status.Presented, false)
	equal(t, late.Status.State, acmev1.Valid)
	deleted := s.Deleted().Decide(start)
	equal(t, deleted, challenge.Action{Step: challenge.RemoveFinalizer})
}

func TestRule6_EveryFinalStateFreesTheSlotWithTheSameWrite(t *testing.T) {
	for status, state := range map[acme.Status]acmev1.State{
		"valid": acmev1.Valid, "invalid": acmev1.Invalid, "expired": acmev1.Expired,
		"revoked": acmev1.Errored, "deactivated": acmev1.Errored,
	} {
		a := flows.NewChallengeState().Processing().Presented().Read(status, "pending").Decide(start)
		equal(t, a.Status.State, state)
		equal(t, a.Status.Processing, false)
		if a.Status.Reason == "" {
			t.Errorf("%s has no reason", status)
		}
	}
	// Whatever clean-up does.
	stuck := flows.NewChallengeState().Final(acmev1.Valid)
	stuck.Memory = stuck.Memory.Started(challenge.CleanUp, start).After(challenge.Outcome{
		Step: challenge.CleanUp, At: start, Failure: acmeflow.NewFault(fault.ClassSolver, "no credentials"),
	})
	a := stuck.Decide(start)
	equal(t, a.Status.Processing, false)
	equal(t, a.Event.Reason, acmev1.ChallengeReasonCleanUpError)
	limit := start.Add(10 * time.Minute)
	equal(t, stuck.Decide(limit).Step, challenge.CleanUp) // the last try
	stuck.Memory = stuck.Memory.Started(challenge.CleanUp, limit).After(challenge.Outcome{
		Step: challenge.CleanUp, At: limit, Failure: acmeflow.NewFault(fault.ClassSolver, "no credentials"),
	})
	end := stuck.Decide(limit)
	equal(t, end.Step, challenge.RemoveFinalizer)
	equal(t, end.Event.Reason, acmev1.ChallengeReasonCleanUpAbandoned)
	if !strings.Contains(end.Event.Message, "the TXT record of _acme-challenge.a.example.com") {
		t.Errorf("the event does not say what is left behind: %s", end.Event.Message)
	}
	stuck = stuck.With(func(c *acmev1.Challenge) {
		c.Spec.Type, c.Spec.AccountLabel = acmev1.ChallengeTypeDNSAccount01, "ujmmovf2vn55tgye"
	})
	end = stuck.Decide(start.Add(10 * time.Minute))
	if !strings.Contains(end.Event.Message, "the TXT record of _ujmmovf2vn55tgye._acme-challenge.a.example.com") {
		t.Errorf("the event does not say what is left behind: %s", end.Event.Message)
	}
}

// TestNothingIsLeftWhereNoZoneIs: a name without a zone is given up at once, but not if
// there was a zone before, nor if DNS only does not answer.
func TestNothingIsLeftWhereNoZoneIs(t *testing.T) {
	nowhere, silent := flows.NoZone(), acmeflow.NewFault(fault.ClassSolver, "no answer")
	for _, c := range []struct {
		present, cleanUp *fault.Fault
		want             challenge.Step
	}{{nowhere, nowhere, challenge.RemoveFinalizer}, {nowhere, silent, challenge.Wait}, {silent, nowhere, challenge.Wait}} {
		s := flows.NewChallengeState().Processing().Read("pending", "pending")
		s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Present, At: start, Failure: c.present})
		s = s.Deleted()
		equal(t, s.Decide(start).Step, challenge.CleanUp)
		s.Memory = s.Memory.Started(challenge.CleanUp, start).After(challenge.Outcome{Step: challenge.CleanUp, At: start, Failure: c.cleanUp})
		equal(t, s.Decide(start).Step, c.want)
		equal(t, s.Presented().Decide(start).Step, challenge.Wait)
	}
}

func TestASilentCAHoldsNoSlot(t *testing.T) {
	s := flows.NewChallengeState().Processing()
	s.Memory = s.Memory.Started(challenge.Fetch, start)
	early := s.Decide(start.Add(time.Second))
	equal(t, early.Yield, false)
	equal(t, early.Wake, start.Add(s.Settings.YieldAfter))
	late := s.Decide(start.Add(s.Settings.YieldAfter))
	equal(t, late.Yield, true)
	equal(t, late.NotBefore.After(start.Add(time.Minute)), true) // not started again meanwhile
}

func TestWaitInsteadOfSelfCheck(t *testing.T) {
	s := flows.NewChallengeState().Processing().Read("pending", "pending").With(func(c *acmev1.Challenge) {
		c.Spec.Solver.WaitInsteadOfSelfCheck = &metav1.Duration{Duration: 30 * time.Second}
	})
	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Present, At: start})
	a := s.Decide(start)
	equal(t, a.Status.Reason, "Waiting 30s before accepting DNS-01 challenge without self-check")
	equal(t, a.Wake, start.Add(30*time.Second))
	s = s.With(func(c *acmev1.Challenge) { c.Status = *a.Status })
	equal(t, s.Decide(a.Wake).Step, challenge.Accept)
}

func TestDeletedMidFlightIsCleanedUpBeforeTheFinalizerGoes(t *testing.T) {
	s := flows.NewChallengeState().Processing().Read("pending", "pending").Deleted()
	s.Memory = s.Memory.Started(challenge.Present, start)
	a := s.Decide(start)
	equal(t, a.Step, challenge.Wait) // Present may still act
	equal(t, a.Status.Processing, false)
	s = s.With(func(c *acmev1.Challenge) { c.Status = *a.Status })
	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Present, At: start})
	equal(t, s.Decide(start).Step, challenge.CleanUp)
	restarted := s
	restarted.Memory = challenge.Memory{}
	equal(t, restarted.Decide(start).Step, challenge.CleanUp)
	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.CleanUp, At: start})
	equal(t, s.Decide(start).Step, challenge.RemoveFinalizer)
}

// TestAForgottenAcceptIsRepeated: a CA that has said yes and does nothing for minutes is told
// again, for RFC 8555 §8.2 lets a client do so. One that is parked wants a slot for that, and
// looks on.
func TestAForgottenAcceptIsRepeated(t *testing.T) {
	for _, processing := range []bool{true, false} {
		s := flows.NewChallengeState().Processing().Read("pending", "pending").Presented()
		s.Memory.Passed = start
		s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Accept, At: start})
		if !processing {
			s = s.With(func(c *acmev1.Challenge) { c.Status = challenge.Park(c.Status, time.Time{}) })
		}
		now := start
		var a challenge.Action
		for a = s.Decide(now); a.Step != challenge.Accept && !a.Ready && now.Before(start.Add(time.Hour)); a = s.Decide(now) {
			if a.Step == challenge.Wait {
				now = a.Wake
				continue
			}
			authz := flows.RemoteAuthorization("pending")
			s.Memory = s.Memory.After(challenge.Outcome{Step: a.Step, At: now, Authorization: &authz})
		}
		equal(t, a.Step == challenge.Accept, processing)
		equal(t, a.Ready && a.Wake.After(now), !processing)
		equal(t, now.Sub(start) > 4*time.Minute && now.Sub(start) < 6*time.Minute, true)
	}
}

// The limit of clean-up is counted from the first try, however long that takes to come back.
func TestCleanUpIsBoundedFromItsFirstTry(t *testing.T) {
	s := flows.NewChallengeState().Final(acmev1.Invalid)
	noAnswer := acmeflow.NewFault(fault.ClassSolver, "no answer")
	back := start.Add(90 * time.Second)
	s.Memory = s.Memory.Started(challenge.CleanUp, start).After(challenge.Outcome{Step: challenge.CleanUp, At: back, Failure: noAnswer})
	s.Memory = s.Memory.Started(challenge.CleanUp, back).After(challenge.Outcome{Step: challenge.CleanUp, At: back, Failure: noAnswer})
	limit := start.Add(s.Settings.CleanUpLimit)
	equal(t, s.Decide(limit.Add(-time.Second)).Step, challenge.CleanUp)
	equal(t, s.Decide(limit).Step, challenge.CleanUp) // the last try
	s.Memory = s.Memory.Started(challenge.CleanUp, limit).After(challenge.Outcome{Step: challenge.CleanUp, At: limit, Failure: noAnswer})
	equal(t, s.Decide(limit).Step, challenge.RemoveFinalizer)
}

func TestMendedCredentialIsTriedAtOnce(t *testing.T) {
	s := flows.NewChallengeState().Processing().Read("pending", "pending")
	for range 9 {
		s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Present, At: start, Failure: acmeflow.NewFault(fault.ClassSolver, "bad key")})
	}
	equal(t, s.Decide(start.Add(time.Minute)).Step, challenge.Wait)
	mended := s
	mended.Memory = s.Memory.CredentialChanged()
	equal(t, mended.Decide(start.Add(time.Minute)).Step, challenge.Present)
	// What the CA has said has nothing to do with it.
	s = flows.NewChallengeState().Processing()
	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Fetch, At: start, Failure: acmeflow.NewFault(fault.ClassRateLimited, "too many")})
	s.Memory = s.Memory.CredentialChanged()
	equal(t, s.Decide(start).Step, challenge.Wait)
}

// TestAFailedChallengeKeepsItsReason: once it is cleaned up, it still says why it has failed.
func TestAFailedChallengeKeepsItsReason(t *testing.T) {
	s := flows.NewChallengeState()
	s.Challenge.Status = acmev1.ChallengeStatus{State: acmev1.Invalid, Reason: "CAA forbids it", FailureClass: "Validation"}
	s.Memory.Presented, s.Memory.CleanedUp = start, true
	if a := s.Decide(start); a.Status != nil {
		t.Errorf("it is written anew: %+v", a.Status)
	}
}

func TestNamesOfSteps(t *testing.T) {
	for s := challenge.Wait; s <= challenge.Done; s++ {
		if name := s.String(); name == "" || name[len(name)-1] == ')' {
			t.Errorf("step %d is called %q", int(s), name)
		}
	}
}
