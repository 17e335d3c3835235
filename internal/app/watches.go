package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	lru "k8s.io/apimachinery/pkg/util/cache"
	toolscache "k8s.io/client-go/tools/cache"
)

// watches knows what is wrong with the watches of the API server. A missing right shows nowhere else: nothing happens.
type watches struct {
	log logr.Logger

	troubles *lru.LRUExpireCache // by what is watched, words
}

// troubleFor is how long a trouble counts as said.
const troubleFor = 24 * time.Hour

// maxTroubles is more than there are watches.
const maxTroubles = 1000

func newWatches(log logr.Logger) *watches {
	return &watches{log: transientAsInfo(log), troubles: lru.NewLRUExpireCache(maxTroubles)}
}

// failed is a toolscache.WatchErrorHandlerWithContext. It logs each error once: the reflector tries again for ever.
func (w *watches) failed(ctx context.Context, r *toolscache.Reflector, err error) {
	if err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the watch has ended in order, or is started again
	}
	what, text := r.TypeDescription(), err.Error()
	before, _ := w.troubles.Get(what)
	w.troubles.Add(what, text, troubleFor)
	switch {
	case before == text:
	case apierrors.IsForbidden(err):
		w.log.Error(err, "a right is missing: grant it to the controller's service account, or run chancery install again")
	default:
		w.log.Error(err, "cannot watch, trying again")
	}
}

// said is the last error of each watch; nil if there was none.
func (w *watches) said() error {
	var all []string
	for _, what := range w.troubles.Keys() {
		if text, ok := w.troubles.Get(what); ok {
			all = append(all, fmt.Sprint(text))
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return errors.New("the API server said: " + strings.Join(slices.Compact(all), "; "))
}
