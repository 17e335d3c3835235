package app

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"chancery.dev/internal/metrics"
)

// telling adds metrics of objects to those of the process. One replica tells of objects, the one
// that works: two would raise each alert twice.
type telling struct {
	cfg Config
	// manager is set before anybody asks.
	manager ctrl.Manager
}

// filter is a metricsserver.Options.FilterProvider.
func (t *telling) filter(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return metrics.Handler(next, t.objects, t.cfg.Now, log), nil
	}, nil
}

func (t *telling) objects() (metrics.Objects, bool) {
	select {
	case <-t.manager.Elected(): // the caches have synced before
	default:
		return metrics.Objects{}, false
	}
	return metrics.Objects{Reader: t.manager.GetCache(), ClusterIssuers: !t.cfg.scope().NamespacedOnly}, true
}
