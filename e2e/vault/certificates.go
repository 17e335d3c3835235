package vault

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

// Authority is a CA of a test's own.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes a CA.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{}
	a.cert, a.key = a.issue(t, name, true)
	return a
}

// PEM returns the CA's certificate.
func (a *Authority) PEM() []byte { return pki.EncodeCertificates(a.cert) }

// Pair issues a certificate for a name and for 127.0.0.1, with its key.
func (a *Authority) Pair(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	leaf, signer := a.issue(t, name, false)
	key, err := pki.EncodePKCS8(signer)
	if err != nil {
		t.Fatal(err)
	}
	return pki.EncodeCertificates(leaf), key
}

func (a *Authority) issue(t testing.TB, name string, isCA bool) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, text := NewRequest(t, pki.ECDSA, pki.CSRTemplate{
		Subject: pkix.Name{CommonName: name}, AltNames: pki.AltNames{DNSNames: []string{name}, IPAddresses: []string{"127.0.0.1"}},
	})
	csr, err := pki.DecodeCSR(text)
	if err != nil {
		t.Fatal(err)
	}
	usages, err := pki.ParseUsages([]certmanagerv1.KeyUsage{certmanagerv1.UsageServerAuth, certmanagerv1.UsageClientAuth}, isCA, csr.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	template, err := pki.NewTemplate(csr, pki.Issuance{NotBefore: time.Now().Add(-time.Hour), Duration: 24 * time.Hour, IsCA: isCA, Usages: usages})
	if err != nil {
		t.Fatal(err)
	}
	parent, parentKey := a.cert, a.key
	if parent == nil {
		parent, parentKey = template, key
	}
	cert, err := pki.Sign(template, parent, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// NewRequest makes a key and a CSR.
func NewRequest(t testing.TB, algorithm string, template pki.CSRTemplate) (crypto.Signer, []byte) {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: algorithm})
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(template, key)
	if err != nil {
		t.Fatal(err)
	}
	return key, csr
}

// writeServerPair writes tls.crt and tls.key for a server on the loopback interface,
// and returns their CA.
func writeServerPair(t testing.TB, dir string) []byte {
	t.Helper()
	ca := NewAuthority(t, "server-ca")
	cert, key := ca.Pair(t, "vault.example.com")
	for name, text := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ca.PEM()
}
