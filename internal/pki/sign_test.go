package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/rig/tool"
)

var testTime = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func mustKey(t testing.TB, algorithm string) crypto.Signer {
	t.Helper()
	key, err := GenerateKey(KeySpec{Algorithm: algorithm})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func mustCSR(t testing.TB, template CSRTemplate, key crypto.Signer) *x509.CertificateRequest {
	t.Helper()
	text, err := CreateCSR(template, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := DecodeCSR(text)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// issue makes a certificate named cn, signed by parent; self-signed if parent is nil.
func issue(t testing.TB, cn string, isCA bool, parent *pair) *pair {
	t.Helper()
	return issueFor(t, cn, isCA, mustKey(t, ECDSA), parent)
}

func issueFor(t testing.TB, cn string, isCA bool, key crypto.Signer, parent *pair) *pair {
	t.Helper()
	csr := mustCSR(t, CSRTemplate{Subject: pkix.Name{CommonName: cn}, IsCA: isCA, EncodeUsages: true}, key)
	template := mustTemplate(t, csr, isCA)
	signer, by := template, key
	if parent != nil {
		signer, by = parent.cert, parent.key
	}
	cert, err := Sign(template, signer, by)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{cert: cert, key: key}
}

func mustTemplate(t testing.TB, csr *x509.CertificateRequest, isCA bool) *x509.Certificate {
	t.Helper()
	usages, err := ParseUsages[string](nil, isCA, csr.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	template, err := NewTemplate(csr, Issuance{NotBefore: testTime, Duration: time.Hour, IsCA: isCA, Usages: usages})
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func TestSignedCertificate(t *testing.T) {
	root := issue(t, "root", true, nil)
	key := mustKey(t, ECDSA)
	csr := mustCSR(t, CSRTemplate{
		AltNames: AltNames{DNSNames: []string{"a.example.com"}, OtherNames: []OtherName{{OID: "1.3.6.1.4.1.311.20.2.3", Value: "upn@example.com"}}},
		Usages:   []string{"server auth", "digital signature"}, EncodeUsages: true,
		NameConstraints: &NameConstraints{Critical: true, Permitted: Subtrees{DNSDomains: []string{"example.com"}, IPRanges: []string{"10.0.0.0/8"}}},
	}, key)
	usages, err := ParseUsages([]string{"digital signature", "server auth"}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	template, err := NewTemplate(csr, Issuance{
		NotBefore: testTime, Duration: 90 * 24 * time.Hour, Usages: usages,
		CRLDistributionPoints: []string{"http://crl"}, OCSPServers: []string{"http://ocsp"}, IssuingCertificateURLs: []string{"http://ca"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := Sign(template, root.cert, root.key)
	if err != nil {
		t.Fatal(err)
	}
	san := findExtension(cert.Extensions, oidSubjectAltName)
	if san == nil || !san.Critical || !bytes.Equal(san.Value, findExtension(csr.Extensions, oidSubjectAltName).Value) {
		t.Errorf("SAN of a certificate without subject must be critical and the request's own bytes: %+v", san)
	}
	names, err := CertificateAltNames(cert)
	if err != nil || len(names.OtherNames) != 1 || names.OtherNames[0].Value != "upn@example.com" {
		t.Errorf("other names %+v, %v", names.OtherNames, err)
	}
	basic := findExtension(cert.Extensions, oidBasicConstraints)
	if basic == nil || !basic.Critical || cert.IsCA || cert.MaxPathLen != -1 {
		t.Errorf("basic constraints %+v, CA %t, path length %d", basic, cert.IsCA, cert.MaxPathLen)
	}
	if !cert.PermittedDNSDomainsCritical || !slices.Equal(cert.PermittedDNSDomains, []string{"example.com"}) || len(cert.PermittedIPRanges) != 1 {
		t.Errorf("name constraints were lost: %v", cert.PermittedDNSDomains)
	}
	if cert.KeyUsage != x509.KeyUsageDigitalSignature || !slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("usages %v %v", cert.KeyUsage, cert.ExtKeyUsage)
	}
	if len(cert.SubjectKeyId) == 0 || !bytes.Equal(cert.AuthorityKeyId, root.cert.SubjectKeyId) || len(root.cert.SubjectKeyId) == 0 {
		t.Errorf("key identifiers: subject %x, authority %x, signer %x", cert.SubjectKeyId, cert.AuthorityKeyId, root.cert.SubjectKeyId)
	}
	if !cert.NotBefore.Equal(testTime) || !cert.NotAfter.Equal(testTime.Add(90*24*time.Hour)) || cert.SerialNumber.Sign() <= 0 || cert.SerialNumber.BitLen() < 64 {
		t.Errorf("validity %s to %s, serial of %d bits", cert.NotBefore, cert.NotAfter, cert.SerialNumber.BitLen())
	}
	if len(cert.CRLDistributionPoints) != 1 || len(cert.OCSPServer) != 1 || len(cert.IssuingCertificateURL) != 1 {
		t.Error("addresses were lost")
	}
}

// TestOpenSSLTellsLeafFromSigner: a certificate whose subject is its signer's is not taken for a self-signed one,
// which a verifier does where the two keys are not named.
func TestOpenSSLTellsLeafFromSigner(t *testing.T) {
	openssl := tool.Path(t, "openssl")
	for _, c := range []struct {
		name               string
		algorithm, subject string
		isCA, noKeyID, own bool
	}{
		{name: "ECDSA", algorithm: ECDSA, subject: "authority"},
		{name: "RSA", algorithm: RSA, subject: "authority"},
		{name: "Ed25519", algorithm: Ed25519, subject: "authority"},
		{name: "a CA below", algorithm: ECDSA, subject: "authority", isCA: true},
		{name: "a signer that does not name its key", algorithm: ECDSA, subject: "authority", noKeyID: true},
		{name: "another subject", algorithm: ECDSA, subject: "leaf"},
		{name: "another subject, a signer that does not name its key", algorithm: ECDSA, subject: "leaf", noKeyID: true},
		{name: "self-signed", algorithm: ECDSA, subject: "leaf", own: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := issueFor(t, "authority", true, mustKey(t, c.algorithm), nil)
			if c.noKeyID {
				root.cert = withoutKeyID(t, root)
			}
			if c.own {
				root = nil
			}
			leaf := issueFor(t, c.subject, c.isCA, mustKey(t, c.algorithm), root)
			if root == nil {
				root = leaf
			}
			dir := t.TempDir()
			for file, cert := range map[string]*x509.Certificate{"root.pem": root.cert, "leaf.pem": leaf.cert} {
				if err := os.WriteFile(filepath.Join(dir, file), EncodeCertificates(cert), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), openssl, "verify", "-attime", strconv.FormatInt(testTime.Unix()+60, 10), "-CAfile", "root.pem", "leaf.pem")
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			if len(leaf.cert.SubjectKeyId) == 0 {
				t.Error("the certificate does not name its key (RFC 5280 §4.2.1.2)")
			}
			if c.noKeyID && c.subject != "authority" && len(leaf.cert.AuthorityKeyId) > 0 {
				t.Error("the certificate names its signer's key, and the signer does not")
			}
		})
	}
}

// withKeyID returns a certificate of a CA's name and key by another signer. It is valid for longer, and names the key
// in another way.
func withKeyID(t *testing.T, ca, by *pair) *x509.Certificate {
	t.Helper()
	template := *ca.cert
	template.SubjectKeyId, template.AuthorityKeyId, template.NotAfter = []byte("another way"), nil, ca.cert.NotAfter.AddDate(0, 0, 1)
	der, err := x509.CreateCertificate(rand.Reader, &template, by.cert, ca.key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// withoutKeyID returns a CA certificate of a CA's name and key, without a subject key identifier: old ones have none.
func withoutKeyID(t *testing.T, ca *pair) *x509.Certificate {
	t.Helper()
	template := *ca.cert
	template.SubjectKeyId, template.IsCA, template.BasicConstraintsValid = nil, false, false
	value, err := asn1.Marshal(basicConstraints{IsCA: true, MaxPathLen: -1})
	if err != nil {
		t.Fatal(err)
	}
	template.ExtraExtensions = []pkix.Extension{{Id: oidBasicConstraints, Critical: true, Value: value}}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, ca.key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil || len(cert.SubjectKeyId) > 0 || !cert.IsCA {
		t.Fatalf("%x, %v", cert.SubjectKeyId, err)
	}
	return cert
}

func TestSignRefusesForeignKey(t *testing.T) {
	root, other := issue(t, "root", true, nil), mustKey(t, ECDSA)
	template := mustTemplate(t, mustCSR(t, CSRTemplate{Subject: pkix.Name{CommonName: "x"}}, mustKey(t, Ed25519)), false)
	if _, err := Sign(template, root.cert, other); err == nil {
		t.Error("signed with a key that is not the parent's")
	}
}

func TestTemplateAgreesWithRequest(t *testing.T) {
	key := mustKey(t, Ed25519)
	for _, c := range []struct {
		name    string
		request CSRTemplate
		usages  []string
		isCA    bool
		want    string // part of the error; empty for none
	}{
		{name: "nothing encoded", request: CSRTemplate{}, usages: []string{"client auth"}},
		{name: "same", request: CSRTemplate{EncodeUsages: true, Usages: []string{"signing", "client auth"}}, usages: []string{"client auth", "digital signature"}},
		{name: "order of extended usages", request: CSRTemplate{EncodeUsages: true, Usages: []string{"server auth", "client auth"}}, usages: []string{"client auth", "server auth"}},
		{name: "key usage differs", request: CSRTemplate{EncodeUsages: true, Usages: []string{"key agreement"}}, usages: []string{"signing"}, want: "key agreement"},
		{name: "more extended usages", request: CSRTemplate{EncodeUsages: true, Usages: []string{"client auth", "server auth"}}, usages: []string{"client auth"}, want: "server auth"},
		{name: "CA not asked for", request: CSRTemplate{EncodeBasicConstraints: true, IsCA: true}, want: "isCA is false"},
		{name: "CA asked for", request: CSRTemplate{EncodeBasicConstraints: true, IsCA: true}, isCA: true},
		{name: "no CA encoded", request: CSRTemplate{EncodeBasicConstraints: true}, isCA: true, want: "isCA is true"},
	} {
		c.request.Subject = pkix.Name{CommonName: "x"}
		usages, err := ParseUsages(c.usages, c.isCA, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewTemplate(mustCSR(t, c.request, key), Issuance{NotBefore: testTime, Duration: time.Hour, IsCA: c.isCA, Usages: usages})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestPathLengthOfRequestIsDropped(t *testing.T) {
	key := mustKey(t, ECDSA)
	value, err := asn1.Marshal(basicConstraints{IsCA: true, MaxPathLen: 1})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:         pkix.Name{CommonName: "ca"},
		ExtraExtensions: []pkix.Extension{{Id: oidBasicConstraints, Critical: true, Value: value}, {Id: asn1.ObjectIdentifier{1, 2, 3}, Value: []byte{5, 0}}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := DecodeCSR(pem.EncodeToMemory(&pem.Block{Type: "NEW CERTIFICATE REQUEST", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	template := mustTemplate(t, csr, true)
	cert, err := Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	if !cert.IsCA || cert.MaxPathLen != -1 || findExtension(cert.Extensions, asn1.ObjectIdentifier{1, 2, 3}) != nil {
		t.Errorf("CA %t, path length %d, extensions %v", cert.IsCA, cert.MaxPathLen, cert.Extensions)
	}
	if !IsSelfSigned(cert) {
		t.Error("not self-signed")
	}
}

func BenchmarkSignECDSA(b *testing.B) {
	root := issue(b, "root", true, nil)
	text, err := CreateCSR(CSRTemplate{Subject: pkix.Name{CommonName: "leaf"}, EncodeUsages: true, AltNames: AltNames{DNSNames: []string{"a.example.com"}}}, mustKey(b, ECDSA))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		csr, err := DecodeCSR(text)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Sign(mustTemplate(b, csr, false), root.cert, root.key); err != nil {
			b.Fatal(err)
		}
	}
}
