package informers

import (
	"context"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// stoppable is a cache that nothing waits for once stop has ended: the manager would wait for ever for a cache that
// cannot sync, and would never stop.
type stoppable struct {
	cache.Cache

	stop context.Context //nolint:containedctx // the life of the App, which outlives the waiting
	// started says that the informers of the start have synced. A controller that adds an informer later waits for it
	// by GetInformer.
	started *atomic.Bool
}

// NewStoppable returns a function for ctrl.Options.NewCache. The waits of its caches end with stop.
func NewStoppable(stop context.Context) cache.NewCacheFunc {
	return func(config *rest.Config, opts cache.Options) (cache.Cache, error) {
		c, err := cache.New(config, opts)
		return stoppable{c, stop, new(atomic.Bool)}, err
	}
}

// WaitForCacheSync waits until the informers of the start have synced. Controllers call it, and no controller should
// wait for the later informers of another one.
func (s stoppable) WaitForCacheSync(ctx context.Context) bool {
	if !s.started.Load() && s.waitForAll(ctx) {
		s.started.Store(true)
	}
	return s.started.Load()
}

// WaitForAll waits until all informers that a cache has now have synced.
func WaitForAll(ctx context.Context, c cache.Cache) bool {
	if s, ok := c.(stoppable); ok {
		return s.waitForAll(ctx)
	}
	return c.WaitForCacheSync(ctx)
}

// waitForAll is true too when all has to stop.
func (s stoppable) waitForAll(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stop, cancel)()
	return s.Cache.WaitForCacheSync(ctx) || s.stop.Err() != nil
}
