package explain

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

// TestLinksAreNotAbove: older roots, and links to them, may expire at any time: they are not above the certificate.
func TestLinksAreNotAbove(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	signed := func(name string, lifetime time.Duration, isCA bool, parent *x509.Certificate, by crypto.Signer) (*x509.Certificate, crypto.Signer) {
		key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, PublicKey: key.Public(), NotBefore: now, NotAfter: now.Add(lifetime), IsCA: isCA, BasicConstraintsValid: true,
		}
		if parent == nil {
			parent, by = template, key
		}
		c, err := pki.Sign(template, parent, by)
		if err != nil {
			t.Fatal(err)
		}
		return c, key
	}
	old, oldKey := signed("root", time.Hour, true, nil, nil)
	root, key := signed("root", 9*time.Hour, true, nil, nil)
	sub, subKey := signed("sub", 7*time.Hour, true, root, key)
	leaf, _ := signed("leaf", 3*time.Hour, false, sub, subKey)
	link, err := pki.NewLink(root, old, oldKey, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		chain, roots []*x509.Certificate
		want         *x509.Certificate
	}{
		"with links":    {[]*x509.Certificate{leaf, sub, link}, []*x509.Certificate{root, old}, sub},
		"without a CA":  {[]*x509.Certificate{leaf, sub}, nil, sub},
		"no path leads": {[]*x509.Certificate{leaf, link}, []*x509.Certificate{root}, link},
	} {
		above := aboveIn(&certmanagerv1.CertificateRequest{Status: certmanagerv1.CertificateRequestStatus{
			Certificate: pki.EncodeCertificates(c.chain...), CA: pki.EncodeCertificates(c.roots...),
		}})
		if above == nil || !above.caEnds.Equal(c.want.NotAfter) || !strings.Contains(above.ca, c.want.Subject.CommonName) {
			t.Errorf("%s: %+v, want %s", name, above, c.want.Subject)
		}
	}
}
