package acmeflow

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/selection"
)

func newChallengeState() ChallengeState {
	c, err := buildChallenge(newOrderObject(), storedAuthorization(remoteAuthorization("pending")), selection.For(nil, readyIssuer().Solvers), AccountState{Thumbprint: "thumb"})
	if err != nil {
		panic(err)
	}
	c.CreationTimestamp = metav1.NewTime(start)
	return ChallengeState{Challenge: c, Issuer: readyIssuer(), Account: AccountState{Thumbprint: "thumb", URL: "ca/acct/1"}, Settings: DefaultSettings()}
}

// with changes a copy of the Challenge.
func (s ChallengeState) with(f func(*acmev1.Challenge)) ChallengeState {
	s.Challenge = s.Challenge.DeepCopy()
	f(s.Challenge)
	return s
}

// read lets the process remember the authorization, with the challenge in a status.
func (s ChallengeState) read(authorization, challenge acme.Status) ChallengeState {
	a := remoteAuthorization(authorization)
	a.Challenges[0].Status = challenge
	s.Memory.Authorization, s.Memory.FetchedAt = &a, start
	s.Memory = s.Memory.sawWhetherItValidates()
	return s
}

func (s ChallengeState) processing() ChallengeState {
	return s.with(func(c *acmev1.Challenge) { c.Status.Processing = true })
}

func (s ChallengeState) presented() ChallengeState {
	return s.with(func(c *acmev1.Challenge) {
		at := metav1.NewTime(start)
		c.Status.State, c.Status.Presented, c.Status.PresentedAt = acmev1.Pending, true, &at
	})
}

// limited makes the solver do something once the self check has failed for a minute.
func (s ChallengeState) limited(then acmev1.SelfCheckDeadlineAction) ChallengeState {
	return s.with(func(c *acmev1.Challenge) {
		c.Spec.Solver.SelfCheckDeadline = &acmev1.SelfCheckDeadline{After: metav1.Duration{Duration: time.Minute}, Then: then}
	})
}

func (s ChallengeState) deleted() ChallengeState {
	return s.with(func(c *acmev1.Challenge) {
		at := metav1.NewTime(start)
		c.DeletionTimestamp = &at
	})
}

func (s ChallengeState) final(state acmev1.State) ChallengeState {
	return s.presented().with(func(c *acmev1.Challenge) { c.Status.State, c.Status.Reason = state, "because" })
}

func (s ChallengeState) bare() ChallengeState {
	return s.with(func(c *acmev1.Challenge) { c.Finalizers = nil })
}

