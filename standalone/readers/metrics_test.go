package readers_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	corev1 "k8s.io/api/core/v1"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// TestMetrics: alerts and dashboards that were made for cert-manager find what they look for, in the text format and in
// that of OpenMetrics, served with a certificate that the controller makes.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.cfg
	cfg.MetricsAddress = rig.FreeAddress(t).String()
	d := &cfg.MetricsTLS.Dynamic
	d.SecretNamespace, d.SecretName, d.DNSNames = w.Namespace, "metrics-ca", []string{"metrics.example.com"}
	w.Run(t, cfg)
	w.Create(t, w.issuer(), w.certificate("web", "acme", "web.example.com"))
	crt := w.awaitReady(t, "web", cmmeta.ConditionTrue)
	of := fmt.Sprintf(`{name="web",namespace="%s",issuer_name="%s",issuer_kind="ClusterIssuer",issuer_group=""`, w.Namespace, w.ClusterName("acme"))
	want := []string{
		"certmanager_certificate_ready_status" + of + `,condition="True"} 1`,
		"certmanager_certificate_ready_status" + of + `,condition="False"} 0`,
		fmt.Sprintf("certmanager_certificate_expiration_timestamp_seconds%s} %g", of, float64(crt.Status.NotAfter.Unix())),
		fmt.Sprintf("certmanager_certificate_renewal_timestamp_seconds%s} ", of),
		fmt.Sprintf(`certmanager_clusterissuer_ready_status{name="%s",condition="True"} 1`, w.ClusterName("acme")),
		"# TYPE certmanager_certificate_challenge_status gauge",
		"# TYPE certmanager_issuer_ready_status gauge",
		`certmanager_controller_sync_call_count{controller="certificates"} `,
		`certmanager_controller_sync_call_count{controller="ingress-shim"} `,
		"certmanager_controller_sync_error_count{",
		`certmanager_http_acme_client_request_count{action="create_order_cert",host="` + strings.TrimSuffix(strings.TrimPrefix(w.ca.DirectoryURL, "https://"), "/dir"),
		`certmanager_http_acme_client_request_duration_seconds{action="fetch_cert",`,
		`chancery_events_total{kind="Certificate",reason="Issuing",type="Normal"} `,
		"certmanager_clock_time_seconds ",
		"chancery_leader 1",
		`chancery_events_total{kind="Challenge",reason="CleanUpAbandoned",type="Warning"} `,
		`chancery_issuer_parked_until_timestamp_seconds{kind="ClusterIssuer",name="` + w.ClusterName("acme") + `",namespace=""} 0`,
		"# TYPE chancery_challenge_created_timestamp_seconds gauge",
	}
	var names [2]map[string]bool
	for i, format := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"} {
		rig.Eventually(t, "all is told as "+format, func(ctx context.Context) string {
			secret := &corev1.Secret{}
			if err := w.Get(ctx, d.SecretName, secret); err != nil {
				return err.Error()
			}
			body, header, err := rig.Metrics(ctx, cfg.MetricsAddress, format, d.DNSNames[0], secret.Data["ca.crt"])
			if err != nil {
				return err.Error()
			}
			for _, line := range want {
				if !strings.Contains(body, "\n"+line) {
					return line + " is missing"
				}
			}
			if got := header.Get("Content-Type"); !strings.HasPrefix(strings.ReplaceAll(got, "; ", ";"), format) {
				return "the format is " + got
			}
			samples, err := parse(body, header.Get("Content-Type"))
			if err != nil {
				return err.Error()
			}
			names[i] = map[string]bool{}
			for _, s := range samples {
				names[i][s.labels.Get(labels.MetricName)] = true
			}
			return ""
		})
	}
	if !maps.Equal(names[0], names[1]) || len(names[0]) < 100 {
		t.Errorf("the names of samples differ:\n%v\n%v", names[0], names[1])
	}
}
