package app

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"chancery.dev/internal/metrics"
)

// telling adds the metrics of objects to those of the process. Only the replica that leads has metrics of objects: if
// two replicas had them, each alert would be raised twice.
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
	if !t.cfg.runs(ControllerMetrics) {
		return metrics.Objects{}, false
	}
	select {
	case <-t.manager.Elected(): // the caches have synced before
	default:
		return metrics.Objects{}, false
	}
	return metrics.Objects{Reader: t.manager.GetCache(), ClusterIssuers: !t.cfg.scope().NamespacedOnly}, true
}
