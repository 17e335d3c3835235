package certificates_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// TestBadInputIsSaidOnce makes Certificates that the schema lets through and that can
// not be had: a condition says what is wrong with which field, and nothing is tried
// again before that changes.
func TestBadInputIsSaidOnce(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	const issuing, ready = certmanagerv1.CertificateConditionIssuing, certmanagerv1.CertificateConditionReady
	cases := map[string]struct {
		change func(*certmanagerv1.CertificateSpec)
		where  certmanagerv1.CertificateConditionType
		says   string
	}{
		"literal": {func(s *certmanagerv1.CertificateSpec) { s.LiteralSubject = "CN=foo,O=" }, issuing, "value of O: it is empty"},
		"uri":     {func(s *certmanagerv1.CertificateSpec) { s.URIs = []string{"https://foo..bar/"} }, issuing, "foo..bar"},
		"idn":     {func(s *certmanagerv1.CertificateSpec) { s.DNSNames = []string{"bücher.example.com"} }, issuing, "xn--"},
		"ranges": {func(s *certmanagerv1.CertificateSpec) {
			s.IsCA, s.NameConstraints = true, &certmanagerv1.NameConstraints{Permitted: &certmanagerv1.NameConstraintItem{IPRanges: []string{"here to there"}}}
		}, issuing, "here to there"},
		"oid": {func(s *certmanagerv1.CertificateSpec) {
			s.OtherNames = []certmanagerv1.OtherName{{OID: "9.9.9", UTF8Value: "x"}}
		}, issuing, "9.9.9"},
		"size": {func(s *certmanagerv1.CertificateSpec) { s.PrivateKey.Size = 257 }, issuing, "257"},
		"password": {func(s *certmanagerv1.CertificateSpec) {
			ref := cmmeta.SecretKeySelector{Name: "root", Key: "nonesuch"}
			s.Keystores = &certmanagerv1.CertificateKeystores{JKS: &certmanagerv1.JKSKeystore{Create: true, PasswordSecretRef: ref}}
		}, issuing, `has nothing in "nonesuch"`},
		"nobody": {func(s *certmanagerv1.CertificateSpec) { s.DNSNames, s.LiteralSubject = nil, "  " }, issuing, "set commonName or dnsNames"},
		"domains": {func(s *certmanagerv1.CertificateSpec) {
			s.IsCA, s.NameConstraints = true, &certmanagerv1.NameConstraints{Permitted: &certmanagerv1.NameConstraintItem{URIDomains: []string{"10.0.0.1"}}}
		}, issuing, `URI constraint "10.0.0.1"`},
		"label": {func(s *certmanagerv1.CertificateSpec) {
			s.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"team": "two words"}}
		}, issuing, "metadata.labels"},
		"annotation": {func(s *certmanagerv1.CertificateSpec) {
			s.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Annotations: map[string]string{"note": strings.Repeat("x", 300_000)}}
		}, issuing, "Too long"},
		"unicode": {func(s *certmanagerv1.CertificateSpec) {
			s.Keystores = &certmanagerv1.CertificateKeystores{PKCS12: &certmanagerv1.PKCS12Keystore{Create: true, Password: new("\U0001F511")}}
		}, issuing, "keystore.p12"},
		"many": {func(s *certmanagerv1.CertificateSpec) {
			s.OtherNames = []certmanagerv1.OtherName{{OID: "1.2.3", UTF8Value: strings.Repeat("x", 100_000)}}
		}, issuing, "more bytes of PEM than the 95000"},
		"cron": {func(s *certmanagerv1.CertificateSpec) {
			s.Renewal = &certmanagerv1.CertificateRenewal{Policy: "RenewBefore", Windows: []certmanagerv1.CertificateRenewalWindow{{Cron: "5-1 * * * *", WindowDuration: metav1.Duration{Duration: time.Hour}}}}
		}, ready, "spec.renewal.windows[0]"},
		"zone": {func(s *certmanagerv1.CertificateSpec) {
			s.Renewal = &certmanagerv1.CertificateRenewal{Policy: "RenewBefore", Windows: []certmanagerv1.CertificateRenewalWindow{{Cron: "@daily", WindowDuration: metav1.Duration{Duration: time.Hour}, Timezone: "Mars/Olympus"}}}
		}, ready, "Mars/Olympus"},
	}
	for name, c := range cases {
		crt := newCertificate(w, name, "ca")
		c.change(&crt.Spec)
		crt.Namespace = w.Namespace
		if err := w.Client.Create(t.Context(), crt); err != nil {
			t.Logf("%s: the schema refuses it: %v", name, err)
			delete(cases, name)
		}
	}
	if len(cases) < 12 {
		t.Errorf("the schema refuses all but %d: the test shows little", len(cases))
	}
	said := map[string]*certmanagerv1.Certificate{}
	for name, c := range cases {
		rig.Eventually(t, name+" is said", func(ctx context.Context) string {
			crt := &certmanagerv1.Certificate{}
			if err := w.Get(ctx, name, crt); err != nil {
				return err.Error()
			}
			found := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, c.where)
			// Ready says it, too, perhaps with a write of its own: only words differ then, which waits for seconds.
			last := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, ready)
			said[name] = crt
			return wants(found != nil && strings.Contains(found.Message, c.says) && last != nil && strings.Contains(last.Message, c.says),
				fmt.Sprintf("%+v", crt.Status.Conditions))
		})
	}
	// Meanwhile another one is issued, twice: whoever retries would have.
	for _, name := range []string{"good", "better"} {
		w.Create(t, newCertificate(w, name, "ca"))
		awaitReady(t, w, name)
	}
	for name, c := range cases {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(t.Context(), name, crt); err != nil {
			t.Fatal(err)
		}
		if c.where == issuing && crt.ResourceVersion != said[name].ResourceVersion {
			t.Errorf("%s was written to again: %s", name, cmp.Diff(said[name], crt))
		}
	}
}
