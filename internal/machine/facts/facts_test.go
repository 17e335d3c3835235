package facts

import (
	"bytes"
	"crypto"
	"encoding/pem"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

func newKey(t *testing.T, spec pki.KeySpec) crypto.Signer {
	t.Helper()
	key, err := pki.GenerateKey(spec)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// made returns a Certificate and what its Secret is to be made of.
func made(t *testing.T) (*certmanagerv1.Certificate, Target) {
	t.Helper()
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	crt.Spec.SecretName, crt.Spec.DNSNames = "web-tls", []string{"a.example.com", "b.example.com"}
	key := newKey(t, pki.KeySpec{Algorithm: pki.ECDSA})
	text, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: crt.Spec.DNSNames}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.DecodeCSR(text)
	if err != nil {
		t.Fatal(err)
	}
	template, err := pki.NewTemplate(csr, pki.Issuance{NotBefore: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), Duration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := pki.Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := EncodeKey(crt, key)
	if err != nil {
		t.Fatal(err)
	}
	return crt, Target{Certificate: crt, Chain: pki.EncodeCertificates(leaf), Key: private}
}

// Facts hold on to nothing of a Secret's body.
func TestFactsAreSmall(t *testing.T) {
	_, target := made(t)
	secret, err := target.Secret()
	if err != nil {
		t.Fatal(err)
	}
	secret.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: FieldManager, FieldsV1: metav1.NewFieldsV1(
		`{"f:data":{"f:tls.crt":{}},"f:metadata":{"f:annotations":{"f:cert-manager.io/alt-names":{}}}}`),
	}}
	facts := OfSecret(secret)
	for key := range secret.Data {
		for i := range secret.Data[key] {
			secret.Data[key][i] = 0
		}
	}
	if facts.Leaf.Names.DNSNames[0] != "a.example.com" || facts.Leaf.CommonName != "" || facts.Ownership.data != nil || facts.Ownership.marks != nil {
		t.Errorf("facts change with the body: %+v", facts.Leaf)
	}
}

// TestTargetMetadata holds the rows of spec §2.4.
func TestTargetMetadata(t *testing.T) {
	crt, target := made(t)
	leaf, err := DecodeLeaf(target.Chain)
	if err != nil {
		t.Fatal(err)
	}
	crt.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{
		Labels:      map[string]string{"l": "1", "controller.cert-manager.io/fao": "no"},
		Annotations: map[string]string{"a": "2", "cert-manager.io/certificate-name": "forged", "cert-manager.io/email-sans": "kept"},
	}
	labels, annotations := Target{Certificate: crt, Issuer: cmmeta.IssuerReference{Name: "ca"}}.metadata(leaf)
	if want := (map[string]string{"l": "1", "controller.cert-manager.io/fao": "true"}); !maps.Equal(labels, want) {
		t.Errorf("labels %v", labels)
	}
	want := map[string]string{
		"a": "2", "cert-manager.io/email-sans": "kept", "cert-manager.io/certificate-name": "web",
		"cert-manager.io/issuer-name": "ca", "cert-manager.io/issuer-kind": "", "cert-manager.io/issuer-group": "",
		"cert-manager.io/common-name": "", "cert-manager.io/alt-names": "a.example.com,b.example.com", "cert-manager.io/ip-sans": "", "cert-manager.io/uri-sans": "",
	}
	if !maps.Equal(annotations, want) {
		t.Errorf("annotations %v\nwant %v", annotations, want)
	}
	if crt.Spec.SecretTemplate.Annotations["cert-manager.io/certificate-name"] != "forged" {
		t.Error("the template was changed")
	}
	_, bare := Target{Certificate: crt}.metadata(leaf)
	if _, said := bare["cert-manager.io/issuer-name"]; said {
		t.Errorf("without issuer: %v", bare)
	}
}

func TestTargetData(t *testing.T) {
	for _, c := range []struct {
		algorithm certmanagerv1.PrivateKeyAlgorithm
		encoding  certmanagerv1.PrivateKeyEncoding
		block     string
	}{
		{"RSA", "", "RSA PRIVATE KEY"}, {"RSA", "PKCS1", "RSA PRIVATE KEY"}, {"RSA", "PKCS8", "PRIVATE KEY"},
		{"ECDSA", "", "EC PRIVATE KEY"}, {"ECDSA", "PKCS1", "EC PRIVATE KEY"}, {"ECDSA", "PKCS8", "PRIVATE KEY"},
		{"Ed25519", "", "PRIVATE KEY"}, {"Ed25519", "PKCS1", "PRIVATE KEY"}, {"Ed25519", "PKCS8", "PRIVATE KEY"},
	} {
		crt := &certmanagerv1.Certificate{}
		crt.Spec.PrivateKey = &certmanagerv1.CertificatePrivateKey{Algorithm: c.algorithm, Encoding: c.encoding}
		crt.Spec.AdditionalOutputFormats = []certmanagerv1.CertificateAdditionalOutputFormat{{Type: "DER"}, {Type: "CombinedPEM"}}
		key, err := EncodeKey(crt, newKey(t, KeySpecOf(&crt.Spec)))
		if err != nil {
			t.Fatal(err)
		}
		target := Target{Certificate: crt, Chain: []byte("byte\nfor byte"), CA: []byte("this too"), Key: key}
		data, err := target.data()
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data["tls.key"])
		if block == nil || block.Type != c.block {
			t.Fatalf("%s %s: %s", c.algorithm, c.encoding, data["tls.key"])
		}
		if !bytes.Equal(data["tls.crt"], target.Chain) || !bytes.Equal(data["ca.crt"], target.CA) || len(data) != 5 {
			t.Errorf("data %q", data)
		}
		if !bytes.Equal(data["key.der"], block.Bytes) || string(data["tls-combined.pem"]) != string(key)+"\nbyte\nfor byte" {
			t.Errorf("formats %q and %q", data["key.der"], data["tls-combined.pem"])
		}
	}
	data, err := Target{Certificate: &certmanagerv1.Certificate{}}.data()
	if _, ok := data["ca.crt"]; ok || err != nil {
		t.Errorf("without CA: ca.crt %t, error %v", ok, err)
	}
	crt := &certmanagerv1.Certificate{}
	crt.Spec.PrivateKey = &certmanagerv1.CertificatePrivateKey{Encoding: "PKCS7"}
	if _, err := EncodeKey(crt, newKey(t, pki.KeySpec{Algorithm: pki.ECDSA})); err == nil {
		t.Error("an unknown encoding is no error")
	}
}

// A certificate whose common name is in neither list is not the one asked for.
func TestForeignCommonName(t *testing.T) {
	spec := &certmanagerv1.CertificateSpec{DNSNames: []string{"a"}}
	leaf := &Leaf{CommonName: "b", Names: pki.AltNames{DNSNames: []string{"a"}}}
	if got := Violations(spec, leaf); len(got) != 1 || got[0] != "spec.commonName" {
		t.Errorf("violates %q", got)
	}
	leaf.CommonName = "a"
	if got := Violations(spec, leaf); len(got) != 0 {
		t.Errorf("a DNS name as the common name violates %q", got)
	}
}

func TestDecodeLeafBoundsItsInput(t *testing.T) {
	_, target := made(t)
	text := append(bytes.Clone(target.Chain), bytes.Repeat([]byte("#"), pki.MaxChainPEM)...)
	if _, err := DecodeLeaf(text); err == nil {
		t.Error("decodes what is too long")
	}
}
