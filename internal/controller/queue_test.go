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
				queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: strconv.Itoa(i)}})
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
