package pki

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"chancery.dev/internal/rig/tool"
)

func fullTemplate() CSRTemplate {
	return CSRTemplate{
		Subject: pkix.Name{
			CommonName: "cn", SerialNumber: "sn", Country: []string{"DE", "FR"}, Organization: []string{"org"},
			OrganizationalUnit: []string{"unit"}, Locality: []string{"town"}, Province: []string{"state"},
			StreetAddress: []string{"street"}, PostalCode: []string{"123"},
		},
		AltNames: AltNames{
			DNSNames: []string{"b.example.com", "*.a.example.com"}, IPAddresses: []string{"10.0.0.1", "2001:db8::1"},
			URIs: []string{"spiffe://cluster/ns/x"}, EmailAddresses: []string{"me@example.com"},
			OtherNames: []OtherName{{OID: "1.3.6.1.4.1.311.20.2.3", Value: "upn@exämple"}},
		},
		Usages: []string{"client auth", "server auth", "digital signature"}, EncodeUsages: true,
		IsCA: true, EncodeBasicConstraints: true,
		NameConstraints: &NameConstraints{Critical: true, Permitted: Subtrees{
			DNSDomains: []string{"example.com"}, IPRanges: []string{"10.0.0.0/8", "2001:db8::/32"},
			EmailAddresses: []string{"example.com"}, URIDomains: []string{".example.com"},
		}, Excluded: Subtrees{DNSDomains: []string{"no.example.com"}}},
	}
}

func TestCSRShape(t *testing.T) {
	template := fullTemplate()
	csr := mustCSR(t, template, mustKey(t, ECDSA))
	if csr.Version != 0 || csr.SignatureAlgorithm != x509.ECDSAWithSHA256 {
		t.Errorf("version %d, algorithm %s", csr.Version, csr.SignatureAlgorithm)
	}
	subject, err := decodeName(csr.RawSubject)
	if err != nil {
		t.Fatal(err)
	}
	// pkix prints the last first.
	if want := "SERIALNUMBER=sn,CN=cn,POSTALCODE=123,STREET=street,ST=state,L=town,OU=unit,O=org,C=DE+C=FR"; subject.String() != want {
		t.Errorf("subject %s, want %s", subject, want)
	}
	order := []asn1.ObjectIdentifier{oidSubjectAltName, oidKeyUsage, oidExtKeyUsage, oidBasicConstraints, oidNameConstraints}
	critical := []bool{false, true, false, true, true}
	if len(csr.Extensions) != len(order) {
		t.Fatalf("%d extensions, want %d", len(csr.Extensions), len(order))
	}
	for i, e := range csr.Extensions {
		if !e.Id.Equal(order[i]) || e.Critical != critical[i] {
			t.Errorf("extension %d is %s, critical %t", i, e.Id, e.Critical)
		}
	}
	facts, err := InspectCSR(csr)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(template.AltNames, facts.AltNames); diff != "" {
		t.Errorf("names (-asked +read):\n%s", diff)
	}
	wantUsages := []string{"digital signature", "cert sign", "client auth", "server auth"}
	if got := facts.Usages.UsageNames(); !slices.Equal(got, wantUsages) {
		t.Errorf("usages %q, want %q in the order of the request", got, wantUsages)
	}
	if !facts.KeyUsage || !facts.ExtKeyUsage || !facts.BasicConstraints || !facts.IsCA || facts.Subject.CommonName != "cn" {
		t.Errorf("facts %+v", facts)
	}
	der, err := template.subject()
	if err != nil || !bytes.Equal(der, csr.RawSubject) {
		t.Errorf("subject differs from the request's subject: %v", err)
	}
}

func TestCSRExtensionsOnlyWithContent(t *testing.T) {
	key := mustKey(t, Ed25519)
	bare := mustCSR(t, CSRTemplate{Subject: pkix.Name{CommonName: "x"}, NameConstraints: &NameConstraints{}}, key)
	if len(bare.Extensions) != 0 {
		t.Errorf("extensions without content: %v", bare.Extensions)
	}
	nameless := mustCSR(t, CSRTemplate{AltNames: AltNames{DNSNames: []string{"a"}}, EncodeUsages: true}, key)
	if len(nameless.Extensions) != 2 || !nameless.Extensions[0].Critical {
		t.Errorf("without a subject the SAN is critical: %v", nameless.Extensions)
	}
	facts, err := InspectCSR(nameless)
	if err != nil || facts.Usages.Bits != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment {
		t.Errorf("default usages %v, %v", facts.Usages, err)
	}
	literal := mustCSR(t, CSRTemplate{LiteralSubject: "CN=a,DC=com"}, key)
	if literal.Subject.CommonName != "a" || !strings.HasPrefix(string(literal.RawSubject[4:]), "\x30\x11\x06\x0a\x09\x92") {
		t.Errorf("literal subject became %x", literal.RawSubject)
	}
}

