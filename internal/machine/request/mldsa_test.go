package request

import (
	"crypto/x509/pkix"
	"strings"
	"testing"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// TestMLDSA: an issuer where another program signs takes no ML-DSA keys, and no issuer takes encipherment by one.
func TestMLDSA(t *testing.T) {
	t.Parallel()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.MLDSA44})
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: "x"}, EncodeUsages: true}, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		asked Asked
		says  string
	}{
		{Asked{CSR: csr}, ""},
		{Asked{CSR: csr, Usages: []certmanagerv1.KeyUsage{"digital signature"}}, ""},
		{Asked{CSR: csr, Usages: []certmanagerv1.KeyUsage{"digital signature", "key encipherment"}}, `remove ["key encipherment"] from usages`},
		{Asked{CSR: csr, Server: "acme"}, "an issuer of the type acme takes no ML-DSA keys"},
		{Asked{CSR: csr, Server: "vault"}, "an issuer of the type vault takes no ML-DSA keys"},
		{Asked{CSR: csr, Server: "venafi"}, "an issuer of the type venafi takes no ML-DSA keys"},
	} {
		err := Disagreement(c.asked, "SigningError")
		if f := fault.Of(err); c.says == "" && err != nil || c.says != "" && (f == nil || f.Kind != fault.KindTerminal || f.Class != fault.ClassPermanent || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q %q: %v", c.asked.Server, c.asked.Usages, err)
		}
	}
}
