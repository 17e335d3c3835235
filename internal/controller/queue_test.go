package controller_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/rig/growth"
)

func newQueue() controller.Queue {
	return controller.NewQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// TestThousandStopsUnderLoad: workers leave a queue that is shut down while they work and others add to it. With
// controller-runtime's queue (v0.24.1) about one stop of three hundred hangs for ever.
func TestThousandStopsUnderLoad(t *testing.T) {
	t.Parallel()
	for range 1000 {
		queue, began := newQueue(), make(chan struct{}, 1)
		var workers, adders sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for {
					item, stopped := queue.Get()
					if stopped {
						return
					}
					select {
					case began <- struct{}{}:
					default:
					}
					queue.Done(item)
				}
			})
		}
		for range 2 {
			adders.Go(func() {
				for i := 0; !queue.ShuttingDown(); i++ {
					queue.Add(request(strconv.Itoa(i % 100)))
				}
			})
		}
		<-began
		queue.ShutDown()
		left := make(chan struct{})
		go func() {
			workers.Wait()
			close(left)
		}()
		select {
		case <-left:
		case <-time.After(2 * time.Minute): // as rig.Patience
			t.Fatal("workers are still there after two minutes")
		}
		adders.Wait()
	}
}

// TestQueueEndsAtOnce: what is queued when a queue is shut down is not worked on. At a start ten thousand objects are
// queued, and a stop has seconds.
func TestQueueEndsAtOnce(t *testing.T) {
	t.Parallel()
	queue := newQueue()
	for i := range 10_000 {
		queue.Add(request(strconv.Itoa(i)))
	}
	item, _ := queue.Get()
	queue.ShutDown()
	queue.Done(item)
	if item, shutdown := queue.Get(); !shutdown {
		t.Errorf("%s is handed out after the end", item)
	}
}

// TestNamespacesTakeTurns: an object of another namespace waits for one pass of a namespace whose objects wait by the
// thousand, not for all of them; the objects of a namespace keep their order.
func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	q := newQueue()
	t.Cleanup(q.ShutDown)
	item := func(namespace string, n int) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: strconv.Itoa(n)}}
	}
	const many = 1000
	for n := range many {
		q.Add(item("many", n))
	}
	q.Add(item("few", 0))
	q.Add(item("few", 1))
	var got []reconcile.Request
	for range many + 2 {
		next, _ := q.Get()
		got = append(got, next)
		q.Done(next)
	}
	want := []reconcile.Request{item("many", 0), item("few", 0), item("many", 1), item("few", 1), item("many", 2)}
	if !slices.Equal(got[:len(want)], want) || got[many+1] != item("many", many-1) || q.Len() != 0 {
		t.Errorf("%v …, %v, %d left; want %v …", got[:len(want)], got[many+1], q.Len(), want)
	}
}

// TestForgottenItemsDoNotComeBack: an object that is gone is not remembered until the day of its renewal. All others
// are looked at when the last pass said so.
func TestForgottenItemsDoNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		q, began := newQueue(), time.Now()
		defer q.ShutDown()
		for i, name := range []string{"gone", "failed", "renewed"} {
			q.AddAfter(request(name), time.Duration(i+1)*day)
		}
		q.Forget(request("gone"))
		q.AddRateLimited(request("failed"))
		q.Forget(request("renewed"))
		q.AddAfter(request("renewed"), 60*day)
		for _, want := range []struct {
			name string
			at   time.Duration
		}{{"failed", 0}, {"failed", 2 * day}, {"renewed", 60 * day}} {
			item, _ := q.Get()
			q.Done(item)
			if at := time.Since(began).Round(time.Hour); item.Name != want.name || at != want.at {
				t.Errorf("%s after %s, want %s after %s", item.Name, at, want.name, want.at)
			}
		}
		<-time.After(90 * day)
		if q.Len() > 0 {
			t.Errorf("%d items are left", q.Len())
		}
	})
}

// TestTurnsGrow: what waits is put in and taken out for what it is, not for its square.
func TestTurnsGrow(t *testing.T) {
	growth.Linear(t, 20_000, func(n int) func() {
		return func() {
			q := newQueue()
			defer q.ShutDown()
			for i := range n {
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: strconv.Itoa(i % 100), Name: strconv.Itoa(i)}})
			}
			for q.Len() > 0 {
				item, _ := q.Get()
				q.Done(item)
			}
		}
	})
}
