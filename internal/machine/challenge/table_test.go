package challenge_test

import (
	"fmt"
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

func challengeSituations() flows.Situations[flows.ChallengeState] {
	queued := flows.NewChallengeState()
	running := queued.Processing()
	synced := running.Read("pending", "pending")
	shown := synced.Presented()
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
	persistent := shown.With(func(c *acmev1.Challenge) { c.Spec.Type = acmev1.ChallengeTypeDNSPersist01 })
	parked := queued.Presented().Read("pending", "pending")
	parkedFailing := parked
	parkedFailing.Memory = failing.Memory
	parkedPassed := parked
	parkedPassed.Memory.Passed = start
	accepted := shown
	accepted.Memory.Accepted = start.Add(-time.Millisecond)
	refused := shown.Read("pending", "pending")
	refused.Memory.Refusal = acmeflow.NewFault(fault.ClassRefused, "refused")
	waiting := shown.With(func(c *acmev1.Challenge) {
		c.Spec.Solver.WaitInsteadOfSelfCheck = &metav1.Duration{Duration: 30 * time.Second}
	})
	settling := passed
	settling.Memory.SettleTime, settling.Memory.Zone = 20*time.Second, "example.com."
	settled := passed.With(func(c *acmev1.Challenge) { c.Spec.Solver.SettleTime = &metav1.Duration{Duration: 10 * time.Minute} })
	brief := passed.With(func(c *acmev1.Challenge) { c.Spec.Solver.SettleTime = &metav1.Duration{Duration: time.Second} })
	settlingName := settling
	settlingName.Memory.Zone = ""
	parkedSettling := parkedPassed
	parkedSettling.Memory.SettleTime, parkedSettling.Memory.Zone = 20*time.Second, "example.com."
	retried := accepted.Read("pending", "processing")
	retried.Memory.Authorization.Challenges[0].Error = flows.Problem("dns: SERVFAIL")
	left := accepted.Read("pending", "pending")
	left.Memory.Authorization.Challenges[0].Error, left.Memory.Polls = flows.Problem("dns: SERVFAIL"), 2
	legacy := running.With(func(c *acmev1.Challenge) { c.Finalizers = []string{acmev1.ChallengeFinalizerLegacy} })
	forged := queued
	forged.Untrusted = "No Order controls it"
	cleaned := queued.Final(acmev1.Invalid)
	cleaned.Memory.CleanedUp = true
	uncleaned := shown
	uncleaned.Memory.CleanUpSince, uncleaned.Memory.Failures = start, 1
	uncleaned.Memory.Failed, uncleaned.Memory.Failure = challenge.CleanUp, acmeflow.NewFault(fault.ClassSolver, "connection refused")
	validated := queued.Final(acmev1.Valid)
	validated.Memory.CleanedUp, validated.Memory.CleanUpSince = true, start
	return flows.Situations[flows.ChallengeState]{
		{"queued", queued},
		{"started", running},
		{"queued, nobody vouches", forged},
		{"started, nobody vouches", forged.Processing()},
		{"presented, nobody vouches", forged.Processing().Presented()},
		{"parked, nobody vouches", forged.Presented()},
		{"errored, nobody vouched", forged.With(func(c *acmev1.Challenge) { c.Status.State = acmev1.Errored })},
		{"errored, nobody vouches any more", forged.Final(acmev1.Errored)},
		{"deleted while queued, nobody vouches", forged.Deleted()},
		{"errored and deleted, nobody vouched", forged.With(func(c *acmev1.Challenge) { c.Status.State = acmev1.Errored }).Deleted()},
		{"started, with the legacy finalizer", legacy},
		{"synced: pending", synced},
		{"synced: valid", running.Read("valid", "valid")},
		{"synced: invalid", running.Read("invalid", "invalid")},
		{"synced: expired", running.Read("expired", "pending")},
		{"synced: deactivated", running.Read("deactivated", "pending")},
		{"synced: revoked", running.Read("revoked", "pending")},
		{"synced: the challenge is invalid", running.Read("pending", "invalid")},
		{"synced: the challenge is gone", challengeGone(synced)},
		{"synced: validating already", running.Read("pending", "processing")},
		{"presented, not stored", unwritten},
		{"presented", shown},
		{"presented, after a restart", running.Presented()},
		{"self check keeps failing", failing},
		{"self check passed", passed},
		{"self check passed and warns", warned},
		{"self check passed, the account's key is being replaced", changing},
		{"self check passed, the account's key was replaced", outdated},
		{"persistent, deleted", persistent.Deleted()},
		{"waits instead of self check", waiting},
		{"parked", parked},
		{"parked, after a restart", queued.Presented()},
		{"parked, self check passed", parkedPassed},
		{"accepted", accepted},
		{"accept was refused, the CA shows pending", refused},
		{"valid", queued.Final(acmev1.Valid)},
		{"valid, cleaned up", validated},
		{"invalid", queued.Final(acmev1.Invalid)},
		{"invalid, cleaned up", cleaned},
		{"invalid, still processing (from elsewhere)", queued.Final(acmev1.Invalid).Processing()},
		{"valid without presenting", queued.With(func(c *acmev1.Challenge) { c.Status.State = acmev1.Valid })},
		{"final without finalizer", queued.Final(acmev1.Valid).Bare()},
		{"deleted while queued", queued.Deleted()},
		{"deleted while presented", shown.Deleted()},
		{"deleted while started", running.Deleted()},
		{"deleted without finalizer", queued.Deleted().Bare()},
		{"deleted while presented, and replaced", replaced(shown.Deleted())},
		{"deleted, clean-up has failed, and replaced", replaced(uncleaned.Deleted())},
		{"deleted while queued, and replaced", replaced(queued.Deleted())},
		{"self check passed, the zone is slow", settling},
		{"self check passed, the name is slow", settlingName},
		{"self check passed, a long settle time", settled},
		{"self check passed, a short settle time", brief},
		{"parked, self check passed, the zone is slow", parkedSettling},
		{"accepted, the CA tries again", retried},
		{"accepted, the CA leaves a failed one pending", left},
		{"presented, with a deadline", shown.Limited(acmev1.SelfCheckDeadlineAccept)},
		{"self check keeps failing, then accept", failing.Limited(acmev1.SelfCheckDeadlineAccept)},
		{"self check keeps failing, then fail", failing.Limited(acmev1.SelfCheckDeadlineFail)},
		{"self check passed in time", passed.Limited(acmev1.SelfCheckDeadlineFail)},
		{"parked, then accept", parkedFailing.Limited(acmev1.SelfCheckDeadlineAccept)},
		{"parked, then fail", parkedFailing.Limited(acmev1.SelfCheckDeadlineFail)},
	}
}

func replaced(s flows.ChallengeState) flows.ChallengeState {
	s.Replaced = true
	return s
}

func challengeGone(s flows.ChallengeState) flows.ChallengeState {
	a := *s.Memory.Authorization
	a.Challenges = nil
	s.Memory.Authorization = &a
	return s
}

func challengeTrial() flows.Trial[flows.ChallengeState, challenge.Memory, challenge.Action] {
	return flows.Trial[flows.ChallengeState, challenge.Memory, challenge.Action]{
		Name: "challenge.Decide", File: "challenges.txt", Situations: challengeSituations(),
		Environments: append(flows.Environments(), flows.Environment{Name: "namespace terminating", Deleting: true, After: time.Millisecond}),
		In: func(s flows.ChallengeState, e flows.Environment) flows.ChallengeState {
			e.Apply(&s.Issuer, &s.Account)
			s.NamespaceTerminating = e.Deleting
			return s
		},
		Decide: flows.ChallengeState.Decide, Text: flows.Text[challenge.Action], Check: flows.CheckChallenge,
		Memory:  func(s *flows.ChallengeState) *challenge.Memory { return &s.Memory },
		Step:    func(a challenge.Action) flows.Step { return a.Step },
		Started: func(m challenge.Memory, a challenge.Action) challenge.Memory { return m.Started(a.Step, start) },
		Failed: func(m challenge.Memory, a challenge.Action, f *fault.Fault) challenge.Memory {
			return m.After(challenge.Outcome{Step: a.Step, At: start, Jitter: 0.5, Failure: f})
		},
	}
}

func TestChallengeTable(t *testing.T) { challengeTrial().Run(t) }

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
					s := fillChallenge(fill).With(func(c *acmev1.Challenge) { c.Status.State = stored })
					if authorization != "" {
						s = s.Read(authorization, remote)
					}
					e := x.Environments[turn%len(x.Environments)]
					turn++
					n += x.Examine(t, s, fill%16 == 1, []flows.Environment{e}, func() string {
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

func fillChallenge(fill int) flows.ChallengeState {
	s := flows.NewChallengeState()
	if fill&1 != 0 {
		s = s.Processing()
	}
	if fill&2 != 0 {
		s = s.Presented()
	}
	if fill&4 != 0 {
		s = s.Deleted()
	}
	if fill&8 != 0 {
		s = s.Bare()
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
		s = s.Limited(then)
		s.Memory.SettleTime = time.Minute
	}
	return s
}

// BenchmarkDecide is what one look at a Challenge costs, in each situation of the table.
func BenchmarkDecide(b *testing.B) {
	situations := challengeSituations()
	now := start.Add(time.Second)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		situations[i%len(situations)].State.Decide(now)
	}
}
