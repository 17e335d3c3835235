package order_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"

	"chancery.dev/internal/machine/order"
)

// chainFrom is a self-made chain of one certificate with an issuer name.
func chainFrom(t *testing.T, issuer string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: issuer}}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, parent, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestChainMatches(t *testing.T) {
	first, second := chainFrom(t, "Old Root"), append(chainFrom(t, "Old Root"), chainFrom(t, "New Root")...)
	equal(t, order.ChainMatches("Old Root", first), true)
	equal(t, order.ChainMatches("New Root", first), false)
	equal(t, order.ChainMatches("New Root", second), true)
	equal(t, order.ChainMatches("New Root", nil), false)
	equal(t, order.ChainMatches("New Root", []byte("not PEM")), false)
}
