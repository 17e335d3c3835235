package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"time"
)

// Issuance is the part of a certificate that the issuer decides, not the request.
type Issuance struct {
	// NotBefore and Duration are the validity; it is not clamped to the signer's.
	NotBefore time.Time
	Duration  time.Duration
	// IsCA makes a CA certificate.
	IsCA bool
	// Usages is what the key may be used for.
	Usages KeyUsages
	// The addresses at which a verifier finds revocation lists, OCSP responders and the signer's own certificate
	// (RFC 5280 §4.2.1.13, §4.2.2.1).
	CRLDistributionPoints, OCSPServers, IssuingCertificateURLs []string
}

// NewTemplate turns a request into a template to sign (spec §3.4): subject and subject alternative names byte for
// byte, name constraints as they are, all other extensions of the request dropped. Whatever the request says about
// usages and about being a CA must agree with the issuance; a disagreement is an error, and so is a DNS name that no
// client matches.
func NewTemplate(csr *x509.CertificateRequest, i Issuance) (*x509.Certificate, error) {
	for _, n := range csr.DNSNames {
		if err := CheckDNSName(n); err != nil {
			return nil, err
		}
	}
	return newTemplate(csr, i)
}

func newTemplate(csr *x509.CertificateRequest, i Issuance) (*x509.Certificate, error) {
	facts, err := InspectCSR(csr)
	if err != nil {
		return nil, err
	}
	if err := facts.Disagreement(i.IsCA, i.Usages); err != nil {
		return nil, err
	}
	if i.Duration <= 0 {
		return nil, fmt.Errorf("a certificate cannot be valid for %s: set a positive duration", i.Duration)
	}
	var x extensions
	if i.Usages.encode(&x); x.err != nil {
		return nil, x.err
	}
	return &x509.Certificate{
		RawSubject:            csr.RawSubject,
		Subject:               csr.Subject,
		PublicKey:             csr.PublicKey,
		NotBefore:             i.NotBefore.UTC(),
		NotAfter:              i.NotBefore.UTC().Add(i.Duration),
		BasicConstraintsValid: true,
		IsCA:                  i.IsCA,
		CRLDistributionPoints: i.CRLDistributionPoints,
		OCSPServer:            i.OCSPServers,
		IssuingCertificateURL: i.IssuingCertificateURLs,
		ExtraExtensions:       append(x.list, keptExtensions(csr)...),
	}, nil
}

// Disagreement returns an error if the request contradicts isCA or usages, which are to be issued.
func (f CSRFacts) Disagreement(isCA bool, usages KeyUsages) error {
	var errs []error
	if f.BasicConstraints && f.IsCA != isCA {
		errs = append(errs, fmt.Errorf("isCA is %t, but the encoded certificate request says %t", isCA, f.IsCA))
	}
	sameBits := !f.KeyUsage || f.Usages.Bits == usages.Bits
	sameEKU := !f.ExtKeyUsage || sameExtended(f.Usages.Extended, usages.Extended)
	if !sameBits || !sameEKU {
		errs = append(errs, fmt.Errorf("the usages are %q, but the encoded certificate request says %q", usages.UsageNames(), f.Usages.UsageNames()))
	}
	return errors.Join(errs...)
}

// keptExtensions are those of the request that go into the certificate: names with
// their criticality as RFC 5280 §4.2.1.6 wants it, and name constraints.
func keptExtensions(csr *x509.CertificateRequest) []pkix.Extension {
	var out []pkix.Extension
	if e := findExtension(csr.Extensions, oidSubjectAltName); e != nil && !isEmptySubject(e.Value) {
		out = append(out, pkix.Extension{Id: e.Id, Critical: isEmptySubject(csr.RawSubject), Value: e.Value})
	}
	if e := findExtension(csr.Extensions, oidNameConstraints); e != nil {
		out = append(out, pkix.Extension{Id: e.Id, Critical: e.Critical, Value: e.Value})
	}
	return out
}

// Sign issues a certificate for template.PublicKey, signed by parent with key. For a self-signed certificate, parent is
// the template. If the template has no serial number, the certificate gets a random one. It is an error if key is not
// the key of parent.
//
// Each certificate names its key (RFC 5280 §4.2.1.2) and the signer's key (§4.2.1.1), unless it is self-signed. If the
// signer's certificate has no key identifier, the signer's key is named only if both have the same subject: then
// verifiers need both identifiers to see that the certificate is not self-signed. Otherwise it is not named: a new
// certificate of the signer may name the key in another way.
func Sign(template, parent *x509.Certificate, key crypto.Signer) (*x509.Certificate, error) {
	algorithm, err := SignatureAlgorithmFor(key.Public())
	if err != nil {
		return nil, err
	}
	tbs := *template
	tbs.SignatureAlgorithm = algorithm
	if len(tbs.SubjectKeyId) == 0 {
		if tbs.SubjectKeyId, err = keyID(template.PublicKey); err != nil {
			return nil, err
		}
	}
	if parent == template {
		parent = &tbs
	} else if tbs.AuthorityKeyId = parent.SubjectKeyId; len(tbs.AuthorityKeyId) == 0 && bytes.Equal(tbs.RawSubject, parent.RawSubject) {
		if tbs.AuthorityKeyId, err = keyID(parent.PublicKey); err != nil {
			return nil, err
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, &tbs, parent, template.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("the signed certificate does not parse, something in the request is malformed: %w", err)
	}
	return cert, nil
}

// keyID names a public key: the first 160 bits of the SHA-256 of its bits (RFC 7093 §2, method 1).
func keyID(public crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("encode the public key: %w", err)
	}
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &info); err != nil {
		return nil, fmt.Errorf("encode the public key: %w", err)
	}
	sum := sha256.Sum256(info.Key.RightAlign())
	return sum[:20], nil
}
