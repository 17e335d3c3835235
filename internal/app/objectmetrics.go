package app

import (
	ctrl "sigs.k8s.io/controller-runtime"

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
