package preflight

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// TestCredentials: the controller tries the credentials of a solver, for those who may update the issuer, and nothing
// is left of that.
func TestCredentials(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tsig-other"}, StringData: map[string]string{"key": "YW5vdGhlciBzZWNyZXQ="}})
	w.issuer(t, "good", w.acme("good", "", w.byDNS("tsig")))
	w.issuer(t, "bad", w.acme("bad", "", w.byDNS("tsig-other")))
	w.issuer(t, "http", w.acme("http", "", byHTTP()))
	for issuer, want := range map[string]struct{ outcome, part string }{
		"good": {"ok", "www.example.com"},
		"bad":  {"failed", "BADSIG"},
		"http": {"not checked", "no solver of an ACME issuer writes DNS records"},
	} {
		out, err := w.run(t.Context(), ports{http: w.open}, manifest("web", issuer, `dnsNames: [www.example.com, a.example.com]`), "-", "--credentials")
		if line := lineOf(out, want.outcome, "credentials"); !strings.Contains(line, want.part) || err != nil != (issuer == "bad") {
			t.Errorf("%s: %v %s", issuer, err, out)
		}
		if strings.Contains(out, "credentials a.example.com") {
			t.Errorf("%s: one test for each zone and solver: %s", issuer, out)
		}
		at := &certmanagerv1.Issuer{}
		if err := w.Get(t.Context(), issuer, at); err != nil || at.Annotations[cmmeta.TestSolverAnnotation] != "" {
			t.Errorf("%v %v", err, at.Annotations)
		}
	}
	if left := w.dns.TXT(); len(left) > 0 {
		t.Errorf("records are left: %v", left)
	}
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "web", DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "good"},
	}})
	rig.Eventually(t, "the viewer may not ask for a test", func(ctx context.Context) string {
		out, err := w.run(ctx, ports{}, "", "web", "--credentials", "--as", w.viewer)
		if line := lineOf(out, "not checked", "credentials"); err != nil || !strings.Contains(line, "you may not update the issuer") {
			return out
		}
		return ""
	})
}
