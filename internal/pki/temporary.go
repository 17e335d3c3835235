package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
)

// What tells a temporary certificate from others (spec §2.4).
const (
	temporaryIssuer = "cert-manager.local"
	temporarySerial = "1234567890"
)

// TemporaryCertificate returns, as PEM, a certificate for a request. Nobody trusts the certificate: a key that is made
// for it alone signs it. It is for software that does not start without a certificate, until the real one comes (spec
// §2.4).
func TemporaryCertificate(csr *x509.CertificateRequest, i Issuance) ([]byte, error) {
	template, err := newTemplate(csr, i)
	if err != nil {
		return nil, err
	}
	if template.RawSubject, err = markSubject(csr.RawSubject); err != nil {
		return nil, err
	}
	key, err := GenerateKey(KeySpec{Algorithm: ECDSA, Size: 521})
	if err != nil {
		return nil, err
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: temporaryIssuer}, NotBefore: i.NotBefore, NotAfter: template.NotAfter,
		PublicKey: key.Public(), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if authority, err = Sign(authority, authority, key); err != nil {
		return nil, err
	}
	leaf, err := Sign(template, authority, key)
	if err != nil {
		return nil, err
	}
	return EncodeCertificates(leaf), nil
}

// IsTemporary reports whether TemporaryCertificate, or cert-manager in its place, has made a certificate.
func IsTemporary(c *x509.Certificate) bool {
	return c.Issuer.CommonName == temporaryIssuer && c.Subject.SerialNumber == temporarySerial
}

// markSubject gives a subject the serial number of temporary certificates.
func markSubject(raw []byte) ([]byte, error) {
	rdns, err := decodeName(raw)
	if err != nil {
		return nil, fmt.Errorf("the subject of the certificate request: %w", err)
	}
	serialNumber := asn1.ObjectIdentifier{2, 5, 4, 5}
	kept := pkix.RDNSequence{}
	for _, rdn := range rdns {
		if len(rdn) > 0 && !rdn[0].Type.Equal(serialNumber) {
			kept = append(kept, rdn)
		}
	}
	return asn1.Marshal(append(kept, pkix.RelativeDistinguishedNameSET{{Type: serialNumber, Value: temporarySerial}}))
}
