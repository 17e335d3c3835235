package lifecycle

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// SecretFacts is what decisions need to know of a target Secret: never a key.
type SecretFacts struct {
	// Labels and Annotations of the Secret.
	Labels, Annotations map[string]string
	// Empty says that the Secret has no data at all.
	Empty bool
	// HasKey and HasCertificate say whether tls.key and tls.crt are there.
	HasKey, HasCertificate bool
	// PublicKey is that of tls.key; nil with KeyError where it cannot be decoded.
	PublicKey crypto.PublicKey
	KeyError  error
	// Leaf is the first certificate of tls.crt; nil with CertificateError where
	// it cannot be decoded.
	Leaf             *x509.Certificate
	CertificateError error
}

// FactsOf reads the facts from a Secret, once for each version of it.
func FactsOf(secret *corev1.Secret) *SecretFacts {
	f := &SecretFacts{Labels: secret.Labels, Annotations: secret.Annotations, Empty: len(secret.Data) == 0}
	key, leaf := secret.Data[cmmeta.TLSPrivateKeyKey], secret.Data[cmmeta.TLSCertKey]
	f.HasKey, f.HasCertificate = len(key) > 0, len(leaf) > 0
	if f.HasKey {
		f.PublicKey, f.KeyError = publicKeyOf(key)
	}
	if f.HasCertificate {
		f.Leaf, f.CertificateError = LeafOf(leaf)
	}
	return f
}

func publicKeyOf(text []byte) (crypto.PublicKey, error) {
	key, err := pki.DecodePrivateKey(text)
	if err != nil {
		return nil, err
	}
	return key.Public(), nil
}

// LeafOf decodes the first certificate of a PEM chain of at most pki.MaxChainPEM bytes.
func LeafOf(text []byte) (*x509.Certificate, error) {
	if len(text) > pki.MaxChainPEM {
		return nil, fmt.Errorf("%d bytes of PEM are more than the %d that are decoded", len(text), pki.MaxChainPEM)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM block of type CERTIFICATE")
	}
	return x509.ParseCertificate(block.Bytes)
}

// KeyFacts is what decisions need to know of a next-private-key Secret.
type KeyFacts struct {
	// Name of the Secret.
	Name string
	// PublicKey of its tls.key; nil with Error where it cannot be decoded.
	PublicKey crypto.PublicKey
	Error     error
}

// KeyFactsOf reads the facts from a next-private-key Secret.
func KeyFactsOf(secret *corev1.Secret) KeyFacts {
	public, err := publicKeyOf(secret.Data[cmmeta.TLSPrivateKeyKey])
	return KeyFacts{Name: secret.Name, PublicKey: public, Error: err}
}

// RequestFacts is a CertificateRequest of the Certificate with its PKCS#10
// request decoded; CSR is nil with Error where it cannot be.
type RequestFacts struct {
	*certmanagerv1.CertificateRequest

	CSR   *x509.CertificateRequest
	Error error
}

// RequestFactsOf decodes the PKCS#10 request of r.
func RequestFactsOf(r *certmanagerv1.CertificateRequest) RequestFacts {
	csr, err := pki.DecodeCSR(r.Spec.Request)
	return RequestFacts{CertificateRequest: r, CSR: csr, Error: err}
}

// revision returns the revision a request was made for; false for none.
func (r RequestFacts) revision() (int, bool) {
	return parseRevision(r.Annotations[certmanagerv1.CertificateRevisionAnnotation])
}

// condition returns a condition of the request that holds, or nil.
func (r RequestFacts) condition(t certmanagerv1.CertificateRequestConditionType) *certmanagerv1.CertificateRequestCondition {
	c := certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, t)
	if c == nil || c.Status != cmmeta.ConditionTrue {
		return nil
	}
	return c
}

// KeySpecOf returns what kind of key a Certificate wants, defaults applied by pki.
func KeySpecOf(spec *certmanagerv1.CertificateSpec) pki.KeySpec {
	if spec.PrivateKey == nil {
		return pki.KeySpec{}
	}
	return pki.KeySpec{Algorithm: string(spec.PrivateKey.Algorithm), Size: spec.PrivateKey.Size}
}
