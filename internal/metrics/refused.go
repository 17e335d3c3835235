package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"chancery.dev/internal/cause"
)

// NewRefused registers the count of the writes that the API server has refused. The caller calls failed for each write
// that has failed.
func NewRefused() (failed func(kind, verb string, err error), err error) {
	count, err := Register(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "chancery_refused_writes_total", Help: "Writes that the API server has refused, because of a quota, a policy or something else that " +
			"somebody has to change, by the kind of the object, what was to be done with it, and the class of the cause.",
	}, []string{"kind", "verb", "class"}))
	return func(kind, verb string, problem error) {
		if c := cause.OfWrite(problem, ""); c != nil {
			count.WithLabelValues(kind, verb, c.Class).Inc()
		}
	}, err
}