func challengeSituations() []situation[ChallengeState] {
	queued := newChallengeState()
	running := queued.processing()
	synced := running.read("pending", "pending")
	shown := synced.presented()
	unwritten := synced
	unwritten.Memory.Presented, unwritten.Memory.PresentTried, unwritten.Memory.Touched = start, start, true
	failing := shown
	failing.Memory.Checks, failing.Memory.CheckedAt, failing.Memory.NotYet = 5, start, "ns1 says NXDOMAIN"
	passed := shown
	passed.Memory.Passed = start
	warned := passed
	warned.Memory.Warning = "the record expires"
	changing := passed
	changing.Account.Changing = true
	outdated := passed
	outdated.Account.Thumbprint = "that of the key that took its place"
	persistent := shown.with(func(c *acmev1.Challenge) { c.Spec.Type = acmev1.ChallengeTypeDNSPersist01 })
	parked := queued.presented().read("pending", "pending")
	parkedFailing := parked
	parkedFailing.Memory = failing.Memory
	parkedPassed := parked
	parkedPassed.Memory.Passed = start
	accepted := shown
	accepted.Memory.Accepted = start.Add(-time.Millisecond)
	refused := shown.read("pending", "pending")
	refused.Memory.Refusal = failure(fault.ClassRefused, "refused")
	waiting := shown.with(func(c *acmev1.Challenge) {
		c.Spec.Solver.WaitInsteadOfSelfCheck = &metav1.Duration{Duration: 30 * time.Second}
	})
	settling := passed
	settling.Memory.SettleTime, settling.Memory.Zone = 20*time.Second, "example.com."
	settled := passed.with(func(c *acmev1.Challenge) { c.Spec.Solver.SettleTime = &metav1.Duration{Duration: 10 * time.Minute} })
	brief := passed.with(func(c *acmev1.Challenge) { c.Spec.Solver.SettleTime = &metav1.Duration{Duration: time.Second} })
	settlingName := settling
	settlingName.Memory.Zone = ""
	parkedSettling := parkedPassed
	parkedSettling.Memory.SettleTime, parkedSettling.Memory.Zone = 20*time.Second, "example.com."
	retried := accepted.read("pending", "processing")
	retried.Memory.Authorization.Challenges[0].Error = problem("dns: SERVFAIL")
	left := accepted.read("pending", "pending")
	left.Memory.Authorization.Challenges[0].Error, left.Memory.Polls = problem("dns: SERVFAIL"), 2
	legacy := running.with(func(c *acmev1.Challenge) { c.Finalizers = []string{acmev1.ChallengeFinalizerLegacy} })
	forged := queued
	forged.Untrusted = "No Order controls it"
	cleaned := queued.final(acmev1.Invalid)
	cleaned.Memory.CleanedUp = true
	uncleaned := shown
	uncleaned.Memory.CleanUpSince, uncleaned.Memory.Failures = start, 1
	uncleaned.Memory.Failed, uncleaned.Memory.Failure = ChallengeCleanUp, failure(fault.ClassSolver, "connection refused")
	validated := queued.final(acmev1.Valid)
	validated.Memory.CleanedUp, validated.Memory.CleanUpSince = true, start
	return []situation[ChallengeState]{
		{"queued", queued},
		{"started", running},
		{"queued, nobody vouches", forged},
		{"started, nobody vouches", forged.processing()},
		{"presented, nobody vouches", forged.processing().presented()},
		{"parked, nobody vouches", forged.presented()},
		{"errored, nobody vouched", forged.with(func(c *acmev1.Challenge) { c.Status.State = acmev1.Errored })},
		{"errored, nobody vouches any more", forged.final(acmev1.Errored)},
		{"deleted while queued, nobody vouches", forged.deleted()},
		{"errored and deleted, nobody vouched", forged.with(func(c *acmev1.Challenge) { c.Status.State = acmev1.Errored }).deleted()},
		{"started, with the legacy finalizer", legacy},
		{"synced: pending", synced},
		{"synced: valid", running.read("valid", "valid")},
		{"synced: invalid", running.read("invalid", "invalid")},
		{"synced: expired", running.read("expired", "pending")},
		{"synced: deactivated", running.read("deactivated", "pending")},
		{"synced: revoked", running.read("revoked", "pending")},
		{"synced: the challenge is invalid", running.read("pending", "invalid")},
		{"synced: the challenge is gone", challengeGone(synced)},
		{"synced: validating already", running.read("pending", "processing")},
		{"presented, not stored", unwritten},
		{"presented", shown},
		{"presented, after a restart", running.presented()},
		{"self check keeps failing", failing},
		{"self check passed", passed},
		{"self check passed and warns", warned},
		{"self check passed, the account's key is being replaced", changing},
		{"self check passed, the account's key was replaced", outdated},
		{"persistent, deleted", persistent.deleted()},
		{"waits instead of self check", waiting},
		{"parked", parked},
		{"parked, after a restart", queued.presented()},
		{"parked, self check passed", parkedPassed},
		{"accepted", accepted},
		{"accept was refused, the CA shows pending", refused},
		{"valid", queued.final(acmev1.Valid)},
		{"valid, cleaned up", validated},
		{"invalid", queued.final(acmev1.Invalid)},
		{"invalid, cleaned up", cleaned},
		{"invalid, still processing (from elsewhere)", queued.final(acmev1.Invalid).processing()},
		{"valid without presenting", queued.with(func(c *acmev1.Challenge) { c.Status.State = acmev1.Valid })},
		{"final without finalizer", queued.final(acmev1.Valid).bare()},
		{"deleted while queued", queued.deleted()},
		{"deleted while presented", shown.deleted()},
		{"deleted while started", running.deleted()},
		{"deleted without finalizer", queued.deleted().bare()},
		{"deleted while presented, and replaced", replaced(shown.deleted())},
		{"deleted, clean-up has failed, and replaced", replaced(uncleaned.deleted())},
		{"deleted while queued, and replaced", replaced(queued.deleted())},
		{"self check passed, the zone is slow", settling},
		{"self check passed, the name is slow", settlingName},
		{"self check passed, a long settle time", settled},
		{"self check passed, a short settle time", brief},
		{"parked, self check passed, the zone is slow", parkedSettling},
		{"accepted, the CA tries again", retried},
		{"accepted, the CA leaves a failed one pending", left},
		{"presented, with a deadline", shown.limited(acmev1.SelfCheckDeadlineAccept)},
		{"self check keeps failing, then accept", failing.limited(acmev1.SelfCheckDeadlineAccept)},
		{"self check keeps failing, then fail", failing.limited(acmev1.SelfCheckDeadlineFail)},
		{"self check passed in time", passed.limited(acmev1.SelfCheckDeadlineFail)},
		{"parked, then accept", parkedFailing.limited(acmev1.SelfCheckDeadlineAccept)},
		{"parked, then fail", parkedFailing.limited(acmev1.SelfCheckDeadlineFail)},
	}
}

