package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestStuck: a pass that never ends is told of after minutes. One that waits for an API server which does not answer
// ends by its time, and is not.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, release := newErrand(t), make(chan struct{})
		for name, c := range map[string]struct {
			waits func(context.Context)
			stuck bool
		}{
			"deadlocked":               {func(context.Context) { <-release }, true},
			"the API server is silent": {func(ctx context.Context) { <-ctx.Done() }, false},
		} {
			e.runner.kind.Observe = func(ctx context.Context, _ *Pass[*corev1.Pod, int]) (string, error) {
				c.waits(ctx)
				return "", ctx.Err()
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: podName})
			}()
			time.Sleep(stuckAfter - time.Second)
			if err := e.engine.Stuck(); err != nil {
				t.Errorf("%s: too early: %v", name, err)
			}
			time.Sleep(time.Second)
			if err := e.engine.Stuck(); (err != nil) != c.stuck || err != nil && !strings.Contains(err.Error(), "pods ns/pod") {
				t.Errorf("%s: %v", name, err)
			}
			if c.stuck {
				close(release)
			}
			<-ended
			if err := e.engine.Stuck(); err != nil {
				t.Errorf("%s: it is told of after its end: %v", name, err)
			}
		}
	})
}
