package controller_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"chancery.dev/internal/controller"
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
		case <-time.After(10 * time.Second):
			t.Fatal("workers are still there after 10 s")
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
