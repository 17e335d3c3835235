package metrics

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme/accounts"
	acmeclient "chancery.dev/internal/acme/client"
)

// noAnswer is the label status of a request without an answer.
const noAnswer = "999"

// ACME counts the requests to ACME servers, and says which issuers wait because a server has asked for a pause.
type ACME struct {
	count  *prometheus.CounterVec
	took   *prometheus.SummaryVec
	parked *prometheus.GaugeVec
}

// NewACME registers the counts; there is one of each in a process.
func NewACME() (*ACME, error) {
	labels := []string{"scheme", "host", "action", "method", "status"}
	count, err := Register(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "certmanager_http_acme_client_request_count", Help: "Requests to ACME servers, by what they were for. Status 999 means that no answer came.",
	}, labels))
	if err != nil {
		return nil, err
	}
	took, err := Register(prometheus.NewSummaryVec(prometheus.SummaryOpts{
		Name: "certmanager_http_acme_client_request_duration_seconds", Help: "How long requests to ACME servers took, in seconds.",
		Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001}, AgeBuckets: 2, BufCap: 64,
	}, labels))
	if err != nil {
		return nil, err
	}
	parked, err := Register(prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "chancery_issuer_parked_until_timestamp_seconds", Help: "Until when nothing is sent for the issuer's ACME account, because the server " +
			"wants that, in seconds since 1970; 0 or past if it does not.",
	}, []string{"kind", "namespace", "name"}))
	return &ACME{count: count, took: took, parked: parked}, err
}

// Follow makes the metrics follow the ACME accounts of issuers. Call it before the accounts are used.
func (a *ACME) Follow(registry *accounts.Registry) {
	registry.Watch(func(i accounts.Issuer, _ accounts.Change) {
		kind := cmmeta.DefaultIssuerKind
		if i.Namespace == "" {
			kind = cmmeta.ClusterIssuerKind
		}
		account, bound := registry.Of(i.UID)
		if !bound {
			a.parked.DeleteLabelValues(kind, i.Namespace, i.Name)
			return
		}
		until, _ := account.Parked()
		a.parked.WithLabelValues(kind, i.Namespace, i.Name).Set(seconds(&metav1.Time{Time: until}))
	})
}

// Observe counts a request that is over. The host name comes from an issuer, and may have every character that a URL
// can have.
func (a *ACME) Observe(o acmeclient.Observation) {
	status := noAnswer
	if o.Status != 0 {
		status = strconv.Itoa(o.Status)
	}
	labels := []string{o.Scheme, strings.ToValidUTF8(o.Host, "?"), string(o.Action), o.Method, status}
	if count, err := a.count.GetMetricWithLabelValues(labels...); err == nil {
		count.Inc()
	}
	if took, err := a.took.GetMetricWithLabelValues(labels...); err == nil {
		took.Observe(o.Duration.Seconds())
	}
}

// Venafi counts the requests to Certificate Manager.
type Venafi struct {
	took      *prometheus.SummaryVec
	tokens    *prometheus.CounterVec
	tokenTook prometheus.Histogram
	tokenCall string
}

// NewVenafi registers the counts; there is one of each in a process. tokenCall is what requests for tokens are called.
func NewVenafi(tokenCall string) (*Venafi, error) {
	took, err := Register(prometheus.NewSummaryVec(prometheus.SummaryOpts{
		Name: "certmanager_http_venafi_client_request_duration_seconds", Help: "How long requests to Certificate Manager took, in seconds.",
		Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001}, AgeBuckets: 2, BufCap: 64,
	}, []string{"api_call"}))
	if err != nil {
		return nil, err
	}
	tokens, err := Register(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "certmanager_venafi_oauth_token_requests_total", Help: "Requests for OAuth tokens of Certificate Manager.",
	}, []string{"status"}))
	if err != nil {
		return nil, err
	}
	tokenTook, err := Register(prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "certmanager_venafi_oauth_token_request_duration_seconds", Help: "How long requests for OAuth tokens took, in seconds.",
		Buckets: []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	}))
	return &Venafi{took, tokens, tokenTook, tokenCall}, err
}

// Observe counts a request that is over; status is 0 if no answer came.
func (v *Venafi) Observe(call string, status int, took time.Duration) {
	v.took.WithLabelValues(call).Observe(took.Seconds())
	if call != v.tokenCall {
		return
	}
	result := "failure"
	if status == http.StatusOK {
		result = "success"
	}
	v.tokens.WithLabelValues(result).Inc()
	v.tokenTook.Observe(took.Seconds())
}

// Register registers a metric, or returns the one that is registered already: in tests several
// managers run in one process.
func Register[C prometheus.Collector](c C) (C, error) {
	err := metrics.Registry.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if known, ok := already.ExistingCollector.(C); ok {
			return known, nil
		}
	}
	return c, err
}
