package responderservices

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/machine/service"
)

// live is a Manager whose cache shows what the API server has.
type live struct {
	ctrl.Manager

	api client.Client
}

func (m live) GetCache() cache.Cache { return liveCache{api: m.api} }

type liveCache struct {
	cache.Cache

	api client.Client
}

func (c liveCache) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return c.api.List(ctx, into, opts...)
}

// world has the Service of a namespace, and Challenges that need it.
type world struct {
	services

	api     client.Client
	on      *opensAndEnds
	queue   controller.Queue
	service *corev1.Service
	// listed counts the Challenges that were listed, each time that one was.
	listed int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w, scheme := &world{}, runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{acmev1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w.service = service.New("shop", corev1.ServiceTypeClusterIP, nil)
	w.service.UID = "1"
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.service).
		WithIndex(&acmev1.Challenge{}, needIndex, w.needs).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				err := api.List(ctx, list, opts...)
				if found, ok := list.(*acmev1.ChallengeList); ok {
					w.listed += len(found.Items)
				}
				return err
			},
		}).Build()
	w.services = services{
		Deps: &controller.Deps{Client: ownwrites.New(w.api, time.Now), Manager: live{api: w.api}}, users: informers.NewFollowing(),
	}
	w.on = &opensAndEnds{handler.EnqueueRequestsFromMapFunc(w.leadsTo), &w.services}
	w.queue = controller.NewQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(w.queue.ShutDown)
	return w
}

// needed looks at the Service, and reports whether it was queued, and whether a Challenge needs it.
func (w *world) needed(t *testing.T) (queued, needed bool) {
	t.Helper()
	for ; w.queue.Len() > 0; queued = true {
		item, _ := w.queue.Get()
		w.queue.Done(item)
	}
	s, err := w.observe(t.Context(), &pass{Object: w.service, Memory: &time.Time{}})
	if err != nil {
		t.Fatal(err)
	}
	return queued, s.Needed
}

func (w *world) create(t *testing.T, name string) *acmev1.Challenge {
	t.Helper()
	c := &acmev1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	c.Spec.Solver.HTTP01 = &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{ServiceType: corev1.ServiceTypeClusterIP}}
	if err := w.api.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *world) set(t *testing.T, c *acmev1.Challenge, state acmev1.State) event.UpdateEvent {
	t.Helper()
	old := c.DeepCopy()
	c.Status.State = state
	if err := w.api.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return event.UpdateEvent{ObjectOld: old, ObjectNew: c}
}

// TestAServiceIsNeededAsLongAsAChallengeIsOpen: also where the watch has not told of it yet, and where one that was
// over is open again. The Service is queued when a Challenge comes and when it ends.
func TestAServiceIsNeededAsLongAsAChallengeIsOpen(t *testing.T) {
	w := newWorld(t)
	expect := func(what string, queued, needed bool) {
		t.Helper()
		if q, n := w.needed(t); q != queued || n != needed {
			t.Errorf("%s: queued %t, needed %t; want %t, %t", what, q, n, queued, needed)
		}
	}
	expect("no Challenge", false, false)
	a := w.create(t, "a")
	expect("the watch has not told yet", false, true)
	w.on.Create(t.Context(), event.CreateEvent{Object: a}, w.queue)
	expect("it has", true, true)
	w.on.Update(t.Context(), w.set(t, a, acmev1.Pending), w.queue)
	expect("it is still open", false, true)
	w.on.Update(t.Context(), w.set(t, a, acmev1.Valid), w.queue)
	expect("it is over", true, false)
	w.on.Update(t.Context(), w.set(t, a, acmev1.Pending), w.queue)
	expect("it is open again", false, true)
	b := w.create(t, "b")
	w.on.Create(t.Context(), event.CreateEvent{Object: b, IsInInitialList: true}, w.queue)
	if err := w.api.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	w.on.Delete(t.Context(), event.DeleteEvent{Object: a}, w.queue)
	expect("one of two is gone", true, true)
	if err := w.api.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.on.Delete(t.Context(), event.DeleteEvent{Object: b}, w.queue)
	expect("the last is gone", true, false)
}

// TestChallengesOfOneServiceAreNotListedForEach: all Challenges of a namespace need one Service. As each comes and
// ends, the Service is looked at, and the others are not.
func TestChallengesOfOneServiceAreNotListedForEach(t *testing.T) {
	for _, n := range []int{25, 100} {
		w := newWorld(t)
		var all []*acmev1.Challenge
		looks := 0
		look := func() {
			if queued, _ := w.needed(t); queued {
				looks++
			}
		}
		for i := range n {
			all = append(all, w.create(t, fmt.Sprintf("c-%03d", i)))
			w.on.Create(t.Context(), event.CreateEvent{Object: all[i]}, w.queue)
			look()
		}
		for _, c := range all {
			w.on.Update(t.Context(), w.set(t, c, acmev1.Valid), w.queue)
			look()
		}
		if looks != 2*n || w.listed > looks {
			t.Errorf("%d Challenges: %d looks at their Service listed %d, want %d looks, and one for each at most", n, looks, w.listed, 2*n)
		}
		t.Logf("%d Challenges: %d looks at their Service listed %d", n, looks, w.listed)
	}
}

// TestChallengesThatNeedNoServiceAreNotListed: where routes lead straight to the responder, no Service exists. As each
// Challenge is presented and ends, nothing is looked at. After a start, the Service of one that is in flight is looked
// for.
func TestChallengesThatNeedNoServiceAreNotListed(t *testing.T) {
	w := newWorld(t)
	if err := w.api.Delete(t.Context(), w.service); err != nil {
		t.Fatal(err)
	}
	for i := range 25 {
		c := w.create(t, fmt.Sprintf("c-%03d", i))
		w.on.Create(t.Context(), event.CreateEvent{Object: c}, w.queue)
		c.Status.Processing, c.Status.Presented = true, true
		w.on.Update(t.Context(), w.set(t, c, acmev1.Processing), w.queue)
		if i%2 == 0 {
			w.on.Update(t.Context(), w.set(t, c, acmev1.Valid), w.queue)
		} else {
			w.on.Delete(t.Context(), event.DeleteEvent{Object: c}, w.queue)
		}
		if w.queue.Len() > 0 {
			t.Fatal("the Service that does not exist is queued")
		}
	}
	c := w.create(t, "in-flight")
	c.Status.Presented = true
	w.on.Create(t.Context(), event.CreateEvent{Object: c, IsInInitialList: true}, w.queue)
	if w.queue.Len() != 1 {
		t.Error("the Service of a Challenge that is in flight is not queued")
	}
}
