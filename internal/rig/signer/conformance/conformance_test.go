package conformance_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/signer/conformance"
	"chancery.dev/internal/rig/tppserver"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

func TestSelfSigned(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	conformance.Run(t, w, "self", conformance.Subject{
		Spec:   certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{CRLDistributionPoints: []string{"http://crl.example.com"}}},
		OwnKey: true,
	})
}

// TestCA signs with an authority of each kind of key, two of them below a root.
func TestCA(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	roots := x509.NewCertPool()
	for _, algorithm := range []string{pki.RSA, pki.ECDSA, pki.Ed25519, pki.MLDSA87} {
		t.Run(algorithm, func(t *testing.T) {
			root := newAuthority(t, "root", algorithm, nil)
			authority := root
			if algorithm != pki.RSA {
				authority = newAuthority(t, "intermediate", algorithm, root)
			}
			roots.AddCert(root.cert)
			name := "ca-" + strings.ToLower(algorithm)
			w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{
				cmmeta.TLSCertKey: pki.EncodeCertificates(authority.cert), cmmeta.TLSPrivateKeyKey: authority.key, cmmeta.TLSCAKey: pki.EncodeCertificates(root.cert),
			}})
			conformance.Run(t, w, name, conformance.Subject{Roots: roots, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{
				SecretName: name, CRLDistributionPoints: []string{"http://crl.example.com"}, OCSPServers: []string{"http://ocsp.example.com"},
				IssuingCertificateURLs: []string{"http://ca.example.com"},
			}}})
		})
	}
}

// TestACME: Pebble takes no Ed25519 keys and makes no CA certificates.
func TestACME(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	const secret = "c2VjcmV0IG9mIHRoZSB0ZXN0"
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", secret)
	if err != nil {
		t.Fatal(err)
	}
	dns, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}}, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pebble.Start(t.Context(), pebble.Options{DNSServer: dns.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := w.Config()
	cfg.ACME.RecursiveNameservers, cfg.ACME.AuthoritativePort = []string{dns.Addr()}, dns.Port()
	w.Run(t, cfg)
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tsig"}, StringData: map[string]string{"key": secret}})
	conformance.Run(t, w, "acme", conformance.Subject{
		Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server: ca.DirectoryURL, CABundle: ca.TLSBundle, PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
			Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
				Nameserver: dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256",
				TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
			}}}},
		}},
		Keys: []string{pki.RSA, pki.ECDSA}, NoCA: true, Decides: true, Roots: ca.RootPool(),
	})
}

// TestVenafi signs by a stand-in for Certificate Manager, self-hosted; it takes no requests
// without a subject, and decides itself what a certificate is for. The library hands in no
// requests for Ed25519 keys.
func TestVenafi(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	server := tppserver.Start(t)
	spec := server.Spec("venafi")
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "venafi"}, StringData: map[string]string{"access-token": tppserver.Token}})
	roots := x509.NewCertPool()
	roots.AddCert(server.Root.Certificate)
	conformance.Run(t, w, "venafi", conformance.Subject{
		Spec: certmanagerv1.IssuerSpec{Venafi: &spec}, Keys: []string{pki.RSA, pki.ECDSA}, NoCA: true, NeedsCommonName: true, Decides: true, Roots: roots,
	})
}

// authority is a CA certificate and its key, PKCS#8 in PEM.
type authority struct {
	cert *x509.Certificate
	key  []byte
}

func newAuthority(t *testing.T, name, algorithm string, parent *authority) *authority {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: algorithm})
	must(err)
	text, err := pki.EncodePKCS8(key)
	must(err)
	csrPEM, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: name + " " + algorithm}}, key)
	must(err)
	csr, err := pki.DecodeCSR(csrPEM)
	must(err)
	usages, err := pki.ParseUsages[string](nil, true, key.Public())
	must(err)
	template, err := pki.NewTemplate(csr, pki.Issuance{NotBefore: time.Now(), Duration: 24 * time.Hour, IsCA: true, Usages: usages})
	must(err)
	by, with := template, key
	if parent != nil {
		by = parent.cert
		with, err = pki.DecodePrivateKey(parent.key)
		must(err)
	}
	cert, err := pki.Sign(template, by, with)
	must(err)
	return &authority{cert, text}
}
