package fakeclock

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is a work queue whose delays go by the clock.
type queue struct {
	workqueue.TypedInterface[reconcile.Request]

	clock   *Clock
	limiter workqueue.TypedRateLimiter[reconcile.Request]

	mu      sync.Mutex
	delayed map[reconcile.Request]*delay
	working map[reconcile.Request]func()
}

type delay struct {
	at   time.Time
	stop func()
}

// Queue returns a queue whose delays go by the clock, and whose work is something that
// is going on.
func (c *Clock) Queue(_ string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	q := &queue{
		TypedInterface: workqueue.NewTyped[reconcile.Request](), clock: c, limiter: limiter,
		delayed: map[reconcile.Request]*delay{}, working: map[reconcile.Request]func(){},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues = append(c.queues, q)
	return q
}

// holds reports whether something is in the queue that a worker will take.
func (q *queue) holds() bool { return q.Len() > 0 && !q.ShuttingDown() }

// Get implements workqueue.TypedInterface.
func (q *queue) Get() (reconcile.Request, bool) {
	item, shutdown := q.TypedInterface.Get()
	if !shutdown {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.working[item] = q.clock.Begin()
	}
	return item, shutdown
}

// Done implements workqueue.TypedInterface. The next worker may have the item as soon as
// the queue knows that this one has not.
func (q *queue) Done(item reconcile.Request) {
	q.mu.Lock()
	done := q.working[item]
	delete(q.working, item)
	q.mu.Unlock()
	q.TypedInterface.Done(item)
	if done != nil {
		done()
	}
}

// AddAfter implements workqueue.TypedDelayingInterface: of several delays of one item
// the first to end counts.
func (q *queue) AddAfter(item reconcile.Request, d time.Duration) {
	if d <= 0 {
		q.Add(item)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.clock.Now().Add(d)
	if known := q.delayed[item]; known != nil {
		if !known.at.After(at) {
			return
		}
		known.stop()
	}
	mine := &delay{at: at}
	q.delayed[item] = mine
	mine.stop = q.clock.AfterFunc(d, func() {
		q.mu.Lock()
		if q.delayed[item] == mine {
			delete(q.delayed, item)
		}
		q.mu.Unlock()
		q.Add(item)
	})
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue) AddRateLimited(item reconcile.Request) { q.AddAfter(item, q.limiter.When(item)) }

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *queue) Forget(item reconcile.Request) { q.limiter.Forget(item) }

// NumRequeues implements workqueue.TypedRateLimitingInterface.
func (q *queue) NumRequeues(item reconcile.Request) int { return q.limiter.NumRequeues(item) }

// ShutDown implements workqueue.TypedInterface: delays end with the queue.
func (q *queue) ShutDown() {
	q.mu.Lock()
	for _, d := range q.delayed {
		d.stop()
	}
	q.mu.Unlock()
	q.TypedInterface.ShutDown()
}
