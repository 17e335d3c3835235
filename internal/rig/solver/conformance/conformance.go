// Package conformance holds one test suite for what every solver.Solver must do; each solver's own tests run it. Only
// tests import it.
package conformance

import (
	"context"
	"testing"
	"time"

	"chancery.dev/internal/solver"
)

// Harness is a solver in a world where its effect can be seen.
type Harness struct {
	// New returns a Solver under test that shares nothing with another one: each call is made by a Solver of its own,
	// as by a new process.
	New func() solver.Solver
	// Task returns challenge n of several for one name: same name, different tokens
	// and keys. The same n gives an equal Task.
	Task func(n int) solver.Task
	// Start is what happens before Present: the scheduler sets the challenge processing. Optional.
	Start func(solver.Task)
	// AfterCleanUp is what happens after CleanUp: the challenge is in a final state. Optional.
	AfterCleanUp func(solver.Task)
	// Visible tells whether a CA would find the answer to a challenge.
	Visible func(context.Context, solver.Task) bool
	// Exclusive: of several challenges for a name, only the first can be seen until it is cleaned up.
	Exclusive bool
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	steps := []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"clean up when nothing was presented", cleanUpNothing},
		{"present, check, clean up", presentCheckCleanUp},
		{"present twice", presentTwice},
		{"two values, clean up of one", twoValues},
		{"ended context", endedContext},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) { step.run(t, h) })
	}
}

func (h Harness) present(t *testing.T, n int) {
	t.Helper()
	if h.Start != nil {
		h.Start(h.Task(n))
	}
	if err := h.New().Present(t.Context(), h.Task(n)); err != nil {
		t.Fatalf("Present of %d: %v", n, err)
	}
}

func (h Harness) cleanUp(t *testing.T, n int) {
	t.Helper()
	if err := h.New().CleanUp(t.Context(), h.Task(n)); err != nil {
		t.Fatalf("CleanUp of %d: %v", n, err)
	}
	if h.AfterCleanUp != nil {
		h.AfterCleanUp(h.Task(n))
	}
}

// expect says which of the answers 0 and 1 are to be seen, by the world and by Check.
func (h Harness) expect(t *testing.T, want ...bool) {
	t.Helper()
	for n, visible := range want {
		if got := h.Visible(t.Context(), h.Task(n)); got != visible {
			t.Errorf("answer %d visible = %v, want %v", n, got, visible)
		}
		if err := h.New().Check(t.Context(), h.Task(n)); (err == nil) != visible {
			t.Errorf("Check of %d = %v, want passing = %v", n, err, visible)
		}
	}
}

func cleanUpNothing(t *testing.T, h Harness) {
	h.cleanUp(t, 0)
	h.expect(t, false, false)
}

func presentCheckCleanUp(t *testing.T, h Harness) {
	h.expect(t, false)
	h.present(t, 0)
	h.expect(t, true, false)
	h.cleanUp(t, 0)
	h.expect(t, false, false)
	h.cleanUp(t, 0)
	h.expect(t, false, false)
}

func presentTwice(t *testing.T, h Harness) {
	h.present(t, 0)
	h.present(t, 0)
	h.expect(t, true, false)
	h.cleanUp(t, 0) // one is enough
	h.expect(t, false, false)
}

func twoValues(t *testing.T, h Harness) {
	h.present(t, 0)
	h.present(t, 1)
	h.expect(t, true, !h.Exclusive)
	h.cleanUp(t, 0)
	h.expect(t, false, true)
	h.cleanUp(t, 1)
	h.expect(t, false, false)
}

// endedContext: no call hangs once its context has ended, whatever it returns.
func endedContext(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The results do not matter here, only that the calls return.
		_ = h.New().Present(ctx, h.Task(0))
		_ = h.New().Check(ctx, h.Task(0))
		_ = h.New().CleanUp(ctx, h.Task(0))
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a call did not return although its context had ended")
	}
	h.cleanUp(t, 0)
}
