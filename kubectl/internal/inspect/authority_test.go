package inspect

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"chancery.dev/internal/pki"
)

// authority is a CA that says by OCSP and by a CRL what it has revoked, and publishes its own certificate.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	url  string

	mu sync.Mutex
	// status is what OCSP says of a serial number: good, if nothing is here. The CRL lists what is revoked.
	status map[string]int
	// signer signs the answers of OCSP in place of the CA.
	signer *x509.Certificate
	// late makes all answers too old, and silent has none given.
	late, silent bool
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newAuthority returns a CA: a root, or one that a parent has signed.
func newAuthority(t *testing.T, name string, parent *authority) *authority {
	t.Helper()
	a := &authority{key: newKey(t), status: map[string]int{}}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.url = server.URL
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if parent == nil {
		a.cert = sign(t, template, template, a.key, a.key.Public())
		return a
	}
	a.cert = parent.issue(t, template, a.key.Public())
	return a
}

// issue signs a certificate that says where the CA is asked.
func (a *authority) issue(t *testing.T, template *x509.Certificate, public crypto.PublicKey) *x509.Certificate {
	t.Helper()
	template.OCSPServer, template.CRLDistributionPoints = []string{a.url + "/ocsp"}, []string{a.url + "/crl"}
	template.IssuingCertificateURL = []string{a.url + "/ca"}
	return sign(t, template, a.cert, a.key, public)
}

func sign(t *testing.T, template, parent *x509.Certificate, key crypto.Signer, public crypto.PublicKey) *x509.Certificate {
	t.Helper()
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(48 * time.Hour)
		if template.IsCA {
			template.NotAfter = time.Now().Add(96 * time.Hour)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// host is a template for the certificate of a server.
func host(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// says sets what OCSP says of a certificate.
func (a *authority) says(c *x509.Certificate, status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status[c.SerialNumber.String()] = status
}

func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var answer []byte
	var err error
	next := time.Now().Add(time.Hour)
	if a.late {
		next = time.Now().Add(-time.Minute)
	}
	switch {
	case a.silent:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case r.URL.Path == "/ca":
		answer = a.cert.Raw
	case r.URL.Path == "/ocsp":
		answer, err = a.answer(r.Body, next)
	default:
		answer, err = a.list(next)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(answer)
}

func (a *authority) answer(body io.Reader, next time.Time) ([]byte, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	q, err := ocsp.ParseRequest(text)
	if err != nil {
		return nil, err
	}
	template := ocsp.Response{
		Status: a.status[q.SerialNumber.String()], SerialNumber: q.SerialNumber, ThisUpdate: time.Now().Add(-2 * time.Hour), NextUpdate: next,
		RevokedAt: time.Now().Add(-time.Hour), RevocationReason: ocsp.KeyCompromise, Certificate: a.signer,
	}
	signer := a.cert
	if a.signer != nil {
		signer = a.signer
	}
	return ocsp.CreateResponse(a.cert, signer, template, a.key)
}

func (a *authority) list(next time.Time) ([]byte, error) {
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-2 * time.Hour), NextUpdate: next}
	for serial, status := range a.status {
		number, ok := new(big.Int).SetString(serial, 10)
		if ok && status == ocsp.Revoked {
			template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{
				SerialNumber: number, RevocationTime: time.Now().Add(-time.Hour), ReasonCode: 4,
			})
		}
	}
	return x509.CreateRevocationList(rand.Reader, template, a.cert, a.key)
}
