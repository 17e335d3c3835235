package app

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	registry "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"chancery.dev/internal/engine"
	"chancery.dev/internal/metrics"
)

// objectMetrics lists the objects whose metrics are added to those of the process. Only the replica that leads has
// metrics of objects: if two replicas had them, each alert would be raised twice.
type objectMetrics struct {
	cfg Config
	// manager and term are set before anybody asks.
	manager ctrl.Manager
	term    *engine.Term
}

// filter returns a metricsserver.Options.FilterProvider. It serves the metrics of the process and, unless controller is
// nil, those of the controller.
func filter(controller *metrics.Controller) func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		return func(log logr.Logger, _ http.Handler) (http.Handler, error) {
			return metrics.Handler(registry.Registry, controller, log), nil
		}, nil
	}
}

// leads reports whether this replica works: the caches have synced before.
func (t *objectMetrics) leads() bool {
	select {
	case <-t.manager.Elected():
		return !t.term.Over()
	default:
		return false
	}
}

// objects is a metrics.Source.
func (t *objectMetrics) objects() (metrics.Objects, bool) {
	if !t.cfg.runs(ControllerMetrics) {
		return metrics.Objects{}, false
	}
	if !t.leads() {
		return metrics.Objects{}, false
	}
	return metrics.Objects{Reader: t.manager.GetCache(), ClusterIssuers: !t.cfg.scope().NamespacedOnly}, true
}
