package requests

import (
	"crypto/x509/pkix"
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// TestMLDSAByType: only CA and SelfSigned issuers take ML-DSA keys.
func TestMLDSAByType(t *testing.T) {
	t.Parallel()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.MLDSA65})
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: "x"}, EncodeUsages: true}, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spec    certmanagerv1.IssuerSpec
		refuses string
	}{
		{certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{}}, "acme"}, {certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{}}, "vault"},
		{certmanagerv1.IssuerSpec{Venafi: &certmanagerv1.VenafiIssuer{}}, "venafi"},
		{certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{}}, ""}, {certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}, ""},
	} {
		err := disagreement(&observation{issuer: &certmanagerv1.Issuer{Spec: c.spec}, sign: signer.Request{CSR: csr}})
		if c.refuses == "" && err != nil || c.refuses != "" && (err == nil || !strings.Contains(err.Error(), "of the type "+c.refuses+" takes no ML-DSA")) {
			t.Errorf("%q: %v", c.refuses, err)
		}
	}
}
