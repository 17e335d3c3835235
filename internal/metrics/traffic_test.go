package metrics_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"chancery.dev/internal/acme/accounts"
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
	got := gathered(t, metrics.Registry)
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

// gathered are the values of a registry, by the name and the values of the labels.
func gathered(t *testing.T, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
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
			got[labels] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetSummary().GetSampleSum()
		}
	}
	return got
}

// TestParked: the metric of each issuer says until when its account is parked, and is gone with the issuer.
func TestParked(t *testing.T) {
	t.Parallel()
	var server *httptest.Server
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Replay-Nonce", "nonce")
		switch r.URL.Path {
		case "/dir":
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"newNonce":"%[1]s/nonce","newAccount":"%[1]s/account","newOrder":"%[1]s/order"}`, server.URL)
		case "/account":
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	now := time.Unix(1_760_000_000, 0)
	registry := accounts.New(accounts.Options{
		Now:        func() time.Time { return now },
		HTTPClient: func(acmeclient.HTTPOptions) (*http.Client, error) { return server.Client(), nil },
	})
	a, err := chancerymetrics.NewACME()
	if err != nil {
		t.Fatal(err)
	}
	a.Follow(registry)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issuers := map[accounts.Issuer]string{{UID: "1", Name: "parked"}: "ClusterIssuer parked ", {UID: "2", Namespace: "parked", Name: "parked"}: "Issuer parked parked"}
	var account *accounts.Account
	for issuer := range issuers {
		if account, err = registry.Open(issuer.UID, accounts.Server{URL: server.URL + "/dir"}, key); err != nil {
			t.Fatal(err)
		}
		registry.Bind(issuer, account)
	}
	expect := func(value float64, there bool) {
		t.Helper()
		for _, labels := range issuers {
			if got, is := gathered(t, metrics.Registry)["chancery_issuer_parked_until_timestamp_seconds "+labels]; got != value || is != there {
				t.Errorf("%s: %v %v, want %v %v", labels, got, is, value, there)
			}
		}
	}
	expect(0, true)
	if err := account.Register(t.Context(), accounts.Registration{}); err == nil {
		t.Fatal("registered")
	}
	expect(1_760_000_060, true)
	for issuer := range issuers {
		registry.Release(issuer)
	}
	expect(0, false)
}
