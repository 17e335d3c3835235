package app

import (
	"context"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"chancery.dev/internal/controller"
)

// adding is a Manager that is stopped only when nothing is being added to it. A Manager of controller-runtime v0.24
// that is stopped while two controllers are added waits for GracefulShutdownTimeout, and ends with an error: the second
// Add holds a lock for reading while it waits for the loop of the group, the stop waits to write, and so the loop waits
// to read. A Manager that ends by an error of its own may still do so.
type adding struct {
	ctrl.Manager

	mu      sync.RWMutex
	stopped bool
}

// Add implements ctrl.Manager. It returns controller.ErrStopping once the Manager is stopped. It MUST NOT be called
// while the caches of the start sync: Start holds a lock of the Manager until then.
func (a *adding) Add(r manager.Runnable) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.stopped {
		return controller.ErrStopping
	}
	return a.Manager.Add(r)
}

// Start implements ctrl.Manager.
func (a *adding) Start(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		a.mu.Lock()
		a.stopped = true
		a.mu.Unlock()
		stop()
	})()
	return a.Manager.Start(running)
}
