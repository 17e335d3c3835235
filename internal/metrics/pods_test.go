package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/metrics"
)

const (
	podCounts = `chancery_pod_certificate_requests_total{kind="",namespace="",name="",result="issued",reason=""} 1
chancery_pod_certificate_requests_total{kind="",namespace="",name="",result="denied",reason="InvalidUnverifiedUserAnnotations"} 0
chancery_pod_certificate_requests_total{kind="",namespace="",name="",result="denied",reason="IssuerOfOtherNamespace"} 1
chancery_pod_certificate_requests_total{kind="",namespace="",name="",result="denied",reason="RequestNamesSomething"} 0
chancery_pod_certificate_requests_total{kind="",namespace="",name="",result="denied",reason="UnsupportedKeyType"} 0
chancery_pod_certificate_requests_total{kind="ClusterIssuer",namespace="",name="pods",result="issued",reason=""} 2
chancery_pod_certificate_requests_total{kind="ClusterIssuer",namespace="",name="pods",result="denied",reason="InvalidUnverifiedUserAnnotations"} 0
chancery_pod_certificate_requests_total{kind="ClusterIssuer",namespace="",name="pods",result="denied",reason="IssuerOfOtherNamespace"} 0
chancery_pod_certificate_requests_total{kind="ClusterIssuer",namespace="",name="pods",result="denied",reason="RequestNamesSomething"} 0
chancery_pod_certificate_requests_total{kind="ClusterIssuer",namespace="",name="pods",result="denied",reason="UnsupportedKeyType"} 1
`
	podWaits = `# HELP chancery_pod_certificate_requests_waiting How many PodCertificateRequests wait, by the issuer, if it exists, and the reason.
# TYPE chancery_pod_certificate_requests_waiting gauge
chancery_pod_certificate_requests_waiting{kind="",namespace="",name="",reason="IssuerMissing"} 1
chancery_pod_certificate_requests_waiting{kind="Issuer",namespace="shop",name="own",reason="SignerForbidden"} 2
# HELP chancery_pod_certificate_requests_oldest_seconds How long ago the oldest of the PodCertificateRequests was created that wait, in seconds.
# TYPE chancery_pod_certificate_requests_oldest_seconds gauge
chancery_pod_certificate_requests_oldest_seconds{kind="",namespace="",name="",reason="IssuerMissing"} 0
chancery_pod_certificate_requests_oldest_seconds{kind="Issuer",namespace="shop",name="own",reason="SignerForbidden"} 90
`
)

// TestPodRequests: each replica tells what it has finished, and the one that leads what waits. An issuer that has gone
// takes its counts along, and what is finished for it later makes no series.
func TestPodRequests(t *testing.T) {
	t.Parallel()
	now, leads, m := time.Unix(1_764_000_000, 0), true, metrics.NewPodRequests()
	h := metrics.Handler(prometheus.NewRegistry(), &metrics.Controller{
		Objects: func() (metrics.Objects, bool) { return metrics.Objects{}, false }, Leads: func() bool { return leads }, Now: func() time.Time { return now }, Pods: m,
	}, logr.Discard())
	if got, _ := get(t, h, "", ""); strings.Contains(got, "pod") {
		t.Errorf("without Pods:\n%s", got)
	}
	pods, gone, own := types.NamespacedName{Name: "pods"}, types.NamespacedName{Namespace: "shop", Name: "gone"}, types.NamespacedName{Namespace: "shop", Name: "own"}
	for _, issuer := range []types.NamespacedName{{}, pods, gone} {
		m.AddIssuer(issuer)
	}
	m.Finished(pods, "")
	m.Finished(pods, "UnsupportedKeyType")
	m.AddIssuer(pods) // its counts go on
	m.Finished(pods, "")
	m.Finished(gone, "")
	m.RemoveIssuer(gone)
	m.Finished(gone, "")
	m.Finished(types.NamespacedName{}, "IssuerOfOtherNamespace")
	wait := func(request string, issuer types.NamespacedName, reason string, age time.Duration) {
		m.Waits(types.UID(request), metrics.PodWait{Issuer: issuer, Reason: reason, Since: now.Add(-age)})
	}
	wait("a", own, "IssuerNotReady", time.Hour)
	wait("a", own, "SignerForbidden", 30*time.Second)
	wait("b", own, "SignerForbidden", 90*time.Second)
	wait("c", types.NamespacedName{}, "IssuerMissing", -time.Second) // the clock of the API server is ahead
	wait("d", own, "CAEndsSoon", time.Hour)
	m.Gone("d")
	for accept, kind := range map[string]string{
		"": "# TYPE chancery_pod_certificate_requests_total counter\n", "application/openmetrics-text;version=1.0.0": "# TYPE chancery_pod_certificate_requests counter\n",
	} {
		if got, _ := get(t, h, accept, ""); !strings.Contains(got, kind+podCounts+podWaits) {
			t.Errorf("%q: told\n%s\nwant\n%s", accept, got, kind+podCounts+podWaits)
		}
	}
	leads = false
	if got, _ := get(t, h, "", ""); !strings.Contains(got, podCounts) || strings.Contains(got, "requests_waiting") || strings.Contains(got, "oldest") {
		t.Errorf("told although another replica leads:\n%s", got)
	}
}
