package kubecache

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
