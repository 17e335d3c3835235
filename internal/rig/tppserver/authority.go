package tppserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"chancery.dev/internal/pki"
)

// Authority is a CA: it makes the certificates of servers, and those that they issue.
type Authority struct {
	// Certificate is the CA's own.
	Certificate *x509.Certificate

	key crypto.Signer
	// above leads to the root.
	above []*x509.Certificate
}

// NewAuthority returns a CA that parent has signed; a root if parent is nil.
func NewAuthority(name string, parent *Authority) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{key: key}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	by := &Authority{Certificate: template, key: key}
	if parent != nil {
		by, a.above = parent, append([]*x509.Certificate{parent.Certificate}, parent.above...)
	}
	a.Certificate, err = by.sign(template, key.Public())
	return a, err
}

func (a *Authority) sign(template *x509.Certificate, key crypto.PublicKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, key, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Issue returns the certificate for a request and the chain to the root, in PEM. It is
// valid for an hour.
func (a *Authority) Issue(csrPEM string) ([]byte, error) {
	csr, err := pki.DecodeCSR([]byte(csrPEM))
	if err != nil {
		return nil, err
	}
	leaf, err := a.sign(&x509.Certificate{
		Subject: csr.Subject, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, csr.PublicKey)
	if err != nil {
		return nil, err
	}
	return pki.EncodeCertificates(append([]*x509.Certificate{leaf, a.Certificate}, a.above...)...), nil
}

// Serve starts a server on the loopback address, with a certificate by this authority,
// until the test ends.
func (a *Authority) Serve(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.sign(&x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key.Public())
	if err != nil {
		t.Fatal(fmt.Errorf("a certificate for the server: %w", err))
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}
