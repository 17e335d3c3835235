package app

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"chancery.dev/internal/controller"
)

// TestAddedWhileItStops: a manager stops at once, though controllers are being added to it.
func TestAddedWhileItStops(t *testing.T) {
	t.Parallel()
	for range 500 {
		m, err := ctrl.NewManager(&rest.Config{Host: "http://192.0.2.1"}, ctrl.Options{
			Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(10 * time.Second),
		})
		if err != nil {
			t.Fatal(err)
		}
		a := &adding{Manager: m}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Start(ctx) }()
		<-a.Elected()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					err := a.Add(manager.RunnableFunc(func(ctx context.Context) error {
						<-ctx.Done()
						return nil
					}))
					if err != nil {
						if !errors.Is(err, controller.ErrStopping) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
}
