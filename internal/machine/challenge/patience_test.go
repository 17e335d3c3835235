package challenge_test

import (
	"fmt"
	"os"
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

// checked is a Challenge whose self check has passed, and what came of it.
func checked(change func(*acmev1.Challenge), o challenge.Outcome) flows.ChallengeState {
	s := flows.NewChallengeState().Processing().Presented().Read("pending", "pending").With(change)
	o.Step, o.At = challenge.Check, start
	s.Memory = s.Memory.Started(challenge.Check, start).After(o)
	return s
}

func settleTime(d time.Duration) func(*acmev1.Challenge) {
	return func(c *acmev1.Challenge) { c.Spec.Solver.SettleTime = &metav1.Duration{Duration: d} }
}

func unchanged(*acmev1.Challenge) {}

// TestSettleTime: the longer one of what the solver wants and what was learned of the zone is
// waited for, in the slot, and said in one write; the CA is told then.
func TestSettleTime(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		own, learned, wait time.Duration
		reason             string
	}{
		{0, 0, 0, ""},
		{2 * s, 0, 2 * s, ""}, // not worth a write
		{30 * s, 0, 30 * s, "The self check has passed; the ACME server is told at 2026-01-01T00:00:30Z, after a settle time of 30s"},
		{30 * s, 5 * s, 30 * s, "The self check has passed; the ACME server is told at 2026-01-01T00:00:30Z, after a settle time of 30s"},
		{0, 5 * s, 5 * s, "The self check has passed; the ACME server is told at 2026-01-01T00:00:05Z, since its last check of this zone failed though ours had passed"},
		{5 * s, 120 * s, 120 * s, "The self check has passed; the ACME server is told at 2026-01-01T00:02:00Z, since its last check of this zone failed though ours had passed"},
	} {
		state := checked(settleTime(c.own), challenge.Outcome{SettleTime: c.learned})
		state.Memory.Zone = "example.com."
		if a := state.Decide(start); c.wait > 0 {
			equal(t, []any{a.Step, a.Wake, a.Yield, a.NotBefore}, []any{challenge.Wait, start.Add(c.wait), false, start.Add(c.wait)})
			equal(t, a.Status != nil, c.reason != "")
			if a.Status != nil {
				equal(t, a.Status.Reason, c.reason)
				state = state.With(func(ch *acmev1.Challenge) { ch.Status = *a.Status })
			}
			early := state.Decide(start.Add(c.wait - 1))
			equal(t, []any{early.Step, early.Status == nil}, []any{challenge.Wait, true})
		}
		late := state.Decide(start.Add(c.wait))
		equal(t, []any{late.Step, late.Status == nil}, []any{challenge.Accept, true})
	}
}

// TestALongSettleTimeHoldsNoSlot: who asks for ten minutes gets them, but others work meanwhile;
// it is first in line when they are over.
func TestALongSettleTimeHoldsNoSlot(t *testing.T) {
	s := checked(settleTime(10*time.Minute), challenge.Outcome{})
	equal(t, s.Decide(start).Yield, true)
	equal(t, s.Decide(start.Add(8*time.Minute)).Yield, false)
	parked := s.With(func(c *acmev1.Challenge) { c.Status = challenge.Park(c.Status, time.Time{}) })
	a := parked.Decide(start)
	equal(t, []any{a.Ready, a.Wake}, []any{false, start.Add(10 * time.Minute)})
	equal(t, parked.Decide(a.Wake).Ready, true)
}

// TestContradictsSelfCheck: only a validation that failed after a self check that had passed says something
// about how soon others see an answer.
func TestContradictsSelfCheck(t *testing.T) {
	passed := checked(unchanged, challenge.Outcome{}).Memory
	for _, c := range []struct {
		m    challenge.Memory
		s    acmev1.State
		said acme.Code
		want bool
	}{
		{passed, acmev1.Invalid, acme.CodeUnauthorized, true},
		{passed, acmev1.Invalid, acme.CodeDNS, true},
		{passed, acmev1.Invalid, "", true},
		{passed, acmev1.Invalid, acme.CodeCAA, false},
		{passed, acmev1.Invalid, acme.CodeServerInternal, false},
		{passed, acmev1.Valid, "", false},
		{passed, acmev1.Expired, "", false},
		{passed, acmev1.Errored, acme.CodeUnauthorized, false},
		{challenge.Memory{}, acmev1.Invalid, acme.CodeUnauthorized, false},
	} {
		authz := flows.RemoteAuthorization("invalid")
		if c.said != "" {
			authz.Challenges[0].Error = &acme.Problem{Type: c.said.Type(), Detail: "no TXT record"}
		}
		c.m.Authorization = &authz
		ended := flows.NewChallengeState().Final(c.s).Challenge
		equal(t, c.m.ContradictsSelfCheck(ended), c.want)
	}
}

