package informers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"

	"chancery.dev/internal/limits"
)

// NewPagedInformer is toolscache.NewSharedIndexInformer for clusters with many objects. It lists in pages, and keeps of
// each page only what the informer's transform leaves. Informers otherwise stream the objects as events of a watch,
// which needs no less memory, three times the CPU in the API server, and twice the CPU here.
func NewPagedInformer(lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	listed := NewPages(lw, nil)
	return pagedInformer{toolscache.NewSharedIndexInformer(listed, kind, resync, indexers), listed}
}

// pagedInformer tells its pages how objects are transformed.
type pagedInformer struct {
	toolscache.SharedIndexInformer

	pages *Pages
}

// SetTransform implements toolscache.SharedInformer, which MUST NOT be running yet.
func (i pagedInformer) SetTransform(transform toolscache.TransformFunc) error {
	i.pages.transform = transform
	return i.SharedIndexInformer.SetTransform(transform)
}

// fullPage is how many objects a page has at most. If a page is larger than limits.ListBytes, the next pageStep pages
// ask for as many objects as fitted last, or for an eighth as many if no page has fitted. Otherwise each page asks for
// an eighth more than the one before.
const (
	fullPage = 500
	pageStep = 8
)

// errPageTooLarge says that a page is larger than limits.ListBytes.
var errPageTooLarge = errors.New("the page is too large")

// Pages is a toolscache.ListerWatcherWithContext whose lists are of transformed objects, a page of which has
// limits.ListBytes at most if the client's transport is BoundLists.
type Pages struct {
	toolscache.ListerWatcher
	toolscache.ListerWatcherWithContext

	transform toolscache.TransformFunc
	limit     int64  // objects of the next page
	fitted    int64  // objects of the last page that was not too large; 0 for none
	patience  int    // pages before more objects are asked for
	text      []byte // the buffer for pages, until the list is complete
}

// NewPages returns Pages of objects as transform leaves them; nil leaves them as they are.
func NewPages(lw toolscache.ListerWatcher, transform toolscache.TransformFunc) *Pages {
	return &Pages{ListerWatcher: lw, ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(lw), transform: transform, limit: fullPage}
}

// pageKey is the key of the context of a request for a page. Its value is the buffer for the page, a *[]byte.
type pageKey struct{}

// page lists some of the objects: as many as make a page that is not too large, or one.
func (p *Pages) page(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	for {
		o.Limit = p.limit
		within := ctx
		if p.limit > 1 {
			within = context.WithValue(ctx, pageKey{}, &p.text)
		}
		page, err := p.ListerWatcherWithContext.ListWithContext(within, o)
		switch {
		case err == nil:
			p.fitted = p.limit
			if p.patience--; p.patience < 0 {
				p.limit = min(p.limit+p.limit/pageStep+1, fullPage)
			}
			return page, nil
		case !errors.Is(err, errPageTooLarge):
			p.text = nil // the list is over
			return nil, err
		}
		if p.fitted > 0 && p.fitted < p.limit {
			p.limit, p.patience = p.fitted, pageStep
		} else {
			p.limit, p.patience = max(p.limit/pageStep, 1), 0
		}
	}
}

// BoundLists bounds the pages of a client whose informers are paged: strangers choose how large objects are.
func BoundLists(next http.RoundTripper) http.RoundTripper { return boundLists{next} }

type boundLists struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundLists) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	text, paged := r.Context().Value(pageKey{}).(*[]byte)
	if err != nil || !paged {
		return resp, err
	}
	read, err := readPage(resp.Body, text)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(read))
	return resp, nil
}

// usualPage is the size of a buffer for a page, in bytes. A larger page gets one of the largest size: memory that a
// process has not had before costs more time than what is read into it.
const usualPage = 1 << 20

// readPage reads a page into a buffer, and makes the buffer where it is too small.
func readPage(body io.Reader, text *[]byte) ([]byte, error) {
	if *text == nil {
		*text = make([]byte, usualPage)
	}
	for n := 0; ; {
		if n > limits.ListBytes {
			return nil, errPageTooLarge
		}
		if n == len(*text) {
			*text = append(make([]byte, 0, limits.ListBytes+1), *text...)[:limits.ListBytes+1]
		}
		more, err := body.Read((*text)[n:])
		n += more
		if errors.Is(err, io.EOF) && n <= limits.ListBytes {
			return (*text)[:n], nil
		} else if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (b boundLists) WrappedRoundTripper() http.RoundTripper { return b.next }

// IsWatchListSemanticsUnSupported makes a reflector list objects, and not stream them.
func (*Pages) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements toolscache.ListerWithContext.
func (p *Pages) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.ResourceVersion = "" // a reflector takes any version, but the API server has no pages of version 0
	page, err := p.page(ctx, o)
	if o.Continue != "" && apierrors.IsResourceExpired(err) {
		// After this error a pager asks for all objects at once. It would take one page of ours for all.
		return nil, errors.New("the list took so long that it begins anew: " + err.Error())
	}
	if err != nil {
		return nil, err
	}
	about, err := meta.ListAccessor(page)
	if err != nil {
		return nil, err
	}
	if about.GetContinue() == "" {
		p.text = nil
	}
	if p.transform == nil {
		return page, nil
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
