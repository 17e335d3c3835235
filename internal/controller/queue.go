package controller

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is what a controller takes its work from.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Limiter is the back-off of a Queue.
type Limiter = workqueue.TypedRateLimiter[reconcile.Request]

// NewQueue returns client-go's Queue for the controller of that name, and not controller-runtime's, whose workers may
// hang for ever when it is shut down (docs/decisions/0005-work-queues.md). Workers leave as soon as it is shut down,
// however much is queued.
func NewQueue(name string, limiter Limiter) Queue {
	return prompt{workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name})}
}

// prompt is a Queue that hands out nothing once it is shut down: client-go's hands out all that is queued first.
type prompt struct{ Queue }

// Get implements workqueue.TypedInterface.
func (q prompt) Get() (item reconcile.Request, shutdown bool) {
	item, shutdown = q.Queue.Get()
	return item, shutdown || q.ShuttingDown()
}