// TestACATriesAgainByItself (RFC 8555 §8.2): a challenge that the CA keeps processing, with the
// error of its last try, is polled at the CA's pace, says so once, and is not accepted again.
func TestACATriesAgainByItself(t *testing.T) {
	s := checked(unchanged, challenge.Outcome{})
	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Accept, At: start})
	now, writes, polls := start, 0, 0
	for now.Before(start.Add(time.Hour)) {
		a := s.Decide(now)
		if a.Status != nil {
			writes++
			s = s.With(func(c *acmev1.Challenge) { c.Status = *a.Status })
			equal(t, a.Status.Reason, "The ACME server has not validated the answer yet, and is trying again: dns: SERVFAIL")
			equal(t, a.Status.State, acmev1.Pending)
		}
		if a.Step == challenge.Wait {
			if polls > 0 {
				equal(t, a.Wake.Sub(now), 30*time.Second)
			}
			now = a.Wake
			continue
		}
		equal(t, a.Step, challenge.Fetch)
		polls++
		authz := flows.RemoteAuthorization("pending")
		authz.Challenges[0].Status, authz.Challenges[0].Error, authz.RetryAfter = "processing", flows.Problem("dns: SERVFAIL"), 30*time.Second
		s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Fetch, At: now, Authorization: &authz})
	}
	equal(t, []any{writes, polls > 100}, []any{1, true})
	authz := flows.RemoteAuthorization("valid")
	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Fetch, At: now, Authorization: &authz})
	equal(t, s.Decide(now).Status.State, acmev1.Valid)
}

// TestSelfCheckDeadline: the time counts from what is stored, so that a process that has just
// started looks once and then acts; the moment itself is a wake-up; a parked one gets a slot first.
func TestSelfCheckDeadline(t *testing.T) {
	not := challenge.Outcome{Failure: acmeflow.NewFault(fault.ClassSelfCheck, "ns1 says NXDOMAIN")}
	within := func(then acmev1.SelfCheckDeadlineAction) flows.ChallengeState {
		return checked(unchanged, not).Limited(then)
	}
	accept, end := within(acmev1.SelfCheckDeadlineAccept), start.Add(time.Minute)
	accept.Memory.Checks, accept.Memory.CheckedAt = 9, end.Add(-time.Second)
	a := accept.Decide(end.Add(-time.Second))
	equal(t, a.Wake, end)
	equal(t, a.Status.Reason, "Waiting for DNS-01 challenge propagation: ns1 says NXDOMAIN; retried every 10s until 2026-01-01T00:01:00Z")
	a = accept.Decide(end)
	const said = "The self check has failed for 1m0s; the ACME server is told all the same: ns1 says NXDOMAIN"
	equal(t, []any{a.Step, a.Status.Reason, a.Event.Reason, a.Event.Message}, []any{challenge.Accept, said, acmev1.ChallengeReasonSelfCheckDeadline, said})
	told := accept.With(func(c *acmev1.Challenge) { c.Status = *a.Status })
	again := told.Decide(end)
	equal(t, []any{again.Step, again.Status == nil, again.Event == nil}, []any{challenge.Accept, true, true})

	parked := accept.With(func(c *acmev1.Challenge) { c.Status = challenge.Park(c.Status, time.Time{}) })
	equal(t, parked.Decide(end).Ready, true)

	restarted := accept.Read("pending", "pending")
	restarted.Memory = challenge.Memory{Authorization: restarted.Memory.Authorization, FetchedAt: end}
	equal(t, restarted.Decide(end).Step, challenge.Check)
	restarted.Memory = restarted.Memory.After(challenge.Outcome{Step: challenge.Check, At: end, Failure: not.Failure})
	equal(t, restarted.Decide(end).Step, challenge.Accept)

	f := within(acmev1.SelfCheckDeadlineFail).Decide(end)
	equal(t, []any{f.Status.State, f.Status.Reason, f.Status.Processing}, []any{acmev1.Errored, "The self check has failed for 1m0s: ns1 says NXDOMAIN", false})
	equal(t, f.Status.FailureClass, fault.ClassValidation)
}

