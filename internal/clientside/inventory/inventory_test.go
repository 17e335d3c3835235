package inventory

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

func certificate(name string) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
}

func cluster(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	source := func(o client.Object) []string { return []string{o.(*corev1.Event).Source.Component} }
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).WithIndex(&corev1.Event{}, "source", source).Build()
}

// TestRead: what may not be read is said.
func TestRead(t *testing.T) {
	t.Parallel()
	read := 0
	c := cluster(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		read++
		if _, is := list.(*certmanagerv1.ClusterIssuerList); is {
			return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
		}
		return c.List(ctx, list, o...)
	}}, certificate("web"), &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "agent", UID: "agent"}})
	for name, test := range map[string]struct {
		scope                 Scope
		objects, lists, wrong int
	}{
		"a namespace":     {Scope{Namespace: "shop"}, 1, 6, 1},
		"Orders anywhere": {Scope{Namespace: "shop", AllOrders: true}, 2, 6, 1},
		"everywhere":      {Scope{}, 2, 6, 1},
		"issuers alone":   {Scope{OnlyIssuers: true}, 0, 2, 1},
	} {
		read = 0
		i, err := Read(t.Context(), c, test.scope)
		if err != nil {
			t.Fatal(err)
		}
		if len(i.Objects()) != test.objects || read != test.lists || len(i.Unread()) != test.wrong {
			t.Errorf("%s: %d objects with %d requests, unread: %v", name, len(i.Objects()), read, i.Unread())
		}
	}
}

// TestChangesWithoutEnd: what changes again and again is shown all the same.
func TestChangesWithoutEnd(t *testing.T) {
	t.Parallel()
	c := cluster(t, interceptor.Funcs{Watch: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
		events := make(chan watch.Event)
		if _, is := list.(*certmanagerv1.CertificateList); is {
			go func() {
				for ctx.Err() == nil {
					select {
					case events <- watch.Event{Type: watch.Modified, Object: certificate("restless")}:
					case <-ctx.Done():
					}
				}
			}()
		}
		return watch.NewProxyWatcher(events), nil
	}})
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute) // as rig.Patience
	defer stop()
	seen := errors.New("seen")
	err := Follow(ctx, c, Scope{}, func(i *Inventory, changed bool) error {
		if changed && len(i.Certificates(labels.Everything())) == 1 {
			return seen
		}
		return nil
	}, func(err error) error { return err })
	if !errors.Is(err, seen) {
		t.Errorf("the change is not shown: %v", err)
	}
}

// TestFailuresAreToldAndTriedAgain: a failure ends it, unless it is to be tried again.
func TestFailuresAreToldAndTriedAgain(t *testing.T) {
	t.Parallel()
	away, reads := errors.New("away"), 0
	c := cluster(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		if reads++; reads <= 2 {
			return away
		}
		return c.List(ctx, list, o...)
	}}, certificate("web"))
	seen := errors.New("seen")
	show := func(*Inventory, bool) error { return seen }
	if err := Follow(t.Context(), c, Scope{}, show, func(err error) error { return err }); !errors.Is(err, away) {
		t.Errorf("the failure is not told: %v", err)
	}
	failures := 0
	err := Follow(t.Context(), c, Scope{}, show, func(err error) error {
		if errors.Is(err, seen) {
			return err
		}
		failures++
		return nil
	})
	if !errors.Is(err, seen) || failures != 1 {
		t.Errorf("after %d failures: %v", failures, err)
	}
}
