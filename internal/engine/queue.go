package engine

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is what passes are queued in.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// soon is the longest delay that client-go's queue takes care of.
const soon = time.Minute

// forgetting is a Queue that does not come back to what is forgotten.
type forgetting struct {
	Queue

	afterFunc func(time.Duration, func()) (stop func())

	mu sync.Mutex
	// later ends the delays that are longer than soon.
	later map[reconcile.Request]func()
}

// Forgetting returns a Queue that does not come back to what is forgotten. A queue of client-go remembers each item
// until its delay is over: a deleted Certificate until the day of its renewal. Here afterFunc runs the long delays: it
// calls a function when a time has passed, unless it is stopped before.
func Forgetting(queue Queue, afterFunc func(time.Duration, func()) (stop func())) Queue {
	return &forgetting{Queue: queue, afterFunc: afterFunc, later: map[reconcile.Request]func(){}}
}

// AddAfter implements workqueue.TypedDelayingInterface. Of several long delays of an item the last one counts.
func (q *forgetting) AddAfter(item reconcile.Request, delay time.Duration) {
	if delay <= soon {
		q.Queue.AddAfter(item, delay)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(item)
	if q.ShuttingDown() {
		return
	}
	q.later[item] = q.afterFunc(delay, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.drop(item)
		q.Add(item)
	})
}

// Forget implements workqueue.TypedRateLimitingInterface. A pass that fails does not forget. Any other pass says when
// the next is due.
func (q *forgetting) Forget(item reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(item)
	q.Queue.Forget(item)
}

// drop ends a long delay of an item. It is called with the lock held.
func (q *forgetting) drop(item reconcile.Request) {
	if stop := q.later[item]; stop != nil {
		stop()
		delete(q.later, item)
	}
}

// ShutDown implements workqueue.TypedInterface: delays end with the queue, and none begins after it.
func (q *forgetting) ShutDown() {
	q.Queue.ShutDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	for item := range q.later {
		q.drop(item)
	}
}
