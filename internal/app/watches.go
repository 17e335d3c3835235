package app

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// watches knows what is wrong with the watches of the API server. A missing right shows nowhere else: nothing happens.
type watches struct {
	log logr.Logger

	mu       sync.Mutex
	troubles map[string]string // by what is watched
}

func newWatches(log logr.Logger) *watches {
	return &watches{log: log, troubles: map[string]string{}}
}

// failed is a toolscache.WatchErrorHandlerWithContext. It logs each error once: the reflector tries again for ever.
func (w *watches) failed(ctx context.Context, r *toolscache.Reflector, err error) {
	if err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the watch has ended in order, or is started again
	}
	what, text := r.TypeDescription(), err.Error()
	w.mu.Lock()
	news := w.troubles[what] != text
	w.troubles[what] = text
	w.mu.Unlock()
	switch {
	case !news:
	case apierrors.IsForbidden(err):
		w.log.Error(err, "a right is missing: grant it to the controller's service account, or run chancery install again")
	default:
		w.log.Error(err, "cannot watch, trying again")
	}
}

// said is the last error of each watch; nil if there was none.
func (w *watches) said() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, text := range w.troubles {
		all = append(all, text)
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return errors.New("the API server said: " + strings.Join(slices.Compact(all), "; "))
}

// stoppable is a cache that nothing waits for once stop has ended: the manager would wait for ever for a cache that
// cannot sync, and would never stop.
type stoppable struct {
	cache.Cache

	stop context.Context //nolint:containedctx // the life of the App, which outlives the waiting
}

// newStoppable returns what ctrl.Options.NewCache wants.
func newStoppable(stop context.Context) cache.NewCacheFunc {
	return func(config *rest.Config, opts cache.Options) (cache.Cache, error) {
		c, err := cache.New(config, opts)
		return stoppable{c, stop}, err
	}
}

// WaitForCacheSync waits until the cache has synced; it is true too when all has to stop.
func (s stoppable) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stop, cancel)()
	return s.Cache.WaitForCacheSync(ctx) || s.stop.Err() != nil
}
