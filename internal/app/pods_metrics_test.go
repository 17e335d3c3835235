package app_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/rig"
)

// TestPodMetrics: metrics count what is issued and denied, as long as the issuer exists, and tell what waits. What a
// request calls its issuer makes no series.
func TestPodMetrics(t *testing.T) {
	t.Parallel()
	w := newPodWorld(t)
	w.annotate(t, "pods", certmanagerv1.PodCertificatesForAnnotation, "all")
	ours := "issuers.cert-manager.io/" + w.Namespace + "."
	for _, pod := range []struct {
		name, signerName string
		annotations      map[string]string
		condition        string
	}{
		{"issued", ours + "pods", nil, certificatesv1.PodCertificateRequestConditionTypeIssued},
		{"denied", ours + "pods", map[string]string{"example.com/x": "y"}, certificatesv1.PodCertificateRequestConditionTypeDenied},
		{"denied-elsewhere", "issuers.cert-manager.io/kube-system.made-up", nil, certificatesv1.PodCertificateRequestConditionTypeDenied},
		{"missing", ours + "made-up", nil, ""},
		{"unsuited", ours + "own", nil, ""},
	} {
		pcr, _ := w.PodRequest(t, pod.name, "web", pod.signerName, x509.CertificateRequest{})
		pcr.Spec.UnverifiedUserAnnotations = pod.annotations
		if err := w.kubelet.Create(t.Context(), pcr); err != nil {
			t.Fatal(err)
		}
		if pod.condition != "" {
			w.finished(t, pcr, pod.condition)
		}
	}
	const counts, none = "chancery_pod_certificate_requests_", `kind="",namespace="",name="",`
	of := func(name string) string {
		return fmt.Sprintf(`kind="Issuer",namespace="%s",name="%s",`, w.Namespace, name)
	}
	want := []string{
		counts + "total{" + of("pods") + `result="issued",reason=""} 1`,
		counts + "total{" + of("pods") + `result="denied",reason="` + certificatesv1.PodCertificateRequestConditionInvalidUserConfig + `"} 1`,
		counts + "total{" + of("pods") + `result="denied",reason="` + podrequest.ReasonStubNames + `"} 0`,
		counts + "total{" + of("own") + `result="issued",reason=""} 0`,
		counts + "total{" + none + `result="denied",reason="` + podrequest.ReasonOtherNamespace + `"} 1`,
		counts + "waiting{" + none + `reason="` + podrequest.ReasonIssuerMissing + `"} 1`,
		counts + "waiting{" + of("own") + `reason="` + podrequest.ReasonIssuerType + `"} 1`,
		counts + "oldest_seconds{" + none + `reason="` + podrequest.ReasonIssuerMissing + `"} `,
	}
	rig.Eventually(t, "the metrics of Pods", func(ctx context.Context) string {
		told, err := w.scrape(ctx)
		if err != nil {
			return err.Error()
		}
		for _, line := range want {
			if !strings.Contains(told, "\n"+line) {
				return line + " is missing in\n" + told
			}
		}
		if strings.Contains(told, "made-up") {
			return "what a request names is in\n" + told
		}
		return ""
	})
	for _, name := range []string{"pods", "own"} {
		if err := w.Client.Delete(t.Context(), &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	missing := counts + "waiting{" + none + `reason="` + podrequest.ReasonIssuerMissing + `"} 2`
	rig.Eventually(t, "the metrics do not name issuers that are deleted", func(ctx context.Context) string {
		told, err := w.scrape(ctx)
		switch {
		case err != nil:
			return err.Error()
		case strings.Contains(told, of("pods")), strings.Contains(told, of("own")), !strings.Contains(told, "\n"+missing+"\n"):
			return told
		default:
			return ""
		}
	})
}

// scrape is what the controller tells about requests of Pods.
func (w *podWorld) scrape(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.metrics+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	all, err := io.ReadAll(res.Body)
	if err == nil && !strings.Contains(string(all), "\nprocess_start_time_seconds ") {
		err = errors.New("process_start_time_seconds is missing, which the alert ChanceryPodRequestsDenied needs")
	}
	_, told, _ := strings.Cut(string(all), "# HELP chancery_pod")
	told, _, _ = strings.Cut(told, "# HELP certmanager")
	return told, err
}
