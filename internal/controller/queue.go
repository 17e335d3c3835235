package controller

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is what a controller takes its work from.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Limiter is the back-off of a Queue.
type Limiter = workqueue.TypedRateLimiter[reconcile.Request]

// NewQueue returns a Queue with priorities for the controller of that name.
func NewQueue(name string, limiter Limiter) Queue {
	inner := priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter })
	stopped := make(chan struct{})
	return &stoppableQueue{PriorityQueue: inner, stopped: stopped, stop: sync.OnceFunc(func() {
		close(stopped)
		inner.ShutDown()
	})}
}

// stoppableQueue lets its workers go in the end. That of controller-runtime v0.24 hands out
// what becomes ready in that moment to workers that have left already, and waits for them
// with its locks held: those that ask for work, or report it done, would never come back.
type stoppableQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]

	stopped <-chan struct{}
	stop    func()
}

// ShutDown implements workqueue.TypedInterface.
func (q *stoppableQueue) ShutDown() { q.stop() }

// Get implements workqueue.TypedInterface.
func (q *stoppableQueue) Get() (item reconcile.Request, shutdown bool) {
	item, _, shutdown = q.GetWithPriority()
	return item, shutdown
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *stoppableQueue) GetWithPriority() (item reconcile.Request, priority int, shutdown bool) {
	type work struct {
		item     reconcile.Request
		priority int
		shutdown bool
	}
	next := make(chan work, 1)
	go func() {
		var w work
		w.item, w.priority, w.shutdown = q.PriorityQueue.GetWithPriority()
		next <- w
	}()
	select {
	case w := <-next:
		return w.item, w.priority, w.shutdown
	case <-q.stopped:
		return reconcile.Request{}, 0, true
	}
}

// Done implements workqueue.TypedInterface.
func (q *stoppableQueue) Done(item reconcile.Request) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.PriorityQueue.Done(item)
	}()
	select {
	case <-done:
	case <-q.stopped:
	}
}