func replaced(s ChallengeState) ChallengeState {
	s.Replaced = true
	return s
}

func challengeGone(s ChallengeState) ChallengeState {
	a := *s.Memory.Authorization
	a.Challenges = nil
	s.Memory.Authorization = &a
	return s
}

func challengeTrial() trial[ChallengeState, ChallengeMemory, ChallengeAction] {
	return trial[ChallengeState, ChallengeMemory, ChallengeAction]{
		name: "DecideChallenge", file: "challenges.txt", situations: challengeSituations(),
		environments: append(environments(), environment{name: "namespace terminating", deleting: true, after: time.Millisecond}),
		in: func(s ChallengeState, e environment) ChallengeState {
			e.apply(&s.Issuer, &s.Account)
			s.NamespaceTerminating = e.deleting
			return s
		},
		decide: DecideChallenge, text: ChallengeAction.text, check: checkChallengeInvariants,
		memory: func(s *ChallengeState) *ChallengeMemory { return &s.Memory },
		step: func(a ChallengeAction) string {
			if !a.Step.External() {
				return ""
			}
			return a.Step.String()
		},
		started: func(m ChallengeMemory, a ChallengeAction) ChallengeMemory { return m.Started(a.Step, start) },
		failed: func(m ChallengeMemory, a ChallengeAction, f *fault.Fault) ChallengeMemory {
			return m.After(ChallengeOutcome{Step: a.Step, At: start, Jitter: 0.5, Failure: f})
		},
	}
}

func TestChallengeTable(t *testing.T) { challengeTrial().run(t) }

