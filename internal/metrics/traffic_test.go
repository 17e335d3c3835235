package metrics_test

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	acmeclient "chancery.dev/internal/acme/client"
	chancerymetrics "chancery.dev/internal/metrics"
)

// TestACME: requests are counted, whatever an issuer calls its server; twice registered is registered
// once.
func TestACME(t *testing.T) {
	t.Parallel()
	if _, err := chancerymetrics.NewACME(); err != nil {
		t.Fatal(err)
	}
	a, err := chancerymetrics.NewACME()
	if err != nil {
		t.Fatal(err)
	}
	run := time.Now().Format("150405.000000000") // the counts are the process's
	odd, host := "\xff.invalid"+run, "ca.test"+run
	for _, o := range []acmeclient.Observation{
		{Action: acmeclient.ActionDiscover, Method: "GET", Scheme: "https", Host: odd},
		{Action: acmeclient.ActionGetOrder, Method: "POST", Scheme: "https", Host: host, Status: 200, Duration: time.Second},
	} {
		a.Observe(o)
	}
	a.Observe(acmeclient.Observation{Action: acmeclient.ActionDiscover, Method: "GET", Scheme: "https", Host: host, Status: 200})
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
	for name, want := range map[string]float64{
		"count discover ?.invalid" + run + " GET https 999":      1,
		"count get_order " + host + " POST https 200":            1,
		"count discover " + host + " GET https 200":              1,
		"duration_seconds get_order " + host + " POST https 200": 1,
	} {
		if name = "certmanager_http_acme_client_request_" + name; got[name] != want {
			t.Errorf("%s is %v, not %v", name, got[name], want)
		}
	}
}
