package engine

import (
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestNoDelayOutlivesTheQueue: long delays end with the queue, and a worker that still adds one then starts none.
func TestNoDelayOutlivesTheQueue(t *testing.T) {
	running := 0
	queue := Forgetting(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
		func(time.Duration, func()) func() {
			running++
			return func() { running-- }
		})
	queue.AddAfter(reconcile.Request{}, time.Hour)
	queue.ShutDown()
	queue.AddAfter(reconcile.Request{}, time.Hour)
	if running != 0 {
		t.Errorf("%d delays are left", running)
	}
}