// checkChallengeInvariants holds one decision against what must always be true.
func checkChallengeInvariants(t *testing.T, s ChallengeState, a ChallengeAction, now time.Time, where func() string) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s: %s\n%s", where(), fmt.Sprintf(format, args...), a.text(now))
	}
	stored, ended := s.Challenge.Status, s.Challenge.Status.State.IsFinal() || s.Challenge.DeletionTimestamp != nil
	switch {
	case strings.HasPrefix(a.Step.String(), "ChallengeStep("):
		fail("the step has no name")
	case a.Step == ChallengeWait && !a.Wake.IsZero() && !a.Wake.After(now):
		fail("it wakes in the past: a busy loop")
	case s.Untrusted != "" && a.Step.External() && (a.Step != ChallengeCleanUp || !stored.Processing && !stored.Presented && stored.State != acmev1.Pending && !s.Memory.Touched):
		fail("a call is made for a Challenge that nobody vouches for")
	case a.Step.External() && s.Memory.Running != ChallengeWait:
		fail("a second call while one is under way")
	case (a.Step == ChallengePresent || a.Step == ChallengeAccept) && (!stored.Processing || ended):
		fail("something is changed outside without a slot")
	case (a.Step == ChallengeFetch || a.Step == ChallengeAccept) &&
		(s.Issuer.Readiness != IssuerReady || now.Before(s.Account.ParkedUntil)):
		fail("the CA is called though it must not be")
	case a.Yield && !stored.Processing, a.Ready && stored.Processing:
		fail("it tells the scheduler nonsense")
	case !ended && s.Untrusted == "" && !stored.Processing && !stored.Presented && stored.State == acmev1.Unknown &&
		s.Memory.Authorization == nil && s.Memory.Failure == nil && s.Memory.Presented.IsZero() && (a.Step != ChallengeWait || a.Status != nil):
		fail("a queued challenge does something")
	}
	checkRewordedChallenge(t, s, a, now, fail)
	if next := a.Status; next != nil {
		if next.FailureClass != "" && (next.Reason == "" || !slices.Contains(shownClasses(), fault.Class(next.FailureClass))) {
			fail("the class %q without a reason, or not one that is shown", next.FailureClass)
		}
		if next.State.IsFailure() && !stored.State.IsFinal() && next.FailureClass == "" {
			fail("a failure without a class")
		}
		if next.State.IsFinal() && next.Processing {
			fail("a final state holds its slot")
		}
		if stored.State.IsFinal() && next.State != stored.State {
			fail("a final state is left")
		}
		if next.Processing && !stored.Processing {
			fail("only the scheduler sets processing")
		}
		if apiequality.Semantic.DeepEqual(*next, stored) {
			fail("an unchanged status is written")
		}
		s = s.with(func(c *acmev1.Challenge) { c.Status = *next })
		if again := DecideChallenge(s, now); again.Status != nil && a.Step != ChallengeRemoveFinalizer {
			fail("the same status is not stable: then it writes %q", again.Status.Reason)
		}
	}
	waits := a.Step == ChallengeWait && a.Wake.IsZero() && a.Status == nil
	held := !stored.Processing || a.Yield // the scheduler, or whoever wants the slot, decides
	if waits && s.Memory.Running == ChallengeWait && s.Issuer.Readiness == IssuerReady && !held {
		fail("it holds a slot and waits for nothing")
	}
}

// TestChallengeTotality enumerates states that no sane history leads to.
func TestChallengeTotality(t *testing.T) {
	t.Parallel()
	n, turn, x := 0, 0, challengeTrial()
	states := []acmev1.State{"", "valid", "ready", "pending", "processing", "invalid", "expired", "errored", "nonsense"}
	for _, stored := range states {
		for _, authorization := range []acme.Status{"", "pending", "valid", "invalid", "expired", "revoked", "nonsense"} {
			for _, remote := range []acme.Status{"pending", "processing", "valid", "invalid", "nonsense"} {
				if authorization == "" && remote != "pending" {
					continue // nothing was read
				}
				for fill := range 384 {
					if fill > 127 && fill&12 != 0 {
						continue // what is to be deleted waits for nothing
					}
					s := fillChallenge(fill).with(func(c *acmev1.Challenge) { c.Status.State = stored })
					if authorization != "" {
						s = s.read(authorization, remote)
					}
					e := x.environments[turn%len(x.environments)]
					turn++
					n += x.examine(t, s, fill%16 == 1, []environment{e}, func() string {
						return fmt.Sprintf("stored %q, remote %q/%q, fill %b", stored, authorization, remote, fill)
					})
				}
			}
		}
	}
	if n < 50_000 {
		t.Fatalf("only %d states were enumerated", n)
	}
}

func fillChallenge(fill int) ChallengeState {
	s := newChallengeState()
	if fill&1 != 0 {
		s = s.processing()
	}
	if fill&2 != 0 {
		s = s.presented()
	}
	if fill&4 != 0 {
		s = s.deleted()
	}
	if fill&8 != 0 {
		s = s.bare()
	}
	if fill&16 != 0 {
		s.Memory.Passed = start
	}
	if fill&32 != 0 {
		s.Memory.Accepted = start
	}
	if fill&64 != 0 {
		s.Memory.Checks, s.Memory.CheckedAt, s.Memory.NotYet = 4, start, "not yet"
	}
	if then := []acmev1.SelfCheckDeadlineAction{"", acmev1.SelfCheckDeadlineAccept, acmev1.SelfCheckDeadlineFail}[fill>>7]; then != "" {
		s = s.limited(then)
		s.Memory.SettleTime = time.Minute
	}
	return s
}
