package challenge_test

import (
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/rig/flows"
)

// TestDisowned: a Challenge that nobody vouches for ends as errored; what it may have presented is cleaned up, and
// nothing is called for one that was never started.
func TestDisowned(t *testing.T) {
	t.Parallel()
	ends := func(s flows.ChallengeState, then challenge.Step) {
		t.Helper()
		s.Untrusted = "No Order controls it"
		a := s.Decide(start)
		if a.Status == nil || a.Status.State != acmev1.Errored || a.Status.Processing || a.Step != challenge.Wait || a.Status.Reason != s.Untrusted {
			t.Fatalf("it does not end: %s", flows.Text(a, start))
		}
		s = s.With(func(c *acmev1.Challenge) { c.Status = *a.Status })
		equal(t, s.Decide(start).Step, then)
		equal(t, s.Deleted().Decide(start).Step, then)
	}
	queued := flows.NewChallengeState()
	ends(queued, challenge.RemoveFinalizer)
	ends(queued.Processing(), challenge.CleanUp)
	ends(queued.Processing().Read("pending", "pending").Presented(), challenge.CleanUp)
	ends(queued.Presented(), challenge.CleanUp)
	ends(queued.Bare(), challenge.Done)
	presenting := queued.Processing().Read(acme.StatusPending, acme.StatusPending)
	presenting.Memory = presenting.Memory.Started(challenge.Present, start)
	ends(presenting, challenge.Wait) // for what is under way
}

// TestErroredIsCleanedUp: what a process may have presented before it died is cleaned up, too, where a verdict of the
// CA ends the Challenge, its Order goes, and the next process dies.
func TestErroredIsCleanedUp(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]flows.ChallengeState{
		"no longer offered": flows.NewChallengeState().Processing().Read(acme.StatusPending, "").With(func(c *acmev1.Challenge) { c.Spec.URL += "/another" }),
		"deactivated":       flows.NewChallengeState().Processing().Read(acme.StatusDeactivated, acme.StatusPending),
		"expired":           flows.NewChallengeState().Processing().Read(acme.StatusExpired, acme.StatusPending),
	} {
		a := s.Decide(start)
		if a.Status == nil || !a.Status.State.IsFailure() {
			t.Fatalf("%s: %s", name, flows.Text(a, start))
		}
		s = s.With(func(c *acmev1.Challenge) { c.Status = *a.Status })
		s.Memory, s.Untrusted = challenge.Memory{}, "No Order controls it"
		equal(t, s.Decide(start).Step, challenge.CleanUp)
		equal(t, s.Deleted().Decide(start).Step, challenge.CleanUp)
	}
}

// TestNeverStartedIsNotCleanedUp: the solver of a Challenge that ended before it was started is not called, also if
// somebody puts the finalizer back, which takes no right to write its status.
func TestNeverStartedIsNotCleanedUp(t *testing.T) {
	t.Parallel()
	s := flows.NewChallengeState()
	s.Untrusted = "No Order controls it"
	s = s.With(func(c *acmev1.Challenge) { c.Status = *s.Decide(start).Status }).Bare()
	s = s.With(func(c *acmev1.Challenge) { c.Finalizers = []string{acmev1.ChallengeFinalizer} })
	for _, untrusted := range []string{s.Untrusted, ""} {
		s.Untrusted = untrusted
		equal(t, s.Decide(start).Step, challenge.RemoveFinalizer)
		equal(t, s.Deleted().Decide(start).Step, challenge.RemoveFinalizer)
	}
}

// TestGuessOfPresented: where a Challenge that ends as errored may have been presented, a clean-up is sent. It is the
// last if it finds no zone, no Present of this process has changed anything, and nothing is known to be presented. A
// record that is known to have been presented is looked for as long as that of any other Challenge.
func TestGuessOfPresented(t *testing.T) {
	t.Parallel()
	noZone := acmeflow.NewFault(fault.ClassConfiguration, "no zone")
	noZone.Reason = fault.ReasonNoZone
	unavailable := acmeflow.NewFault(fault.ClassUnavailable, "no answer")
	after := func(s flows.ChallengeState, f *fault.Fault) flows.ChallengeState {
		s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Present, At: start, Failure: f})
		return s
	}
	started := flows.NewChallengeState().Processing()
	tried := after(started.Read(acme.StatusPending, acme.StatusPending), noZone)
	presenting := tried
	presenting.Memory = presenting.Memory.Started(challenge.Present, start)
	takenOver := tried.With(func(c *acmev1.Challenge) { c.Status.Presented = true }) // cert-manager writes no presentedAt
	for name, c := range map[string]struct {
		s    flows.ChallengeState
		then func(flows.ChallengeState) flows.ChallengeState // once errored is written; nil: nothing happens
		last bool
	}{
		"no zone was found":                       {s: tried, last: true},
		"no zone was found, and the process dies": {s: tried, then: dies, last: true},
		"a Present is under way, and dies":        {s: presenting, then: dies, last: true},
		"a Present finds no zone":                 {s: presenting, then: func(s flows.ChallengeState) flows.ChallengeState { return after(s, noZone) }, last: true},
		"a Present comes back":                    {s: presenting, then: func(s flows.ChallengeState) flows.ChallengeState { return after(s, nil) }},
		"a Present may have changed something":    {s: after(presenting, unavailable)},
		"it was presented":                        {s: tried.Presented()},
		"it was presented, and the process dies":  {s: tried.Presented(), then: dies},
		"cert-manager has presented it":           {s: takenOver},
		"another process died while it presented": {s: started, last: true},
	} {
		for _, untrusted := range []string{"No Order controls it", ""} {
			s := c.s
			if s.Untrusted = untrusted; untrusted == "" {
				s.Memory.Authorization = &acme.Authorization{Status: acme.StatusDeactivated}
			}
			s = s.With(func(ch *acmev1.Challenge) { ch.Status = *s.Decide(start).Status })
			if c.then != nil {
				s = c.then(s)
			}
			s = s.Deleted()
			if a := s.Decide(start); a.Step != challenge.CleanUp {
				t.Errorf("%s: no clean-up is sent: %s", name, flows.Text(a, start))
			}
			s.Memory = s.Memory.Started(challenge.CleanUp, start).After(challenge.Outcome{Step: challenge.CleanUp, At: start, Failure: noZone})
			if a := s.Decide(start); (a.Step == challenge.RemoveFinalizer) != c.last || c.last && a.Event == nil || !c.last && a.Wake.IsZero() {
				t.Errorf("%s: after a clean-up that found no zone: %s", name, flows.Text(a, start))
			}
		}
	}
}

// dies is a Challenge at the next process.
func dies(s flows.ChallengeState) flows.ChallengeState {
	s.Memory = challenge.Memory{}
	return s
}
