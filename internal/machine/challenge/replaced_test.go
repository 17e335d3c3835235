package challenge_test

import (
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/rig/flows"
)

// TestHeldBackCleanUpIsTriedAgain: while another Challenge answers for the same authorization, the clean-up is not
// tried, whatever has been tried before. It is tried when that one has ended, also after the time in which clean-up is
// tried otherwise; and it is held back for twice that time at most.
func TestHeldBackCleanUpIsTriedAgain(t *testing.T) {
	failed := acmeflow.NewFault(fault.ClassSolver, "no answer")
	for name, memory := range map[string]challenge.Memory{
		"never tried": {}, "tried": challenge.Memory{}.Started(challenge.CleanUp, start).After(challenge.Outcome{Step: challenge.CleanUp, At: start, Failure: failed}),
	} {
		s := flows.NewChallengeState().Processing().Presented().Deleted()
		s.Memory, s.Replaced = memory, true
		limit := s.Settings.CleanUpLimit
		for _, after := range []time.Duration{time.Second, time.Minute, limit, 2*limit - time.Second} {
			if a := s.Decide(start.Add(after)); a.Step != challenge.Wait || !a.Wake.After(start.Add(after)) {
				t.Errorf("%s: %s after the deletion: %s", name, after, flows.Text(a, start.Add(after)))
			}
			free := s
			free.Replaced = false
			if a := free.Decide(start.Add(after + time.Minute)); a.Step != challenge.CleanUp {
				t.Errorf("%s: freed %s after the deletion: %s", name, after, flows.Text(a, start.Add(after)))
			}
		}
		a := s.Decide(start.Add(2 * limit))
		equal(t, a.Step, challenge.RemoveFinalizer)
		equal(t, a.Event.Reason, acmev1.ChallengeReasonCleanUpAbandoned)
	}
}
