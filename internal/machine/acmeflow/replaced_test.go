package acmeflow

import (
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
)

// TestACorrectedSolverIsUsedAtOnce: whatever the wrong solver has presented or not, and however long its clean-up
// fails, the answers are presented within 15 s once the solver is corrected; no clean-up takes away what the new
// Challenge shows, and what can be cleaned up is.
func TestACorrectedSolverIsUsedAtOnce(t *testing.T) {
	wrong := dns01()
	wrong.DNS01.AcmeDNS.Host = "nobody.example.net"
	type calls = func(step ChallengeStep, since time.Duration) (fails, acts bool)
	changes := func(step ChallengeStep) bool { return step == ChallengePresent || step == ChallengeCleanUp }
	for name, tc := range map[string]struct {
		broken calls
		edited time.Duration
	}{
		"its server is not there": {edited: 12 * time.Second, broken: func(step ChallengeStep, _ time.Duration) (bool, bool) {
			return changes(step), !changes(step)
		}},
		"its server is not there, and it has waited long": {edited: 20 * time.Minute, broken: func(step ChallengeStep, _ time.Duration) (bool, bool) {
			return changes(step), !changes(step)
		}},
		"its server acts, and the answer is lost": {edited: 12 * time.Second, broken: func(step ChallengeStep, _ time.Duration) (bool, bool) {
			return changes(step), true
		}},
		"its server presents, and takes nothing away": {edited: 12 * time.Second, broken: func(step ChallengeStep, _ time.Duration) (bool, bool) {
			return step == ChallengeCleanUp || step == ChallengeCheck, step == ChallengePresent
		}},
		"its server is back while the new one is checked": {edited: 12 * time.Second, broken: func(step ChallengeStep, since time.Duration) (bool, bool) {
			ends := changes(step) && since < 11*time.Second
			return ends || step == ChallengeCheck, !ends && step != ChallengeCheck
		}},
		"it presents where nobody looks": {edited: 12 * time.Second, broken: func(step ChallengeStep, _ time.Duration) (bool, bool) {
			return step == ChallengeCheck, step != ChallengeCheck
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds(20) {
				w := newWalk(t, seed, "a.example.com", "b.example.com")
				w.wrong, w.corrected, w.broken = wrong, start.Add(tc.edited), tc.broken
				w.wakes = append(w.wakes, w.corrected)
				for _, n := range w.order.Spec.DNSNames {
					w.visibleAt["ca/1/"+n] = start
				}
				w.run()
				if w.order.Status.State != acmev1.Valid || w.orders != 1 {
					t.Fatalf("seed %d: after %d orders it is %q: %s\n%s", seed, w.orders, w.order.Status.State, w.order.Status.Reason, w.told())
				}
				if waited := w.shown.Sub(w.corrected); waited > 15*time.Second {
					t.Errorf("seed %d: the answer was presented %s after the solver was corrected\n%s", seed, waited, w.told())
				}
				if len(w.challenges) > 0 || len(w.presented) > 0 {
					t.Fatalf("seed %d: left behind: %v %v\n%s", seed, sortedKeys(w.challenges), w.presented, w.told())
				}
			}
		})
	}
}

// TestHeldBackCleanUpIsTriedAgain: while another Challenge answers for the same authorization, the clean-up is not
// tried, whatever has been tried before. It is tried when that one has ended, also after the time in which clean-up is
// tried otherwise; and it is held back for twice that time at most.
func TestHeldBackCleanUpIsTriedAgain(t *testing.T) {
	failed := failure(fault.ClassSolver, "no answer")
	for name, memory := range map[string]ChallengeMemory{
		"never tried": {}, "tried": ChallengeMemory{}.Started(ChallengeCleanUp, start).After(ChallengeOutcome{Step: ChallengeCleanUp, At: start, Failure: failed}),
	} {
		s := newChallengeState().processing().presented().deleted()
		s.Memory, s.Replaced = memory, true
		limit := s.Settings.CleanUpLimit
		for _, after := range []time.Duration{time.Second, time.Minute, limit, 2*limit - time.Second} {
			if a := DecideChallenge(s, start.Add(after)); a.Step != ChallengeWait || !a.Wake.After(start.Add(after)) {
				t.Errorf("%s: %s after the deletion: %s", name, after, a.text(start.Add(after)))
			}
			free := s
			free.Replaced = false
			if a := DecideChallenge(free, start.Add(after+time.Minute)); a.Step != ChallengeCleanUp {
				t.Errorf("%s: freed %s after the deletion: %s", name, after, a.text(start.Add(after)))
			}
		}
		a := DecideChallenge(s, start.Add(2*limit))
		equal(t, a.Step, ChallengeRemoveFinalizer)
		equal(t, a.Event.Reason, acmev1.ChallengeReasonCleanUpAbandoned)
	}
}
