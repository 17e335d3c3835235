package engine

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// doorbell queues objects from outside of any watch: it is a source of a controller. The zero value is ready.
type doorbell struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	early []reconcile.Request
}

// Start implements source.Source: the controller calls it.
func (b *doorbell) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = queue
	for _, req := range b.early {
		queue.Add(req)
	}
	b.early = nil
	return nil
}

// Ring queues an object. It never blocks, and may be called before Start.
func (b *doorbell) Ring(name types.NamespacedName) {
	req := reconcile.Request{NamespacedName: name}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue == nil {
		b.early = append(b.early, req)
		return
	}
	b.queue.Add(req)
}