func TestCreateCSRRefuses(t *testing.T) {
	key := mustKey(t, ECDSA)
	for want, template := range map[string]CSRTemplate{
		"xn--":                   {AltNames: AltNames{DNSNames: []string{"bücher.example"}}},
		"IP address":             {AltNames: AltNames{IPAddresses: []string{"1.2.3"}}},
		"URI":                    {AltNames: AltNames{URIs: []string{"http://%zz"}}},
		"e-mail":                 {AltNames: AltNames{EmailAddresses: []string{""}}},
		"invalid oid syntax":     {AltNames: AltNames{OtherNames: []OtherName{{"BAD_OID", "x"}}}},
		"non-empty UTF-8 string": {AltNames: AltNames{OtherNames: []OtherName{{"1.2.3", ""}}}},
		"unrecognized key":       {LiteralSubject: "X=y"},
		"excludes commonName":    {LiteralSubject: "CN=y", Subject: pkix.Name{CommonName: "z"}},
		"usage \"fly\"":          {Usages: []string{"fly"}},
		"needs an RSA key":       {SignatureAlgorithm: "SHA256WithRSA"},
		"excluded.ipRanges":      {NameConstraints: &NameConstraints{Excluded: Subtrees{IPRanges: []string{"10.0.0.0"}}}},
		"permitted.uriDomains":   {NameConstraints: &NameConstraints{Permitted: Subtrees{URIDomains: []string{"ü"}}}},
	} {
		if _, err := CreateCSR(template, key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestDecodeCSRRefuses(t *testing.T) {
	key := mustKey(t, ECDSA)
	text, err := CreateCSR(CSRTemplate{Subject: pkix.Name{CommonName: "x"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := DecodeCSR(text)
	if err != nil {
		t.Fatal(err)
	}
	forged := bytes.Replace(csr.Raw, []byte("\x0c\x01x"), []byte("\x0c\x01y"), 1)
	forged = bytes.Replace(forged, []byte("\x13\x01x"), []byte("\x13\x01y"), 1)
	for want, in := range map[string][]byte{
		"no PEM block":                                []byte("x"),
		"not a CERTIFICATE REQUEST":                   pemBlock(pemCertificate, csr.Raw),
		"does not parse":                              pemBlock(pemRequest, []byte{1}),
		"is not signed by its own key":                pemBlock(pemRequest, forged),
		"more bytes of PEM than the 95000 that are d": bytes.Repeat([]byte("x"), MaxChainPEM+1),
	} {
		if _, err := DecodeCSR(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// usageTable is written from RFC 5280 and crypto/x509, not from the package's table.
var usageTable = map[string]struct {
	bit x509.KeyUsage
	eku x509.ExtKeyUsage
}{
	"signing": {x509.KeyUsageDigitalSignature, -1}, "digital signature": {x509.KeyUsageDigitalSignature, -1},
	"content commitment": {x509.KeyUsageContentCommitment, -1}, "key encipherment": {x509.KeyUsageKeyEncipherment, -1},
	"key agreement": {x509.KeyUsageKeyAgreement, -1}, "data encipherment": {x509.KeyUsageDataEncipherment, -1},
	"cert sign": {x509.KeyUsageCertSign, -1}, "crl sign": {x509.KeyUsageCRLSign, -1},
	"encipher only": {x509.KeyUsageEncipherOnly, -1}, "decipher only": {x509.KeyUsageDecipherOnly, -1},
	"any": {0, x509.ExtKeyUsageAny}, "server auth": {0, x509.ExtKeyUsageServerAuth}, "client auth": {0, x509.ExtKeyUsageClientAuth},
	"code signing": {0, x509.ExtKeyUsageCodeSigning}, "email protection": {0, x509.ExtKeyUsageEmailProtection},
	"s/mime": {0, x509.ExtKeyUsageEmailProtection}, "ipsec end system": {0, x509.ExtKeyUsageIPSECEndSystem},
	"ipsec tunnel": {0, x509.ExtKeyUsageIPSECTunnel}, "ipsec user": {0, x509.ExtKeyUsageIPSECUser},
	"timestamping": {0, x509.ExtKeyUsageTimeStamping}, "ocsp signing": {0, x509.ExtKeyUsageOCSPSigning},
	"microsoft sgc": {0, x509.ExtKeyUsageMicrosoftServerGatedCrypto}, "netscape sgc": {0, x509.ExtKeyUsageNetscapeServerGatedCrypto},
}

func TestEveryUsage(t *testing.T) {
	if len(usageTable) != 23 || len(usages) != 23 {
		t.Fatalf("%d and %d usages, the API has 23", len(usageTable), len(usages))
	}
	key := mustKey(t, Ed25519)
	for name, want := range usageTable {
		csr := mustCSR(t, CSRTemplate{Subject: pkix.Name{CommonName: "x"}, Usages: []string{name}, EncodeUsages: true}, key)
		facts, err := InspectCSR(csr)
		if err != nil {
			t.Fatal(err)
		}
		usages, err := ParseUsages([]string{name, name}, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		template, err := NewTemplate(csr, Issuance{NotBefore: testTime, Duration: 1e9, Usages: usages})
		if err != nil {
			t.Fatal(err)
		}
		cert, err := Sign(template, template, key)
		if err != nil {
			t.Fatal(err)
		}
		if cert.KeyUsage != want.bit || facts.Usages.Bits != want.bit {
			t.Errorf("%s: bits %b, want %b", name, cert.KeyUsage, want.bit)
		}
		if want.eku >= 0 && !slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{want.eku}) {
			t.Errorf("%s: extended usages %v, want %v", name, cert.ExtKeyUsage, want.eku)
		}
		if want.eku < 0 && len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) > 0 {
			t.Errorf("%s: unexpected extended usages %v", name, cert.ExtKeyUsage)
		}
		for other, asked := range usageTable {
			forAll := want.eku < 0 || want.eku == x509.ExtKeyUsageAny
			if lacks := len(Lacking(UsesOf(cert), []string{other})) > 0; lacks != (!forAll && asked.eku >= 0 && asked.eku != want.eku) {
				t.Errorf("a certificate for %s lacks %s: %v", name, other, lacks)
			}
		}
	}
	if got := (KeyUsages{Extended: []asn1.ObjectIdentifier{{1, 2, 3}}}).UsageNames(); !slices.Equal(got, []string{"1.2.3"}) {
		t.Errorf("a usage without a name is %q", got)
	}
}

func TestOpenSSLReadsRequest(t *testing.T) {
	openssl := tool.Path(t, "openssl")
	text, err := CreateCSR(fullTemplate(), mustKey(t, ECDSA))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "csr.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(openssl, "req", "-in", file, "-noout", "-text", "-verify").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		"Version: 1 (0x0)", "DNS:b.example.com, DNS:*.a.example.com, IP Address:10.0.0.1", "URI:spiffe://cluster/ns/x", "email:me@example.com",
		"Digital Signature, Certificate Sign", "TLS Web Client Authentication, TLS Web Server Authentication", "CA:TRUE", "IP:10.0.0.0/255.0.0.0", "DNS:no.example.com",
	} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("openssl does not show %q:\n%s", want, out)
		}
	}
}

// FuzzInspectCSR: a request is for a CA only by the extension, and the names of its usages stand for these usages.
func FuzzInspectCSR(f *testing.F) {
	text, err := CreateCSR(fullTemplate(), mustKey(f, ECDSA))
	if err != nil {
		f.Fatal(err)
	}
	csr, err := DecodeCSR(text)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(csr.Raw)
	f.Fuzz(func(t *testing.T, der []byte) {
		csr, err := x509.ParseCertificateRequest(der)
		if err != nil {
			return
		}
		facts, err := InspectCSR(csr)
		if err == nil && !facts.BasicConstraints && facts.IsCA {
			t.Error("a CA without the extension")
		}
		if err == nil {
			_ = HiddenExtensions(csr)
			names := facts.Usages.UsageNames()
			unknown := func(name string) bool { return name[0] >= '0' && name[0] <= '9' } // an extended usage without a name
			if usages, err := ParseUsages(names, false, nil); len(names) > 0 && !slices.ContainsFunc(names, unknown) &&
				(err != nil || usages.Bits != facts.Usages.Bits || !sameExtended(usages.Extended, facts.Usages.Extended)) {
				t.Errorf("%q stands for %+v, not for %+v (%v)", names, usages, facts.Usages, err)
			}
		}
	})
}
