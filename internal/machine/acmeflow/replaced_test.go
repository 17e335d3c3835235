package acmeflow_test

import (
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/rig/flows"
	"chancery.dev/internal/rig/slow"
)

// TestACorrectedSolverIsUsedAtOnce: whatever the wrong solver has presented or not, and however long its clean-up
// fails, the answers are presented within 15 s once the solver is corrected; no clean-up takes away what the new
// Challenge shows, and what can be cleaned up is.
func TestACorrectedSolverIsUsedAtOnce(t *testing.T) {
	wrong := flows.DNS01()
	wrong.DNS01.AcmeDNS.Host = "nobody.example.net"
	type calls = func(step challenge.Step, since time.Duration) (fails, acts bool)
	changes := func(step challenge.Step) bool { return step == challenge.Present || step == challenge.CleanUp }
	for name, tc := range map[string]struct {
		broken calls
		edited time.Duration
	}{
		"its server is not there": {edited: 12 * time.Second, broken: func(step challenge.Step, _ time.Duration) (bool, bool) {
			return changes(step), !changes(step)
		}},
		"its server is not there, and it has waited long": {edited: 20 * time.Minute, broken: func(step challenge.Step, _ time.Duration) (bool, bool) {
			return changes(step), !changes(step)
		}},
		"its server acts, and the answer is lost": {edited: 12 * time.Second, broken: func(step challenge.Step, _ time.Duration) (bool, bool) {
			return changes(step), true
		}},
		"its server presents, and takes nothing away": {edited: 12 * time.Second, broken: func(step challenge.Step, _ time.Duration) (bool, bool) {
			return step == challenge.CleanUp || step == challenge.Check, step == challenge.Present
		}},
		"its server is back while the new one is checked": {edited: 12 * time.Second, broken: func(step challenge.Step, since time.Duration) (bool, bool) {
			ends := changes(step) && since < 11*time.Second
			return ends || step == challenge.Check, !ends && step != challenge.Check
		}},
		"it presents where nobody looks": {edited: 12 * time.Second, broken: func(step challenge.Step, _ time.Duration) (bool, bool) {
			return step == challenge.Check, step != challenge.Check
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range flows.Seeds(slow.Runs(slow.Faults), 20) {
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
					t.Fatalf("seed %d: left behind: %v %v\n%s", seed, flows.SortedKeys(w.challenges), w.presented, w.told())
				}
			}
		})
	}
}
