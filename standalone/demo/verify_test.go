package demo

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign makes a certificate of a day; nil parent and signer mean its own.
func sign(t *testing.T, template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(1)
	template.NotBefore, template.NotAfter = time.Unix(1_000_000_000, 0), time.Unix(1_000_086_400, 0)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Everything that can be wrong with a certificate is found.
func TestCheck(t *testing.T) {
	rootKey, key := newKey(t), newKey(t)
	newRoot := func(signer *ecdsa.PrivateKey) *x509.Certificate {
		return sign(t, &x509.Certificate{
			Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}, nil, signer.Public(), signer)
	}
	root := newRoot(rootKey)
	id := &url.URL{Scheme: "spiffe", Host: "example.test", Path: "/ns/demo/sa/web"}
	leaf := sign(t, &x509.Certificate{DNSNames: []string{"example.test", "*.example.test"}, URIs: []*url.URL{id}}, root, key.Public(), rootKey)
	trust, other := x509.NewCertPool(), x509.NewCertPool()
	trust.AddCert(root)
	other.AddCert(newRoot(newKey(t)))
	now := leaf.NotBefore.Add(time.Hour)
	names := []string{"example.test", "*.example.test"}
	for name, tc := range map[string]struct {
		product product
		now     time.Time
		want    string
	}{
		"good":         {product{roots: trust, public: key.Public(), names: names, id: id.String()}, now, ""},
		"another Pod":  {product{roots: trust, public: key.Public(), id: id.String() + "2"}, now, "not for spiffe://example.test/ns/demo/sa/web2"},
		"another root": {product{roots: other, public: key.Public(), names: names}, now, "chain does not verify"},
		"another key":  {product{roots: trust, public: newKey(t).Public(), names: names}, now, "another key"},
		"missing name": {product{roots: trust, public: key.Public(), names: []string{"www.shop.test"}}, now, "www.shop.test"},
		"expired":      {product{roots: trust, public: key.Public(), names: names}, now.Add(24 * time.Hour), "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.product.chain = []*x509.Certificate{leaf}
			chain, err := tc.product.check(tc.now)
			switch {
			case tc.want == "" && (err != nil || len(chain) != 2):
				t.Errorf("chain of %d, error %v", len(chain), err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
