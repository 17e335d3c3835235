package acmeorder_test

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// leaf is a certificate whose issuer's key identifier is aki, with serial number 0x87.
func leaf(t *testing.T, aki []byte, key crypto.Signer) []byte {
	t.Helper()
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, SubjectKeyId: aki}
	der, err := x509.CreateCertificate(nil, &x509.Certificate{
		SerialNumber: big.NewInt(0x87), NotAfter: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
	}, parent, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return pki.EncodeCertificates(cert)
}

// ariID is what RFC 9773 §4.1 calls that leaf with the aki 0x69885b6b.
const ariID = "aYhbaw.AIc"

var aki = []byte{0x69, 0x88, 0x5b, 0x6b}

// ariServer is an ACME server of which only the directory and the renewal information are
// there, and an issuer that is set up with it.
func ariServer(t *testing.T, b *bench, directory string) *certmanagerv1.Issuer {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/dir", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"newNonce":"/n","newAccount":"/a","newOrder":"/o"` + directory + `}`))
	})
	mux.HandleFunc("/ari/"+ariID, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		_, _ = w.Write([]byte(`{"suggestedWindow":{"start":"2026-02-01T00:00:00Z","end":"2026-02-02T00:00:00Z"},"explanationURL":"https://ca.example/why"}`))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	account, err := b.accounts.Open("issuer", accounts.Server{URL: server.URL + "/dir"}, b.key)
	if err != nil {
		t.Fatal(err)
	}
	is := issuer()
	is.UID = "issuer"
	b.accounts.Bind(accounts.Issuer{UID: is.UID, Namespace: "ns", Name: "i"}, account)
	return is
}

func TestRenewalInfo(t *testing.T) {
	b := newBench(t)
	is := ariServer(t, b, `,"renewalInfo":"/ari"`)
	info, err := b.signer.RenewalInfo(t.Context(), is, leaf(t, aki, b.key))
	if err != nil || info == nil {
		t.Fatal(info, err)
	}
	if info.Start.Month() != time.February || info.End.Sub(info.Start) != 24*time.Hour || info.RetryAfter != time.Hour || info.ExplanationURL == "" {
		t.Errorf("%+v", info)
	}
	_, err = b.signer.RenewalInfo(t.Context(), is, leaf(t, []byte{1}, b.key))
	wantFault(t, err, fault.KindAfter, "ARIError", "404")
	if delay := fault.Of(err).Delay; delay != 6*time.Hour {
		t.Errorf("a certificate that the CA does not know is asked for again after %s", delay)
	}
	if info, err := b.signer.RenewalInfo(t.Context(), is, leaf(t, nil, b.key)); info != nil || err != nil {
		t.Errorf("of a certificate without an authority key identifier: %+v, %v", info, err)
	}
	_, err = b.signer.RenewalInfo(t.Context(), is, []byte("no PEM"))
	wantFault(t, err, fault.KindTerminal, "ARIError", "no renewal information")
	stranger := issuer()
	stranger.UID = "not set up"
	_, err = b.signer.RenewalInfo(t.Context(), stranger, leaf(t, aki, b.key))
	wantFault(t, err, fault.KindAfter, "ARIError", "not at hand")
	is.Spec.ACME.RenewalInformationSource = acmev1.RenewalInformationNone
	if info, err := b.signer.RenewalInfo(t.Context(), is, leaf(t, aki, b.key)); info != nil || err != nil {
		t.Errorf("of an issuer that is not to be asked: %+v, %v", info, err)
	}
}

func TestNoRenewalInfo(t *testing.T) {
	b := newBench(t)
	is := ariServer(t, b, "")
	if info, err := b.signer.RenewalInfo(t.Context(), is, leaf(t, aki, b.key)); info != nil || err != nil {
		t.Errorf("%+v, %v", info, err)
	}
	// From now on the directory is known, and the Order does not name what it replaces.
	if got := replacing(t, b, is, nil); got != "" {
		t.Errorf("replaces %q at a CA without renewal information", got)
	}
}

// replacing returns what the Order for a Certificate replaces, whose Secret is as change leaves it.
func replacing(t *testing.T, b *bench, is *certmanagerv1.Issuer, change func(*corev1.Secret)) string {
	t.Helper()
	crt := &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec:       certmanagerv1.CertificateSpec{SecretName: "web-tls"},
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-tls", Annotations: map[string]string{
			certmanagerv1.IssuerNameAnnotation: "i", certmanagerv1.IssuerKindAnnotation: "Issuer", certmanagerv1.IssuerGroupAnnotation: "cert-manager.io",
		}},
		Data: map[string][]byte{cmmeta.TLSCertKey: leaf(t, aki, b.key)},
	}
	if change != nil {
		change(secret)
	}
	if err := b.api.Create(t.Context(), crt); err != nil {
		t.Fatal(err)
	}
	if err := b.api.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	cr, r := request(b.csr(t, "", "a.example.com"))
	cr.Annotations[certmanagerv1.CertificateNameAnnotation] = "web"
	replaces, err := b.signer.Replaces(t.Context(), is, r)
	if err != nil {
		t.Fatal(err)
	}
	return replaces
}

// TestReplaces: RFC 9773 §5, spec §3.4.
func TestReplaces(t *testing.T) {
	none := issuer()
	none.Spec.ACME.RenewalInformationSource = acmev1.RenewalInformationNone
	for name, c := range map[string]struct {
		issuer *certmanagerv1.Issuer
		change func(*corev1.Secret)
		want   string
	}{
		"the same issuer": {issuer(), nil, ariID},
		"the same issuer, with defaults": {issuer(), func(s *corev1.Secret) {
			s.Annotations = map[string]string{certmanagerv1.IssuerNameAnnotation: "i"}
		}, ariID},
		"another issuer":     {issuer(), func(s *corev1.Secret) { s.Annotations[certmanagerv1.IssuerNameAnnotation] = "j" }, ""},
		"another kind":       {issuer(), func(s *corev1.Secret) { s.Annotations[certmanagerv1.IssuerKindAnnotation] = "ClusterIssuer" }, ""},
		"not a certificate":  {issuer(), func(s *corev1.Secret) { s.Data[cmmeta.TLSCertKey] = []byte("x") }, ""},
		"another Secret":     {issuer(), func(s *corev1.Secret) { s.Name = "other" }, ""},
		"the issuer says no": {none, nil, ""},
		"it cannot be named": {issuer(), func(s *corev1.Secret) { s.Data[cmmeta.TLSCertKey] = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := replacing(t, newBench(t), c.issuer, c.change); got != c.want {
				t.Errorf("replaces %q, want %q", got, c.want)
			}
		})
	}
}
