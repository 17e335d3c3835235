package controller

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"chancery.dev/internal/engine"
)

// Queue is what a controller takes its work from.
type Queue = engine.Queue

// Limiter is the back-off of a Queue.
type Limiter = workqueue.TypedRateLimiter[reconcile.Request]

// NewQueue returns client-go's Queue for the controller of that name, and not controller-runtime's, whose workers may
// hang for ever when it is shut down (docs/decisions/0005-work-queues.md). Namespaces take turns in it. Workers leave
// as soon as it is shut down, however much is queued.
func NewQueue(name string, limiter Limiter) Queue {
	due := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: &turns{}})
	delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: due})
	return prompt{engine.Forgetting(workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name: name, DelayingQueue: delayed,
	}), afterFunc)}
}

// turns is the order of a Queue: namespaces take turns, so that however many objects of one namespace wait, one of
// another waits for a pass of each namespace at most. The objects of one namespace come in the order of their arrival.
type turns struct {
	// next are the namespaces that have waiting objects, in the order of their turns.
	next    []string
	waiting map[string][]reconcile.Request
	count   int
}

// Touch implements workqueue.Queue.
func (*turns) Touch(reconcile.Request) {}

// Push implements workqueue.Queue.
func (t *turns) Push(item reconcile.Request) {
	if t.waiting == nil {
		t.waiting = map[string][]reconcile.Request{}
	}
	if len(t.waiting[item.Namespace]) == 0 {
		t.next = append(t.next, item.Namespace)
	}
	t.waiting[item.Namespace] = append(t.waiting[item.Namespace], item)
	t.count++
}

// Len implements workqueue.Queue.
func (t *turns) Len() int { return t.count }

// Pop implements workqueue.Queue.
func (t *turns) Pop() reconcile.Request {
	namespace := t.next[0]
	t.next = t.next[1:]
	all := t.waiting[namespace]
	if t.waiting[namespace] = all[1:]; len(all) > 1 {
		t.next = append(t.next, namespace)
	} else {
		delete(t.waiting, namespace)
	}
	t.count--
	return all[0]
}

// prompt is a Queue that hands out nothing once it is shut down: client-go's hands out all that is queued first.
type prompt struct{ Queue }

// Get implements workqueue.TypedInterface.
func (q prompt) Get() (item reconcile.Request, shutdown bool) {
	item, shutdown = q.Queue.Get()
	return item, shutdown || q.ShuttingDown()
}
