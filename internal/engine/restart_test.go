package engine

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestRestart: objects begin anew, without what is remembered of them, also while a pass over another one takes long.
func TestRestart(t *testing.T) {
	e := newErrand(t)
	var seen []int
	e.runner.kind.Plan = func(_ context.Context, p *Pass[*corev1.Pod, int], _ string, _ Plan) (Plan, error) {
		seen = append(seen, *p.Memory)
		*p.Memory += 100
		return Plan{Waits: For{What: WaitEvent}}, nil
	}
	pass := func() {
		t.Helper()
		if _, err := e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: podName}); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	pass()
	e.runner.passes.RLock() // a pass that takes long
	defer e.runner.passes.RUnlock()
	e.runner.Restart()
	if got := e.runner.early; len(got) != 1 || got[0].NamespacedName != podName {
		t.Errorf("queued %v", got)
	}
	if pass(); len(seen) != 3 || seen[0] != seen[2] || seen[1] <= seen[0] {
		t.Errorf("remembered %v", seen)
	}
}
