package fakeclock

import (
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestNoLeapOverWhatIsQueued: what no worker has taken yet is going on, unless its queue has ended.
func TestNoLeapOverWhatIsQueued(t *testing.T) {
	clock := New(t.Context())
	limiter := workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
	queue, dead := clock.Queue("", limiter), clock.Queue("", limiter)
	dead.Add(reconcile.Request{})
	dead.ShutDown()
	queue.Add(reconcile.Request{})
	leapt := make(chan struct{})
	clock.AfterFunc(time.Hour, func() { close(leapt) })
	select {
	case <-leapt:
		t.Fatal("the clock has leapt, and something is queued")
	case <-time.After(time.Second):
	}
	item, _ := queue.Get()
	queue.Done(item)
	<-leapt
}
