package kubecache

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// NewPagedInformer is toolscache.NewSharedIndexInformer for clusters with many objects. It lists in pages, and keeps of
// each page only what the informer's transform leaves. Informers otherwise stream the objects as events of a watch,
// which needs no less memory, three times the CPU in the API server, and twice the CPU here.
func NewPagedInformer(lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	listed := newPages(lw, nil)
	return pagedInformer{toolscache.NewSharedIndexInformer(listed, kind, resync, indexers), listed}
}

// pagedInformer tells its pages how objects are transformed.
type pagedInformer struct {
	toolscache.SharedIndexInformer

	pages *pages
}

// SetTransform implements toolscache.SharedInformer, which MUST NOT be running yet.
func (i pagedInformer) SetTransform(transform toolscache.TransformFunc) error {
	i.pages.transform = transform
	return i.SharedIndexInformer.SetTransform(transform)
}

// pages is a toolscache.ListerWatcherWithContext whose lists are of transformed objects.
type pages struct {
	toolscache.ListerWatcher
	toolscache.ListerWatcherWithContext

	transform toolscache.TransformFunc
}

func newPages(lw toolscache.ListerWatcher, transform toolscache.TransformFunc) *pages {
	return &pages{ListerWatcher: lw, ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(lw), transform: transform}
}

// IsWatchListSemanticsUnSupported has a reflector list, and not stream.
func (*pages) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements toolscache.ListerWithContext.
func (p *pages) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = "" // a reflector takes any version, but the API server has no pages of version 0
	}
	page, err := p.ListerWatcherWithContext.ListWithContext(ctx, o)
	if err != nil || p.transform == nil {
		return page, err
	}
	about, err := meta.ListAccessor(page)
	if err != nil {
		return nil, err
	}
	out := &internalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion: about.GetResourceVersion(), Continue: about.GetContinue(), RemainingItemCount: about.GetRemainingItemCount(),
	}}
	return out, meta.EachListItemWithAlloc(page, func(item runtime.Object) error {
		kept, err := p.transform(item)
		if err != nil {
			return err
		}
		object, ok := kept.(runtime.Object)
		if !ok {
			return fmt.Errorf("a %T has been transformed into a %T, which is no object", item, kept)
		}
		out.Items = append(out.Items, object)
		return nil
	})
}
