package kubecache

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
	// started says that the caches have synced that were there at the start. What comes late waits for itself: a
	// controller has GetInformer do it.
	started *atomic.Bool
}

// NewStoppable returns what ctrl.Options.NewCache wants.
func NewStoppable(stop context.Context) cache.NewCacheFunc {
	return func(config *rest.Config, opts cache.Options) (cache.Cache, error) {
		c, err := cache.New(config, opts)
		return stoppable{c, stop, new(atomic.Bool)}, err
	}
}

// WaitForCacheSync waits until what was there at the start has synced. Controllers ask for it, and none is to wait for
// what another one reads.
func (s stoppable) WaitForCacheSync(ctx context.Context) bool {
	if !s.started.Load() && s.waitForAll(ctx) {
		s.started.Store(true)
	}
	return s.started.Load()
}

// WaitForAll waits until all that a cache holds now has synced.
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
