package controller_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	runtimemetrics "runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/rig"
)

// newQueue returns a queue whose first back-off is a second, and that ends with the test.
func newQueue(t *testing.T, name string) priorityqueue.PriorityQueue[reconcile.Request] {
	t.Helper()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Hour)
	queue, ok := controller.NewQueue(name, limiter).(priorityqueue.PriorityQueue[reconcile.Request])
	if !ok {
		t.Fatal("the queue knows no priorities: handlers would not use them")
	}
	t.Cleanup(queue.ShutDown)
	return queue
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func low(after time.Duration) priorityqueue.AddOpts {
	return priorityqueue.AddOpts{Priority: new(handler.LowPriority), After: after}
}

// taken takes all that waits, a pass each, and returns its names, those of low priority as
// "(name)".
func taken(queue priorityqueue.PriorityQueue[reconcile.Request]) string {
	var names []string
	for queue.Len() > 0 {
		item, priority, _ := queue.GetWithPriority()
		switch priority {
		case 0:
			names = append(names, item.Name)
		case handler.LowPriority:
			names = append(names, "("+item.Name+")")
		}
		queue.Done(item)
	}
	return strings.Join(names, " ")
}

// step lets time pass in a synctest bubble.
func step(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's clock
	synctest.Wait()
}

func TestQueueOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		add  func(priorityqueue.PriorityQueue[reconcile.Request])
		want string
	}{
		"first come first served": {func(q priorityqueue.PriorityQueue[reconcile.Request]) {
			q.AddWithOpts(priorityqueue.AddOpts{}, request("a"), request("b"))
			q.Add(request("c"))
		}, "a b c"},
		"low after normal": {func(q priorityqueue.PriorityQueue[reconcile.Request]) {
			q.AddWithOpts(low(0), request("a"), request("b"))
			q.AddWithOpts(priorityqueue.AddOpts{Priority: new(1)}, request("c"))
			q.Add(request("d"))
		}, "c d (a) (b)"},
		"each once": {func(q priorityqueue.PriorityQueue[reconcile.Request]) {
			q.AddWithOpts(low(0), request("a"), request("b"), request("a"))
			q.AddWithOpts(priorityqueue.AddOpts{}, request("c"), request("d"), request("c"))
		}, "c d (a) (b)"},
		"one moves up": {func(q priorityqueue.PriorityQueue[reconcile.Request]) {
			q.AddWithOpts(low(0), request("a"), request("b"), request("c"))
			q.AddWithOpts(priorityqueue.AddOpts{}, request("d"), request("b"))
		}, "d b (a) (c)"},
		"none moves down": {func(q priorityqueue.PriorityQueue[reconcile.Request]) {
			q.AddWithOpts(priorityqueue.AddOpts{}, request("a"), request("b"))
			q.AddWithOpts(low(0), request("c"), request("a"))
		}, "a b (c)"},
		"what moved up is low again": {func(q priorityqueue.PriorityQueue[reconcile.Request]) {
			q.AddWithOpts(low(0), request("a"), request("b"))
			q.Add(request("a"))
			taken(q)
			q.AddWithOpts(low(0), request("b"), request("a"))
			q.Add(request("c"))
		}, "c (b) (a)"},
	} {
		t.Run(name, func(t *testing.T) {
			queue := newQueue(t, "order")
			tc.add(queue)
			if got := taken(queue); got != tc.want {
				t.Errorf("taken in the order %q, want %q", got, tc.want)
			}
		})
	}
}

// TestQueueOncePerItem: what is added during its pass gets one more, after it, with the
// highest priority asked for.
func TestQueueOncePerItem(t *testing.T) {
	queue := newQueue(t, "once")
	for _, tc := range []struct {
		during []priorityqueue.AddOpts
		want   string
	}{
		{nil, "(y)"},
		{[]priorityqueue.AddOpts{low(0), low(0)}, "(y) (x)"},
		{[]priorityqueue.AddOpts{low(0), {}}, "x (y)"},
		{[]priorityqueue.AddOpts{{}, low(0)}, "x (y)"},
	} {
		queue.Add(request("x"))
		item, _, _ := queue.GetWithPriority()
		for _, o := range tc.during {
			queue.AddWithOpts(o, item)
		}
		if n := queue.Len(); n != 0 {
			t.Errorf("%d items may be taken during the pass of the only one", n)
		}
		queue.AddWithOpts(low(0), request("y"))
		queue.Done(item)
		if got := taken(queue); got != tc.want {
			t.Errorf("after the pass %q are taken, want %q", got, tc.want)
		}
	}
}

