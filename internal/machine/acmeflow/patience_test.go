package acmeflow

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
)

// checked is a Challenge whose self check has passed, and what came of it.
func checked(change func(*acmev1.Challenge), o ChallengeOutcome) ChallengeState {
	s := newChallengeState().processing().presented().read("pending", "pending").with(change)
	o.Step, o.At = ChallengeCheck, start
	s.Memory = s.Memory.Started(ChallengeCheck, start).After(o)
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
		state := checked(settleTime(c.own), ChallengeOutcome{SettleTime: c.learned})
		state.Memory.Zone = "example.com."
		if a := DecideChallenge(state, start); c.wait > 0 {
			equal(t, []any{a.Step, a.Wake, a.Yield, a.NotBefore}, []any{ChallengeWait, start.Add(c.wait), false, start.Add(c.wait)})
			equal(t, a.Status != nil, c.reason != "")
			if a.Status != nil {
				equal(t, a.Status.Reason, c.reason)
				state = state.with(func(ch *acmev1.Challenge) { ch.Status = *a.Status })
			}
			early := DecideChallenge(state, start.Add(c.wait-1))
			equal(t, []any{early.Step, early.Status == nil}, []any{ChallengeWait, true})
		}
		late := DecideChallenge(state, start.Add(c.wait))
		equal(t, []any{late.Step, late.Status == nil}, []any{ChallengeAccept, true})
	}
}

// TestALongSettleTimeHoldsNoSlot: who asks for ten minutes gets them, but others work meanwhile;
// it is first in line when they are over.
func TestALongSettleTimeHoldsNoSlot(t *testing.T) {
	s := checked(settleTime(10*time.Minute), ChallengeOutcome{})
	equal(t, DecideChallenge(s, start).Yield, true)
	equal(t, DecideChallenge(s, start.Add(8*time.Minute)).Yield, false)
	parked := s.with(func(c *acmev1.Challenge) { c.Status = ParkChallenge(c.Status, time.Time{}) })
	a := DecideChallenge(parked, start)
	equal(t, []any{a.Ready, a.Wake}, []any{false, start.Add(10 * time.Minute)})
	equal(t, DecideChallenge(parked, a.Wake).Ready, true)
}

// TestContradictsSelfCheck: only a validation that failed after a self check that had passed says something
// about how soon others see an answer.
func TestContradictsSelfCheck(t *testing.T) {
	passed := checked(unchanged, ChallengeOutcome{}).Memory
	for _, c := range []struct {
		m    ChallengeMemory
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
		{ChallengeMemory{}, acmev1.Invalid, acme.CodeUnauthorized, false},
	} {
		authz := remoteAuthorization("invalid")
		if c.said != "" {
			authz.Challenges[0].Error = &acme.Problem{Type: c.said.Type(), Detail: "no TXT record"}
		}
		c.m.Authorization = &authz
		ended := newChallengeState().final(c.s).Challenge
		equal(t, c.m.ContradictsSelfCheck(ended), c.want)
	}
}

// TestACATriesAgainByItself (RFC 8555 §8.2): a challenge that the CA keeps processing, with the
// error of its last try, is polled at the CA's pace, says so once, and is not accepted again.
func TestACATriesAgainByItself(t *testing.T) {
	s := checked(unchanged, ChallengeOutcome{})
	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengeAccept, At: start})
	now, writes, polls := start, 0, 0
	for now.Before(start.Add(time.Hour)) {
		a := DecideChallenge(s, now)
		if a.Status != nil {
			writes++
			s = s.with(func(c *acmev1.Challenge) { c.Status = *a.Status })
			equal(t, a.Status.Reason, "The ACME server has not validated the answer yet, and is trying again: dns: SERVFAIL")
			equal(t, a.Status.State, acmev1.Pending)
		}
		if a.Step == ChallengeWait {
			if polls > 0 {
				equal(t, a.Wake.Sub(now), 30*time.Second)
			}
			now = a.Wake
			continue
		}
		equal(t, a.Step, ChallengeFetch)
		polls++
		authz := remoteAuthorization("pending")
		authz.Challenges[0].Status, authz.Challenges[0].Error, authz.RetryAfter = "processing", problem("dns: SERVFAIL"), 30*time.Second
		s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengeFetch, At: now, Authorization: &authz})
	}
	equal(t, []any{writes, polls > 100}, []any{1, true})
	authz := remoteAuthorization("valid")
	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengeFetch, At: now, Authorization: &authz})
	equal(t, DecideChallenge(s, now).Status.State, acmev1.Valid)
}

