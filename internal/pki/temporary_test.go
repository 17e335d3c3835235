package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"testing"
	"time"
)

// TestTemporaryCertificate holds the words of spec §2.4.
func TestTemporaryCertificate(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, template := range map[string]CSRTemplate{
		"a subject":         {Subject: pkix.Name{CommonName: "cn", Organization: []string{"o"}, SerialNumber: "7"}, AltNames: AltNames{DNSNames: []string{"a.example.com"}, IPAddresses: []string{"192.0.2.1"}}, EncodeUsages: true},
		"no subject":        {AltNames: AltNames{DNSNames: []string{"a.example.com"}, IPAddresses: []string{"192.0.2.1"}}},
		"a literal subject": {LiteralSubject: "CN=cn,OU=a+L=b", AltNames: AltNames{DNSNames: []string{"a.example.com"}, IPAddresses: []string{"192.0.2.1"}}},
	} {
		key, err := GenerateKey(KeySpec{Algorithm: ECDSA})
		if err != nil {
			t.Fatal(err)
		}
		text, err := CreateCSR(template, key)
		if err != nil {
			t.Fatal(err)
		}
		csr, err := DecodeCSR(text)
		if err != nil {
			t.Fatal(err)
		}
		usages, err := ParseUsages([]string(nil), false, nil)
		if err != nil {
			t.Fatal(err)
		}
		chain, err := TemporaryCertificate(csr, Issuance{NotBefore: begin, Duration: time.Hour, Usages: usages})
		if err != nil {
			t.Fatal(err)
		}
		certs, err := DecodeChain(chain)
		if err != nil || len(certs) != 1 {
			t.Fatalf("%s: %d certificates, %v", name, len(certs), err)
		}
		leaf := certs[0]
		if !IsTemporary(leaf) || leaf.Issuer.CommonName != "cert-manager.local" || leaf.Subject.SerialNumber != "1234567890" || leaf.Subject.CommonName != csr.Subject.CommonName {
			t.Errorf("%s: issued by %s for %s", name, leaf.Issuer, leaf.Subject)
		}
		if !PublicKeysEqual(leaf.PublicKey, key.Public()) || !slices.Equal(leaf.DNSNames, csr.DNSNames) || len(leaf.IPAddresses) != 1 ||
			!leaf.NotBefore.Equal(begin) || !leaf.NotAfter.Equal(begin.Add(time.Hour)) {
			t.Errorf("%s: %+v", name, leaf)
		}
		if leaf.SignatureAlgorithm != x509.ECDSAWithSHA512 || leaf.IsCA {
			t.Errorf("%s: signed with %s, CA %t", name, leaf.SignatureAlgorithm, leaf.IsCA)
		}
		if IsTemporary(&x509.Certificate{Issuer: leaf.Issuer}) {
			t.Error("the name of the issuer alone makes a certificate temporary")
		}
	}
}