// TestQueueDelays: of several delays the first to end counts, a pass makes all void, and
// priorities outlast them.
func TestQueueDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t, "delays")
		after := func(d time.Duration, want string) {
			t.Helper()
			step(d - time.Nanosecond)
			if got := taken(queue); got != "" {
				t.Errorf("%q are taken before the delay of %s ends", got, d)
			}
			step(time.Nanosecond)
			if got := taken(queue); got != want {
				t.Errorf("%q are taken after %s, want %q", got, d, want)
			}
		}
		a := request("a")
		queue.AddAfter(a, 3*time.Hour)
		queue.AddAfter(a, time.Hour)
		queue.AddAfter(a, 2*time.Hour)
		after(time.Hour, "a")
		after(24*time.Hour, "")

		queue.AddWithOpts(low(time.Hour), a, request("b"), request("c"))
		queue.AddAfter(a, 2*time.Hour)
		queue.AddAfter(request("c"), 59*time.Minute)
		queue.AddWithOpts(low(58*time.Minute), request("c"))
		after(58*time.Minute, "c")
		after(2*time.Minute, "a (b)")

		queue.AddAfter(a, 0)
		queue.AddAfter(a, -time.Second)
		if got := taken(queue); got != "a" {
			t.Errorf("%q are taken at once, want %q", got, "a")
		}

		// A pass that begins: whatever was to come later is decided anew.
		queue.AddAfter(a, time.Hour)
		queue.Add(a)
		item, _ := queue.Get()
		queue.AddAfter(a, 2*time.Hour)
		queue.Done(item)
		after(2*time.Hour, "a")
		after(24*time.Hour, "")
	})
}

func TestQueueBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t, "back-off")
		a := request("a")
		start := time.Now()
		at := func(want time.Duration, wantPriority int) {
			t.Helper()
			item, priority, _ := queue.GetWithPriority()
			if waited := time.Since(start); waited != want || priority != wantPriority {
				t.Errorf("%s is taken after %s with priority %d, want after %s with %d", item, waited, priority, want, wantPriority)
			}
			queue.Done(item)
			start = time.Now()
		}
		queue.AddRateLimited(a)
		at(time.Second, 0)
		queue.AddWithOpts(priorityqueue.AddOpts{RateLimited: true, Priority: new(handler.LowPriority)}, a)
		at(2*time.Second, handler.LowPriority)
		queue.AddWithOpts(priorityqueue.AddOpts{RateLimited: true, After: time.Second}, a)
		at(time.Second, 0)
		queue.AddWithOpts(priorityqueue.AddOpts{RateLimited: true, After: time.Minute}, a)
		at(8*time.Second, 0)
		if n := queue.NumRequeues(a); n != 4 {
			t.Errorf("%d failures are known, want 4", n)
		}
		queue.Forget(a)
		queue.AddRateLimited(a)
		at(time.Second, 0)
	})
}

// TestQueueShutDown: workers leave at once, though there is work, and nothing stays behind:
// synctest.Test does not return before all goroutines have.
func TestQueueShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t, "shutdown")
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				if item, shutdown := queue.Get(); !shutdown {
					t.Errorf("%s is handed out", item)
				}
			})
		}
		queue.AddAfter(request("later"), time.Hour)
		synctest.Wait()
		queue.ShutDown()
		workers.Wait()
		queue.AddAfter(request("later"), time.Hour)
		queue.Add(request("now"))
		if item, shutdown := queue.Get(); !shutdown || !queue.ShuttingDown() {
			t.Errorf("%s is handed out after the end", item)
		}
		step(2 * time.Hour)
	})
	queue := newQueue(t, "shutdown")
	queue.AddWithOpts(priorityqueue.AddOpts{}, request("a"), request("b"))
	item, _ := queue.Get()
	queue.ShutDown()
	queue.Done(item)
	if item, shutdown := queue.Get(); !shutdown {
		t.Errorf("%s is handed out after the end", item)
	}
}

// TestQueueLetsItsWorkersGo ends queues at which much is going on.
func TestQueueLetsItsWorkersGo(t *testing.T) {
	for range 300 {
		queue := controller.NewQueue("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		var workers, adders sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for {
					item, stopped := queue.Get()
					if stopped {
						return
					}
					queue.Done(item)
				}
			})
		}
		adders.Go(func() {
			for i := range 200 {
				queue.Add(request(strconv.Itoa(i)))
				if i == 100 {
					go queue.ShutDown()
				}
			}
		})
		left := make(chan struct{})
		go func() {
			workers.Wait()
			close(left)
		}()
		select {
		case <-left:
		case <-time.After(10 * time.Second):
			t.Fatal("workers are still there after 10 s")
		}
		adders.Wait()
	}
}

