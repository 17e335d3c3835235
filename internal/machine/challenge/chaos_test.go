package challenge_test

import (
	"reflect"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/rig/flows"
	"chancery.dev/internal/rig/slow"
)

// chaos answers the calls of Challenges.
type chaos struct{ *flows.Chaos }

// challenge answers an external step of a Challenge.
func (c chaos) challenge(step challenge.Step, accepted bool) challenge.Outcome {
	o := challenge.Outcome{Step: step, At: c.Now, Jitter: c.R.Float64(), SettleTime: flows.Pick(c.R, 0, 5*time.Second, 2*time.Minute)}
	authz := flows.RemoteAuthorization("pending")
	o.Authorization = &authz
	switch {
	case c.Wild():
		o.Failure = c.Failure()
		authz.Status = flows.Pick[acme.Status](c.R, "pending", "pending", "pending", "valid", "invalid", "deactivated", "expired", "revoked", "nonsense")
		authz.Challenges[0].Status = flows.Pick[acme.Status](c.R, "pending", "processing", "valid", "invalid", "nonsense")
		authz.Challenges[0].Error = flows.Problem(flows.Pick(c.R, "", "dns: not found yet"))
		authz.RetryAfter = flows.Pick(c.R, 0, time.Second, 30*time.Hour)
	case c.Verdict == "unsolvable" && (step == challenge.Present || step == challenge.CleanUp):
		o.Failure = acmeflow.NewFault(fault.ClassSolver, "no")
	case c.Verdict == "unseen" && step == challenge.Check:
		o.Failure = acmeflow.NewFault(fault.ClassSelfCheck, "not yet")
	case c.Verdict == "refuse" && step == challenge.Accept:
		o.Failure = acmeflow.NewFault(fault.ClassRefused, "no")
	case c.Verdict == "forget" && step == challenge.Fetch:
		o.Failure = acmeflow.NewFault(fault.ClassNotFound, "forgotten")
	case c.Verdict == "stuck":
		authz.Challenges[0].Status = "processing"
	case c.Verdict == "valid" && accepted:
		authz.Status = "valid"
	}
	return o
}

// obey does what was decided about a Challenge, and what the scheduler does; it reports
// whether all is done.
func (c chaos) obey(s *flows.ChallengeState, a challenge.Action) (done bool) {
	if a.Status != nil {
		*s = s.With(func(ch *acmev1.Challenge) { ch.Status = *a.Status })
	}
	final := s.Challenge.Status.State.IsFinal() || s.Challenge.DeletionTimestamp != nil
	switch {
	case a.Step == challenge.Done:
		return true
	case a.Step.External():
		s.Memory = s.Memory.Started(a.Step, c.Now).After(c.challenge(a.Step, !s.Memory.Accepted.IsZero()))
	case a.Step == challenge.AddFinalizer:
		*s = s.With(func(ch *acmev1.Challenge) { ch.Finalizers = []string{acmev1.ChallengeFinalizer} })
	case a.Step == challenge.RemoveFinalizer:
		*s = s.With(func(ch *acmev1.Challenge) { ch.Finalizers = nil })
	case final || a.NotBefore.After(c.Now):
	case !s.Challenge.Status.Processing && (!s.Challenge.Status.Presented || a.Ready):
		*s = s.With(func(ch *acmev1.Challenge) { ch.Status = challenge.Start(ch.Status) })
	case a.Yield && c.Wild() && c.R.Intn(4) == 0:
		*s = s.With(func(ch *acmev1.Challenge) { ch.Status = challenge.Park(ch.Status, a.HoldsUntil) })
	}
	return false
}

// TestEveryChallengeEnds starts in every state there is.
func TestEveryChallengeEnds(t *testing.T) {
	t.Parallel()
	for seed := range flows.Seeds(slow.Runs(slow.Faults), 600) {
		situations := challengeSituations()
		situation := situations[int(seed)%len(situations)]
		c := chaos{flows.NewChaos(seed, "valid", "refuse", "forget", "stuck", "unseen", "unsolvable")}
		s := situation.State
		for step := 0; ; step++ {
			s.Issuer.Readiness, s.Account.ParkedUntil = c.Readiness(), c.ParkedUntil()
			if c.Wild() && c.R.Intn(50) == 0 {
				s.Memory = challenge.Memory{}
			}
			before := s.Challenge.Status
			a := s.Decide(c.Now)
			flows.CheckChallenge(t, s, a, c.Now, c.Told)
			c.Say(flows.Text(a, c.Now))
			if c.obey(&s, a) {
				break
			}
			moved := a.Step != challenge.Wait || !reflect.DeepEqual(s.Challenge.Status, before)
			wake := a.Wake
			if wake.IsZero() || a.NotBefore.After(c.Now) && a.NotBefore.Before(wake) {
				wake = a.NotBefore
			}
			if !moved && !c.Sleep(wake) || step > 100_000 {
				t.Fatalf("seed %d, from %q: nothing gets it out of here\n%s", seed, situation.Name, c.Told())
			}
		}
		if end := s.Challenge; end.Status.Processing || len(end.Finalizers) > 0 || !end.Status.State.IsFinal() && end.DeletionTimestamp == nil {
			t.Fatalf("seed %d, from %q: it ends as %+v\n%s", seed, situation.Name, end.Status, c.Told())
		}
	}
}
