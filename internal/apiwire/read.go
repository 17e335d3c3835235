package apiwire

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// NewCache is a cache.NewCacheFunc: cache.New, but for how our kinds are read. A cache of
// certain namespaces reads in the usual way.
func NewCache(config *rest.Config, opts cache.Options) (cache.Cache, error) {
	if len(opts.DefaultNamespaces) > 0 {
		return cache.New(config, opts) // an informer is not told which of them it is for
	}
	c := newConnection(config, opts.HTTPClient, opts.Scheme)
	inform := opts.NewInformer
	if inform == nil {
		inform = toolscache.NewSharedIndexInformer
	}
	opts.NewInformer = func(lw toolscache.ListerWatcher, like runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
		if k, ours := kindOf(like); ours {
			lw = &reader{connection: c, kind: k, like: like}
		}
		return inform(lw, like, resync, by)
	}
	return cache.New(config, opts)
}

// reader is a toolscache.ListerWatcherWithContext for all objects like one.
type reader struct {
	*connection

	kind kind
	like runtime.Object
}

// List implements toolscache.Lister.
func (r *reader) List(o metav1.ListOptions) (runtime.Object, error) {
	return r.ListWithContext(context.Background(), o)
}

// ListWithContext implements toolscache.ListerWithContext.
func (r *reader) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	req, err := r.get(&o)
	if err != nil {
		return nil, err
	}
	body, err := answer(req.Do(ctx))
	if err != nil {
		return nil, err
	}
	return decodeList(body, r.like, r.kind)
}

// Watch implements toolscache.Watcher.
func (r *reader) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return r.WatchWithContext(context.Background(), o)
}

// WatchWithContext implements toolscache.WatcherWithContext.
func (r *reader) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch, o.AllowWatchBookmarks = true, true
	req, err := r.get(&o)
	if err != nil {
		return nil, err
	}
	body, err := req.Stream(ctx)
	if err != nil {
		return nil, err
	}
	events := &events{body: body, lines: bufio.NewReader(body), like: r.like, kind: r.kind}
	failures := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
	return watch.NewStreamWatcherWithLogger(klog.FromContext(ctx), events, failures), nil
}

// get asks for all objects of the kind.
func (r *reader) get(o *metav1.ListOptions) (*rest.Request, error) {
	api, err := r.of(r.kind)
	if err != nil {
		return nil, err
	}
	return api.Get().Resource(r.kind.resource).VersionedParams(o, r.params), nil
}

// events is a watch.Decoder. The API server writes each event on a line of its own.
type events struct {
	body  io.ReadCloser
	lines *bufio.Reader
	long  []byte // of a line that is longer than lines' buffer
	like  runtime.Object
	kind  kind
}

// Decode implements watch.Decoder.
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	line, err := e.line()
	if err != nil {
		return "", nil, err
	}
	return decodeEvent(line, e.like, e.kind)
}

// line returns the next line, which is overwritten by the one after it.
func (e *events) line() ([]byte, error) {
	e.long = e.long[:0]
	for {
		part, err := e.lines.ReadSlice('\n')
		switch {
		case err == nil && len(e.long) == 0:
			return part, nil
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
			e.long = append(e.long, part...)
			if err == nil {
				return e.long, nil
			}
		case errors.Is(err, io.EOF) && len(e.long)+len(part) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// Close implements watch.Decoder.
func (e *events) Close() { _ = e.body.Close() } // nobody reads on