// TestQueueLosesNothing: whatever is said of an item before it is added is seen by a pass,
// and no two passes of an item run at once.
func TestQueueLosesNothing(t *testing.T) {
	const adders, adds, items = 4, 5000, 50
	queue := newQueue(t, "stress")
	var state [items]struct {
		said, seen atomic.Int64
		busy       atomic.Bool
	}
	var adding, working sync.WaitGroup
	for range adders {
		adding.Go(func() {
			for range adds {
				i := rand.N(items)
				state[i].said.Add(1)
				o := priorityqueue.AddOpts{Priority: new(rand.N(3) - 1)}
				if rand.N(4) == 0 {
					o.After = rand.N(time.Millisecond)
				}
				queue.AddWithOpts(o, request(strconv.Itoa(i)))
			}
		})
	}
	for range 8 {
		working.Go(func() {
			for {
				item, _, shutdown := queue.GetWithPriority()
				if shutdown {
					return
				}
				i, _ := strconv.Atoi(item.Name)
				if !state[i].busy.CompareAndSwap(false, true) {
					t.Errorf("two workers have %s at once", item)
				}
				state[i].seen.Store(state[i].said.Load())
				if rand.N(8) == 0 {
					queue.AddWithOpts(low(rand.N(time.Millisecond)), item)
				}
				state[i].busy.Store(false)
				queue.Done(item)
			}
		})
	}
	adding.Wait()
	rig.Eventually(t, "all is seen", func(context.Context) string {
		for i := range state {
			if said, seen := state[i].said.Load(), state[i].seen.Load(); seen != said {
				return fmt.Sprintf("%d of what is said of item %d, not %d", seen, i, said)
			}
		}
		return ""
	})
	queue.ShutDown()
	working.Wait()
}

// TestQueueMakesNoGoroutines counts those of a thousand passes.
func TestQueueMakesNoGoroutines(t *testing.T) {
	const passes = 1000
	made := func() uint64 {
		sample := []runtimemetrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
		runtimemetrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	queue := newQueue(t, "goroutines")
	before := made()
	for i := range passes {
		queue.Add(request(strconv.Itoa(i)))
		item, _ := queue.Get()
		queue.AddAfter(item, time.Hour)
		queue.Done(item)
	}
	if n := made() - before; n > passes/10 { // others run in this process
		t.Errorf("%d goroutines are made for %d passes", n, passes)
	}
}

// TestQueueAfterRestart: what has changed since the start is handled before ten thousand
// objects that were there.
func TestQueueAfterRestart(t *testing.T) {
	const objects = 10_000
	secret := func(name, version string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	for name, h := range map[string]handler.EventHandler{
		"by name": &handler.EnqueueRequestForObject{},
		"mapped": handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return []reconcile.Request{request(o.GetName())}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			queue := newQueue(t, "restart")
			for i := range objects {
				h.Create(t.Context(), event.CreateEvent{Object: secret(strconv.Itoa(i), "1"), IsInInitialList: true}, queue)
			}
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: secret("5000", "1"), ObjectNew: secret("5000", "1")}, queue) // a resync
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: secret("7777", "1"), ObjectNew: secret("7777", "2")}, queue)
			h.Create(t.Context(), event.CreateEvent{Object: secret("new", "3")}, queue)
			got := strings.Fields(taken(queue))
			want := []string{"7777", "new", "(0)", "(1)"}
			if len(got) != objects+1 || !slices.Equal(got[:4], want) {
				t.Errorf("%d objects are handled, first %q; want %d, first %q", len(got), got[:4], objects+1, want)
			}
		})
	}
}

// TestQueueMetrics: those of every work queue, by the name of the controller.
func TestQueueMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := strconv.Itoa(rand.Int()) // metrics outlast a run of the test
		queue := newQueue(t, name)
		queue.AddAfter(request("a"), time.Second)
		step(time.Second)
		queue.AddWithOpts(low(0), request("a"), request("b"), request("c"))
		item, _ := queue.Get()
		step(1500 * time.Millisecond)
		want := map[string]float64{
			"workqueue_depth": 2, "workqueue_adds_total": 3, "workqueue_retries_total": 1, "workqueue_queue_duration_seconds": 1,
			"workqueue_work_duration_seconds": 0, "workqueue_unfinished_work_seconds": 1.5, "workqueue_longest_running_processor_seconds": 1.5,
		}
		families, err := metrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					expected, known := want[family.GetName()]
					if l.GetName() != "name" || l.GetValue() != name || !known {
						continue
					}
					delete(want, family.GetName())
					if got := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()); got != expected {
						t.Errorf("%s is %v, want %v", family.GetName(), got, expected)
					}
				}
			}
		}
		if len(want) > 0 {
			t.Errorf("not exposed: %v", want)
		}
		queue.Done(item)
	})
}
