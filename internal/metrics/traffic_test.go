package metrics_test

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"chancery.dev/internal/acme"
	chancerymetrics "chancery.dev/internal/metrics"
)

// TestACME: requests are counted, whatever an issuer calls its server; twice registered is registered once.
func TestACME(t *testing.T) {
	t.Parallel()
	if _, err := chancerymetrics.NewACME(); err != nil {
		t.Fatal(err)
	}
	a, err := chancerymetrics.NewACME()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []acme.Observation{
		{Action: acme.ActionDiscover, Method: "GET", Scheme: "https", Host: "\xff.invalid"},
		{Action: acme.ActionGetOrder, Method: "POST", Scheme: "https", Host: "ca.test", Status: 200, Duration: time.Second},
	} {
		a.Observe(o)
	}
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := family.GetName()
			for _, l := range m.GetLabel() {
				labels += " " + l.GetValue()
			}
			got[labels] = m.GetCounter().GetValue() + m.GetSummary().GetSampleSum()
		}
	}
	for _, name := range []string{
		"certmanager_http_acme_client_request_count discover ?.invalid GET https 999",
		"certmanager_http_acme_client_request_count get_order ca.test POST https 200",
		"certmanager_http_acme_client_request_duration_seconds get_order ca.test POST https 200",
	} {
		if got[name] != 1 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
}
