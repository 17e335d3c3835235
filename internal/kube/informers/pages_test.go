package informers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

// TestInformerListsInPages: a start asks for pages, never for a stream or for everything at
// once, and each page is transformed before the next is asked for.
func TestInformerListsInPages(t *testing.T) {
	const pages = 3
	var mu sync.Mutex
	var asked []string
	var transformed int
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			page, _ := strconv.Atoi(o.Continue) // none is the first
			asked = append(asked, o.Continue)
			if o.ResourceVersion != "" || o.Limit == 0 || transformed != page*2 {
				return nil, errors.New("asked in the wrong way, or too early")
			}
			list := &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
			if page+1 < pages {
				list.Continue = strconv.Itoa(page + 1)
			}
			for _, name := range []string{"a", "b"} {
				list.Items = append(list.Items, corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: name + strconv.Itoa(page)}, Data: map[string][]byte{"body": {1}},
				})
			}
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil || o.ResourceVersion != "7" {
				t.Errorf("a watch is opened with %+v", o)
			}
			return watch.NewFake(), nil
		},
	}
	informer := NewPagedInformer(lw, &corev1.Secret{}, 0, toolscache.Indexers{})
	err := informer.SetTransform(func(obj any) (any, error) {
		secret, ok := obj.(*corev1.Secret)
		if !ok || secret.Data == nil {
			return obj, nil
		}
		mu.Lock()
		transformed++
		mu.Unlock()
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret.Name}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // as rig.Patience
	defer cancel()
	go informer.RunWithContext(ctx)
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("never synced")
	}
	var names []string
	for _, obj := range informer.GetStore().List() {
		secret, ok := obj.(*corev1.Secret)
		if !ok || secret.Data != nil {
			t.Fatalf("kept: %+v", obj)
		}
		names = append(names, secret.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"a0", "a1", "a2", "b0", "b1", "b2"}) || !slices.Equal(asked, []string{"", "1", "2"}) {
		t.Errorf("asked for %q and know %q", asked, names)
	}
}

// TestListThatExpires: a list whose next page the API server has forgotten begins anew. It does not end with the pages
// that were read.
func TestListThatExpires(t *testing.T) {
	expired := false
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			page, _ := strconv.Atoi(o.Continue) // none is the first
			if page == 1 && !expired {
				expired = true
				return nil, apierrors.NewResourceExpired("The provided continue parameter is too old")
			}
			list := &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Secret{
				{ObjectMeta: metav1.ObjectMeta{Name: "a" + strconv.Itoa(page)}},
			}}
			if page < 2 {
				list.Continue = strconv.Itoa(page + 1)
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	informer := NewPagedInformer(lw, &corev1.Secret{}, 0, toolscache.Indexers{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go informer.RunWithContext(ctx)
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("never synced")
	}
	if known := informer.GetStore().ListKeys(); len(known) != 3 {
		t.Errorf("it knows %q", known)
	}
}

// TestPagesAreBounded: of objects as large as the API server takes, as few are read at a time as have room, in order,
// and of small ones a full page.
func TestPagesAreBounded(t *testing.T) {
	bounds.Holds(t, "page of a list", func(n int) limits.Outcome {
		text, err := readPage(strings.NewReader(strings.Repeat("x", n)), new([]byte))
		if err != nil && !errors.Is(err, errPageTooLarge) || err == nil && len(text) != n {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		return bounds.Refusal(t, err, "")
	})
	const objects = 700
	large := strings.Repeat("x", limits.ListBytes/5)
	var biggest, answers int
	var asked []int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		for i := first; i < min(first+limit, objects); i++ {
			o := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%03d", i)}}
			if i < 20 {
				o.Data = map[string]string{"text": large}
			}
			list.Items = append(list.Items, o)
		}
		if first+limit < objects {
			list.Continue = strconv.Itoa(first + limit)
		}
		answers, asked = answers+1, append(asked, int64(limit))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close)
	rc := &rest.Config{Host: server.URL}
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return BoundLists(noted{next, &biggest}) })
	set, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	lw := NewPages(&toolscache.ListWatch{ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return set.CoreV1().ConfigMaps("").List(ctx, o)
	}}, func(obj any) (any, error) {
		names = append(names, obj.(*corev1.ConfigMap).Name)
		return &corev1.ConfigMap{}, nil
	})
	for o := (metav1.ListOptions{ResourceVersion: "5"}); ; {
		page, err := lw.ListWithContext(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if o.Continue = page.(metav1.ListInterface).GetContinue(); o.Continue == "" {
			break
		}
	}
	if len(names) != objects || !slices.IsSorted(names) {
		t.Errorf("%d objects, in order: %t", len(names), slices.IsSorted(names))
	}
	if biggest > limits.ListBytes+1 {
		t.Errorf("%d bytes of a page were read", biggest)
	}
	if last := asked[len(asked)-1]; last < 60 || len(asked) > 50 {
		t.Errorf("%d pages, of so many objects: %v", len(asked), asked)
	}
}

// TestFailedPage: a page that could not be read says nothing about how many objects have room, and leaves no buffer.
func TestFailedPage(t *testing.T) {
	lw := NewPages(&toolscache.ListWatch{ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
		*ctx.Value(pageKey{}).(*[]byte) = make([]byte, usualPage)
		return nil, io.ErrUnexpectedEOF
	}}, nil)
	lw.limit, lw.fitted = 100, 10
	_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
	if !errors.Is(err, io.ErrUnexpectedEOF) || lw.limit != 100 || lw.fitted != 10 || lw.text != nil {
		t.Errorf("error %v, limit %d, fitted %d, a buffer of %d bytes", err, lw.limit, lw.fitted, len(lw.text))
	}
}

// noted notes how much is read of each answer.
type noted struct {
	next http.RoundTripper
	most *int
}

// RoundTrip implements http.RoundTripper.
func (n noted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.next.RoundTrip(r)
	if err == nil {
		resp.Body = &notedBody{ReadCloser: resp.Body, of: n}
	}
	return resp, err
}

type notedBody struct {
	io.ReadCloser

	of   noted
	read int
}

// Read implements io.Reader.
func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += n
	*b.of.most = max(*b.of.most, b.read)
	return n, err
}
