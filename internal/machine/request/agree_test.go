package request

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// TestDisagreement: what an approver judges is what the issuer is asked for.
func TestDisagreement(t *testing.T) {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	usage := func(names ...certmanagerv1.KeyUsage) []certmanagerv1.KeyUsage { return names }
	server := usage("digital signature", "server auth")
	for name, c := range map[string]struct {
		carries pki.CSRTemplate
		asked   Asked
		says    string
	}{
		"nothing carried":           {pki.CSRTemplate{}, Asked{IsCA: true, Usages: server}, ""},
		"usages in another order":   {pki.CSRTemplate{EncodeUsages: true, Usages: []string{"server auth", "digital signature"}}, Asked{Usages: server}, ""},
		"a CA as it says":           {pki.CSRTemplate{EncodeUsages: true, EncodeBasicConstraints: true, IsCA: true, Usages: []string{"crl sign"}}, Asked{IsCA: true, CertSign: true, Usages: usage("crl sign")}, ""},
		"a CA in disguise":          {pki.CSRTemplate{EncodeBasicConstraints: true, IsCA: true}, Asked{Usages: server}, "isCA is false, but the encoded certificate request says true"},
		"cert sign in disguise":     {pki.CSRTemplate{EncodeUsages: true, IsCA: true}, Asked{Usages: usage("digital signature", "key encipherment")}, "cert sign"},
		"cert sign is not implied":  {pki.CSRTemplate{EncodeUsages: true, EncodeBasicConstraints: true, IsCA: true}, Asked{IsCA: true, Usages: usage("digital signature", "key encipherment")}, "cert sign"},
		"code signing in disguise":  {pki.CSRTemplate{EncodeUsages: true, Usages: []string{"digital signature", "code signing"}}, Asked{Usages: server}, "code signing"},
		"more usages than it says":  {pki.CSRTemplate{EncodeUsages: true, Usages: []string{"digital signature", "server auth", "client auth"}}, Asked{Usages: server}, "client auth"},
		"less usages than it says":  {pki.CSRTemplate{EncodeUsages: true, Usages: []string{"digital signature"}}, Asked{Usages: usage("digital signature", "key encipherment")}, "key encipherment"},
		"no CA, which it says":      {pki.CSRTemplate{EncodeBasicConstraints: true}, Asked{IsCA: true, Usages: server}, "isCA is true"},
		"a usage that nobody knows": {pki.CSRTemplate{EncodeUsages: true}, Asked{Usages: usage("magic")}, `usage "magic" is unknown`},
	} {
		c.carries.Subject = pkix.Name{CommonName: "x"}
		if c.asked.CSR, err = pki.CreateCSR(c.carries, key); err != nil {
			t.Fatal(err)
		}
		err := Disagreement(c.asked, "SigningError")
		f := fault.Of(err)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (f == nil || f.Kind != fault.KindTerminal || f.Class != fault.ClassPermanent || f.Reason != "SigningError" || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if err := Disagreement(Asked{CSR: []byte("no PEM")}, "SigningError"); err != nil {
		t.Errorf("what cannot be read is for the Signer to refuse: %v", err)
	}
}

// TestNothingIsHidden: what others read in a PKCS#10 request, and we do not, is an error.
func TestNothingIsHidden(t *testing.T) {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	basicConstraints, isCA := asn1.ObjectIdentifier{2, 5, 29, 19}, []byte{0x30, 3, 1, 1, 0xff}
	names := asn1.ObjectIdentifier{2, 5, 29, 17}
	extensionRequest, microsoft := asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}, asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 14}
	ca := []pkix.AttributeTypeAndValue{{Type: basicConstraints, Value: isCA}}
	leaf := []pkix.AttributeTypeAndValue{{Type: basicConstraints, Value: []byte{0x30, 0}}}
	for name, c := range map[string]struct {
		template x509.CertificateRequest
		says     string
	}{
		"nothing": {x509.CertificateRequest{}, ""},
		"an otherName that does not parse, before a CA": {x509.CertificateRequest{ExtraExtensions: []pkix.Extension{
			{Id: names, Value: []byte{0x30, 3, 0xa0, 1, 5}}, {Id: basicConstraints, Value: isCA},
		}}, "otherName"},
		"basic constraints with something behind them": {x509.CertificateRequest{ExtraExtensions: []pkix.Extension{
			{Id: basicConstraints, Value: append(slices.Clone(isCA), 5, 0)},
		}}, "basic constraints"},
		"a CA in Microsoft's attribute": {x509.CertificateRequest{
			//nolint:staticcheck // clients still write it
			Attributes: []pkix.AttributeTypeAndValueSET{{Type: microsoft, Value: [][]pkix.AttributeTypeAndValue{ca}}},
		}, "in the attribute 1.3.6.1.4.1.311.2.1.14"},
		"a CA in a second value": {x509.CertificateRequest{
			//nolint:staticcheck // clients still write it
			Attributes: []pkix.AttributeTypeAndValueSET{{Type: extensionRequest, Value: [][]pkix.AttributeTypeAndValue{leaf, ca}}},
		}, "in the attribute 1.2.840.113549.1.9.14"},
	} {
		c.template.Subject = pkix.Name{CommonName: "x"}
		der, err := x509.CreateCertificateRequest(rand.Reader, &c.template, key)
		if err != nil {
			t.Fatal(err)
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		err = Disagreement(Asked{CSR: text}, "SigningError")
		if f := fault.Of(err); c.says == "" && err != nil || c.says != "" && (f == nil || f.Kind != fault.KindTerminal || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