// TestSelfCheckDeadline: the time counts from what is stored, so that a process that has just
// started looks once and then acts; the moment itself is a wake-up; a parked one gets a slot first.
func TestSelfCheckDeadline(t *testing.T) {
	not := ChallengeOutcome{Failure: failure(fault.ClassSelfCheck, "ns1 says NXDOMAIN")}
	within := func(then acmev1.SelfCheckDeadlineAction) ChallengeState {
		return checked(unchanged, not).limited(then)
	}
	accept, end := within(acmev1.SelfCheckDeadlineAccept), start.Add(time.Minute)
	accept.Memory.Checks, accept.Memory.CheckedAt = 9, end.Add(-time.Second)
	a := DecideChallenge(accept, end.Add(-time.Second))
	equal(t, a.Wake, end)
	equal(t, a.Status.Reason, "Waiting for DNS-01 challenge propagation: ns1 says NXDOMAIN; retried every 10s until 2026-01-01T00:01:00Z")
	a = DecideChallenge(accept, end)
	const said = "The self check has failed for 1m0s; the ACME server is told all the same: ns1 says NXDOMAIN"
	equal(t, []any{a.Step, a.Status.Reason, a.Event.Reason, a.Event.Message}, []any{ChallengeAccept, said, acmev1.ChallengeReasonSelfCheckDeadline, said})
	told := accept.with(func(c *acmev1.Challenge) { c.Status = *a.Status })
	again := DecideChallenge(told, end)
	equal(t, []any{again.Step, again.Status == nil, again.Event == nil}, []any{ChallengeAccept, true, true})

	parked := accept.with(func(c *acmev1.Challenge) { c.Status = ParkChallenge(c.Status, time.Time{}) })
	equal(t, DecideChallenge(parked, end).Ready, true)

	restarted := accept.read("pending", "pending")
	restarted.Memory = ChallengeMemory{Authorization: restarted.Memory.Authorization, FetchedAt: end}
	equal(t, DecideChallenge(restarted, end).Step, ChallengeCheck)
	restarted.Memory = restarted.Memory.After(ChallengeOutcome{Step: ChallengeCheck, At: end, Failure: not.Failure})
	equal(t, DecideChallenge(restarted, end).Step, ChallengeAccept)

	f := DecideChallenge(within(acmev1.SelfCheckDeadlineFail), end)
	equal(t, []any{f.Status.State, f.Status.Reason, f.Status.Processing}, []any{acmev1.Errored, "The self check has failed for 1m0s: ns1 says NXDOMAIN", false})
	equal(t, challengeClass(*f.Status), fault.ClassValidation)
}

// TestWithoutADeadlineTheSelfCheckGoesOn (mission rule 5).
func TestWithoutADeadlineTheSelfCheckGoesOn(t *testing.T) {
	s := checked(unchanged, ChallengeOutcome{Failure: failure(fault.ClassSelfCheck, "no")})
	s.Memory.Checks, s.Memory.PresentTried = 8000, start.Add(23*time.Hour)
	equal(t, DecideChallenge(s, start.Add(23*time.Hour)).Step, ChallengeCheck)
}

// TestRule3_ANameIsHeldWhileTheCAValidates: a Challenge that was accepted and has no result after half a minute may
// give up its slot, and holds its name for ten minutes. Then it ends, unless it has its slot still.
func TestRule3_ANameIsHeldWhileTheCAValidates(t *testing.T) {
	silent := checked(unchanged, ChallengeOutcome{})
	equal(t, DecideChallenge(silent, start).HoldsUntil, time.Time{})
	silent.Memory = silent.Memory.Started(ChallengeAccept, start)
	until := start.Add(10 * time.Minute)
	equal(t, DecideChallenge(silent, start).HoldsUntil, until) // the CA may have it, although it has not answered

	for class, holds := range map[fault.Class]bool{fault.ClassUnavailable: true, fault.ClassRateLimited: false, fault.ClassNotProcessed: false} {
		lost := silent
		lost.Memory = lost.Memory.After(ChallengeOutcome{Step: ChallengeAccept, At: start.Add(time.Second), Failure: failure(class, "no")})
		equal(t, DecideChallenge(lost, start.Add(time.Second)).HoldsUntil.Equal(until), holds)
	}

	told := silent
	told.Memory = told.Memory.After(ChallengeOutcome{Step: ChallengeAccept, At: start.Add(time.Second)}).Started(ChallengeFetch, start.Add(time.Second))
	answered := told // that it validates still
	answered.Memory = answered.Memory.After(ChallengeOutcome{
		Step: ChallengeFetch, At: start.Add(30*time.Second - time.Millisecond), Authorization: silent.Memory.Authorization,
	})
	equal(t, DecideChallenge(answered, start.Add(30*time.Second-1)).Yield, false)
	equal(t, DecideChallenge(answered, start.Add(30*time.Second)).Yield, true)
	a := DecideChallenge(told, start.Add(31*time.Second))
	equal(t, []any{a.Yield, a.HoldsUntil}, []any{true, until})
	equal(t, DecideChallenge(told, until.Add(time.Hour)).Status == nil, true) // nobody else wants the slot or the name

	parked := told.with(func(c *acmev1.Challenge) { c.Status = ParkChallenge(c.Status, a.HoldsUntil) })
	restarted := parked
	restarted.Memory = ChallengeMemory{}
	for _, s := range []ChallengeState{parked, restarted} {
		before := DecideChallenge(s, until.Add(-time.Second))
		equal(t, []any{before.Status == nil || !before.Status.State.IsFinal(), before.HoldsUntil}, []any{true, until})
		end := DecideChallenge(s, until).Status
		equal(t, []any{end.State, end.Processing, end.FailureClass}, []any{acmev1.Errored, false, acmev1.FailureClass(fault.ClassUnavailable)})
	}
	equal(t, DecideChallenge(parked, until.Add(-time.Second)).Wake, until)
}

// TestRule3_TheMissionSaysTheNumbers: what the mission says of rule 3 is what is built.
func TestRule3_TheMissionSaysTheNumbers(t *testing.T) {
	text, err := os.ReadFile("../../../docs/mission.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	for _, says := range []string{
		fmt.Sprintf("has no result after %d seconds may give up its place", int(yieldValidation.Seconds())),
		map[time.Duration]string{10 * time.Minute: "holds its name for ten minutes at most"}[nameHold],
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
		m := ChallengeMemory{}.Started(ChallengePresent, start).After(ChallengeOutcome{Step: ChallengePresent, At: start, Failure: failure(class, "no")})
		equal(t, m.Touched, touched)
	}
}