// TestWithoutADeadlineTheSelfCheckGoesOn (mission rule 5).
func TestWithoutADeadlineTheSelfCheckGoesOn(t *testing.T) {
	s := checked(unchanged, challenge.Outcome{Failure: acmeflow.NewFault(fault.ClassSelfCheck, "no")})
	s.Memory.Checks, s.Memory.PresentTried = 8000, start.Add(23*time.Hour)
	equal(t, s.Decide(start.Add(23*time.Hour)).Step, challenge.Check)
}

// TestRule3_ANameIsHeldWhileTheCAValidates: a Challenge that was accepted and has no result after half a minute may
// give up its slot, and holds its name for ten minutes. Then it ends, unless it has its slot still.
func TestRule3_ANameIsHeldWhileTheCAValidates(t *testing.T) {
	silent := checked(unchanged, challenge.Outcome{})
	equal(t, silent.Decide(start).HoldsUntil, time.Time{})
	silent.Memory = silent.Memory.Started(challenge.Accept, start)
	until := start.Add(10 * time.Minute)
	equal(t, silent.Decide(start).HoldsUntil, until) // the CA may have it, although it has not answered

	for class, holds := range map[fault.Class]bool{fault.ClassUnavailable: true, fault.ClassRateLimited: false, fault.ClassNotProcessed: false} {
		lost := silent
		lost.Memory = lost.Memory.After(challenge.Outcome{Step: challenge.Accept, At: start.Add(time.Second), Failure: acmeflow.NewFault(class, "no")})
		equal(t, lost.Decide(start.Add(time.Second)).HoldsUntil.Equal(until), holds)
	}

	told := silent
	told.Memory = told.Memory.After(challenge.Outcome{Step: challenge.Accept, At: start.Add(time.Second)}).Started(challenge.Fetch, start.Add(time.Second))
	answered := told // that it validates still
	answered.Memory = answered.Memory.After(challenge.Outcome{
		Step: challenge.Fetch, At: start.Add(30*time.Second - time.Millisecond), Authorization: silent.Memory.Authorization,
	})
	equal(t, answered.Decide(start.Add(30*time.Second-1)).Yield, false)
	equal(t, answered.Decide(start.Add(30*time.Second)).Yield, true)
	a := told.Decide(start.Add(31 * time.Second))
	equal(t, []any{a.Yield, a.HoldsUntil}, []any{true, until})
	equal(t, told.Decide(until.Add(time.Hour)).Status == nil, true) // nobody else wants the slot or the name

	parked := told.With(func(c *acmev1.Challenge) { c.Status = challenge.Park(c.Status, a.HoldsUntil) })
	restarted := parked
	restarted.Memory = challenge.Memory{}
	for _, s := range []flows.ChallengeState{parked, restarted} {
		before := s.Decide(until.Add(-time.Second))
		equal(t, []any{before.Status == nil || !before.Status.State.IsFinal(), before.HoldsUntil}, []any{true, until})
		end := s.Decide(until).Status
		equal(t, []any{end.State, end.Processing, end.FailureClass}, []any{acmev1.Errored, false, acmev1.FailureClass(fault.ClassUnavailable)})
	}
	equal(t, parked.Decide(until.Add(-time.Second)).Wake, until)
}

// TestRule3_TheMissionSaysTheNumbers: what the mission says of rule 3 is what is built.
func TestRule3_TheMissionSaysTheNumbers(t *testing.T) {
	text, err := os.ReadFile("../../../docs/mission.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	for _, says := range []string{
		fmt.Sprintf("has no result after %d seconds may give up its place", int(challenge.YieldValidation.Seconds())),
		map[time.Duration]string{10 * time.Minute: "holds its name for ten minutes at most"}[challenge.NameHold],
	} {
		if says == "" || !strings.Contains(words, says) {
			t.Errorf("docs/mission.md does not say %q", says)
		}
	}
}

// TestARefusedCredentialLeavesNothing: what was refused before anything was written is not cleaned up, with the same
// credential, when the solver has been corrected.
func TestARefusedCredentialLeavesNothing(t *testing.T) {
	for class, touched := range map[fault.Class]bool{fault.ClassCredential: false, fault.ClassSolver: true, fault.ClassUnavailable: true} {
		m := challenge.Memory{}.Started(challenge.Present, start).After(challenge.Outcome{Step: challenge.Present, At: start, Failure: acmeflow.NewFault(class, "no")})
		equal(t, m.Touched, touched)
	}
}
