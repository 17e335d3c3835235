package stories_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"chancery.dev/internal/rig"
)

// TestMetrics: alerts and dashboards that were made for cert-manager find what they look for.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	cfg := w.Config()
	cfg.MetricsAddress = rig.FreeAddress(t).String()
	w.Run(t, cfg)
	w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "web.example.com"))
	crt := awaitReady(t, w.World, "web")
	labels := fmt.Sprintf(`{name="web",namespace="%s",issuer_name="%s",issuer_kind="ClusterIssuer",issuer_group=""`, w.Namespace, w.ClusterName("acme"))
	want := []string{
		"certmanager_certificate_ready_status" + labels + `,condition="True"} 1`,
		"certmanager_certificate_ready_status" + labels + `,condition="False"} 0`,
		fmt.Sprintf("certmanager_certificate_expiration_timestamp_seconds%s} %g", labels, float64(crt.Status.NotAfter.Unix())),
		fmt.Sprintf("certmanager_certificate_renewal_timestamp_seconds%s} ", labels),
		fmt.Sprintf(`certmanager_clusterissuer_ready_status{name="%s",condition="True"} 1`, w.ClusterName("acme")),
		"# TYPE certmanager_certificate_challenge_status gauge",
		"# TYPE certmanager_issuer_ready_status gauge",
		`certmanager_controller_sync_call_count{controller="certificates"} `,
		"# TYPE certmanager_controller_sync_error_count counter",
		`certmanager_http_acme_client_request_count{action="create_order_cert",host="` + strings.TrimSuffix(strings.TrimPrefix(w.ca.DirectoryURL, "https://"), "/dir"),
		`certmanager_http_acme_client_request_duration_seconds{action="fetch_cert",`,
		"# TYPE certmanager_clock_time_seconds counter",
	}
	rig.Eventually(t, "all is told", func(ctx context.Context) string {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+cfg.MetricsAddress+"/metrics", http.NoBody)
		if err != nil {
			return err.Error()
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			return fmt.Sprintf("%s, %v", res.Status, err)
		}
		for _, line := range want {
			if !strings.Contains(string(body), "\n"+line) {
				return line + " is missing"
			}
		}
		return ""
	})
}
