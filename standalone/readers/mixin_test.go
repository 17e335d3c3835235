package readers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// TestRulesForCertManager: what people ask of cert-manager's metrics, in the rules and dashboards that are in wide use,
// has an answer here.
func TestRulesForCertManager(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_760_000_000, 0).Truncate(scrape)
	from, to := now.Add(-time.Hour).UnixMilli(), now.Add(time.Second).UnixMilli()
	s := store{}
	for _, told := range told(t, now) {
		target := labels.NewBuilder(told.labels).Set("exported_namespace", told.labels.Get("namespace")).Set("namespace", "cert-manager").Set("job", "cert-manager")
		middle, value := now.Add(-8*time.Minute).UnixMilli(), told.value
		if strings.HasSuffix(told.labels.Get(labels.MetricName), "_count") {
			value++ // counts count
		}
		s.add(target.Labels(), []span{{from, middle, told.value}, {middle, to, value}})
	}
	engine := newEngine()
	ask := func(expr string) int { return len(query(t, engine, s, expr, now, now, time.Minute)) }
	if got := ask(`absent(up{job="cert-manager"})`); got != 1 {
		t.Errorf("without a target, absent(up) has %d results", got)
	}
	s.add(labels.FromStrings(labels.MetricName, "up", "job", "cert-manager"), []span{{from, to, 1}}) // Prometheus' own
	for expr, want := range map[string]int{
		`absent(up{job="cert-manager"})`: 0,
		`avg by (exported_namespace, namespace, name) (certmanager_certificate_expiration_timestamp_seconds - time()) < (21 * 24 * 3600)`: 1, // it is 0 where there is none
		`max by (name, exported_namespace, namespace, condition) (certmanager_certificate_ready_status{condition!="True"} == 1)`:          1,
		`sum by (host) (rate(certmanager_http_acme_client_request_count{status="429"}[20m])) > 0`:                                         1,
		`certmanager_certificate_renewal_timestamp_seconds < time()`:                                                                      2,
		`sum by (condition) (certmanager_certificate_ready_status)`:                                                                       3,
		`topk(1, certmanager_certificate_not_after_timestamp_seconds - time())`:                                                           1,
		`sum by (issuer_name, issuer_kind) (certmanager_certificate_ready_status{condition="True"})`:                                      2,
		`certmanager_clock_time_seconds - time() < 60`:                                                                                    1,
		`sum by (controller) (rate(certmanager_controller_sync_call_count[20m]))`:                                                         1,
		`certmanager_issuer_ready_status{condition="False"} or certmanager_clusterissuer_ready_status{condition="Unknown"}`:               2,
		`certmanager_certificate_challenge_status{status="pending"} > 0`:                                                                  1,
		`max by (action) (certmanager_http_acme_client_request_duration_seconds{quantile="0.9"})`:                                         1,
		`sum by (method, status) (rate(certmanager_http_acme_client_request_count[20m]))`:                                                 1,
	} {
		if got := ask(expr); got < want || want == 0 && got > 0 {
			t.Errorf("%s has %d results, want %d", expr, got, want)
		}
	}
}
