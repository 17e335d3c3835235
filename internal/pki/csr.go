package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/bits"
)

// CSRTemplate is what a certificate request asks for.
type CSRTemplate struct {
	// Subject is encoded in the order C, O, OU, L, ST, street, postalCode, CN,
	// serialNumber. It must be empty if LiteralSubject is set.
	Subject pkix.Name
	// LiteralSubject is a subject in the string form of RFC 4514.
	LiteralSubject string
	// AltNames are the subject alternative names.
	AltNames AltNames
	// Usages are names of the API; none means its default.
	Usages []string
	// EncodeUsages says whether the usages go into the request at all.
	EncodeUsages bool
	// IsCA asks for a CA certificate: its usages include certificate signing.
	IsCA bool
	// EncodeBasicConstraints says whether the request carries IsCA itself.
	EncodeBasicConstraints bool
	// NameConstraints of the CA; nil for none.
	NameConstraints *NameConstraints
	// SignatureAlgorithm is a name of the API; empty means the one that suits the key.
	SignatureAlgorithm string
}

// CreateCSR returns a PEM encoded certificate request (RFC 2986), signed with key.
// Its shape is fixed by spec §2.3. An error means that the template cannot be
// encoded: trying again does not help.
func CreateCSR(t CSRTemplate, key crypto.Signer) ([]byte, error) {
	subject, err := t.subject()
	if err != nil {
		return nil, err
	}
	extensions, err := t.extensions(isEmptySubject(subject))
	if err != nil {
		return nil, err
	}
	algorithm, err := signatureAlgorithm(t.SignatureAlgorithm, key.Public())
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		RawSubject:         subject,
		SignatureAlgorithm: algorithm,
		ExtraExtensions:    extensions,
	}, key)
	if err != nil {
		return nil, fmt.Errorf("create certificate request: %w", err)
	}
	return pemBlock(pemRequest, der), nil
}

// SubjectDER returns the subject as CreateCSR encodes it.
func (t CSRTemplate) SubjectDER() ([]byte, error) { return t.subject() }

func (t CSRTemplate) subject() ([]byte, error) {
	if t.LiteralSubject == "" {
		der, err := asn1.Marshal(subjectRDNs(t.Subject))
		if err != nil {
			return nil, fmt.Errorf("encode subject: %w", err)
		}
		return der, nil
	}
	if len(subjectRDNs(t.Subject)) > 0 {
		return nil, errors.New("literalSubject excludes commonName and subject: set one of them")
	}
	return LiteralSubjectDER(t.LiteralSubject)
}

// subjectRDNs is in the order of spec §2.3, all values of a type in one RDN. The
// order that pkix.Name.ToRDNSequence has is another one.
func subjectRDNs(n pkix.Name) pkix.RDNSequence {
	var rdns pkix.RDNSequence
	for _, a := range []struct {
		last   int // arc below id-at, 2.5.4 (RFC 5280 appendix A.1)
		values []string
	}{
		{6, n.Country}, {10, n.Organization}, {11, n.OrganizationalUnit}, {7, n.Locality}, {8, n.Province},
		{9, n.StreetAddress}, {17, n.PostalCode}, {3, nonEmpty(n.CommonName)}, {5, nonEmpty(n.SerialNumber)},
	} {
		var rdn pkix.RelativeDistinguishedNameSET
		for _, v := range a.values {
			rdn = append(rdn, pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, a.last}, Value: v})
		}
		if len(rdn) > 0 {
			rdns = append(rdns, rdn)
		}
	}
	return rdns
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// extensions are in the order of spec §2.3.
func (t CSRTemplate) extensions(emptySubject bool) ([]pkix.Extension, error) {
	names, err := t.AltNames.extension(emptySubject) // RFC 5280 §4.2.1.6
	if err != nil {
		return nil, err
	}
	var out []pkix.Extension
	if names != nil {
		out = append(out, *names)
	}
	usages, err := ParseUsages(t.Usages, t.IsCA)
	if err != nil {
		return nil, err
	}
	if t.EncodeUsages {
		extensions, err := usages.extensions()
		if err != nil {
			return nil, err
		}
		out = append(out, extensions...)
	}
	if t.EncodeBasicConstraints {
		der, err := asn1.Marshal(basicConstraints{IsCA: t.IsCA, MaxPathLen: -1})
		if err != nil {
			return nil, fmt.Errorf("encode basic constraints: %w", err)
		}
		out = append(out, pkix.Extension{Id: oidBasicConstraints, Critical: true, Value: der})
	}
	limits, err := t.NameConstraints.extension()
	if err != nil {
		return nil, err
	}
	if limits != nil {
		out = append(out, *limits)
	}
	return out, nil
}

// basicConstraints is RFC 5280 §4.2.1.9.
type basicConstraints struct {
	IsCA       bool `asn1:"optional"`
	MaxPathLen int  `asn1:"optional,default:-1"`
}

func (u KeyUsages) extensions() ([]pkix.Extension, error) {
	var out []pkix.Extension
	if u.Bits != 0 {
		der, err := asn1.Marshal(bitString(u.Bits))
		if err != nil {
			return nil, fmt.Errorf("encode key usages: %w", err)
		}
		out = append(out, pkix.Extension{Id: oidKeyUsage, Critical: true, Value: der})
	}
	if len(u.Extended) > 0 {
		der, err := asn1.Marshal(u.Extended)
		if err != nil {
			return nil, fmt.Errorf("encode extended key usages: %w", err)
		}
		out = append(out, pkix.Extension{Id: oidExtKeyUsage, Value: der})
	}
	return out, nil
}

// bitString is a named bit list: bit 0 first, trailing zero bits left out (X.690 §11.2.2).
func bitString(u x509.KeyUsage) asn1.BitString {
	length := bits.Len16(uint16(u)) //nolint:gosec // a key usage has nine bits
	octets := []byte{bits.Reverse8(byte(u & 0xff)), bits.Reverse8(byte(u >> 8 & 0xff))}
	return asn1.BitString{Bytes: octets[:(length+7)/8], BitLength: length}
}

func isEmptySubject(der []byte) bool { return bytes.Equal(der, []byte{0x30, 0x00}) }

// CSRFacts is what a certificate request says.
type CSRFacts struct {
	// Subject, parsed, and as it is encoded.
	Subject    pkix.Name
	RawSubject []byte
	// AltNames in the order of the request.
	AltNames AltNames
	// PublicKey of the requester.
	PublicKey crypto.PublicKey
	// KeyUsage and ExtKeyUsage say which of the extensions the request carries, and
	// Usages what they hold.
	KeyUsage, ExtKeyUsage bool
	Usages                KeyUsages
	// BasicConstraints says whether the request carries the extension, and IsCA what it says.
	BasicConstraints, IsCA bool
}

// InspectCSR returns what a request says, or an error if an extension that counts
// does not parse. It does not verify the signature: DecodeCSR does.
func InspectCSR(csr *x509.CertificateRequest) (CSRFacts, error) {
	f := CSRFacts{
		Subject: csr.Subject, RawSubject: csr.RawSubject, PublicKey: csr.PublicKey,
		AltNames: altNames(csr.DNSNames, csr.EmailAddresses, csr.IPAddresses, csr.URIs),
	}
	var err error
	if f.AltNames.OtherNames, err = parseOtherNames(csr.Extensions); err != nil {
		return CSRFacts{}, err
	}
	if e := findExtension(csr.Extensions, oidKeyUsage); e != nil {
		var b asn1.BitString
		if err := unmarshalExtension("key usage", e.Value, &b); err != nil {
			return CSRFacts{}, err
		}
		f.KeyUsage = true
		for i := range 9 {
			f.Usages.Bits |= x509.KeyUsage(b.At(i) << i)
		}
	}
	if e := findExtension(csr.Extensions, oidExtKeyUsage); e != nil {
		if err := unmarshalExtension("extended key usage", e.Value, &f.Usages.Extended); err != nil {
			return CSRFacts{}, err
		}
		f.ExtKeyUsage = true
	}
	if e := findExtension(csr.Extensions, oidBasicConstraints); e != nil {
		var b basicConstraints
		if err := unmarshalExtension("basic constraints", e.Value, &b); err != nil {
			return CSRFacts{}, err
		}
		f.BasicConstraints, f.IsCA = true, b.IsCA
	}
	return f, nil
}

func unmarshalExtension(what string, der []byte, into any) error {
	rest, err := asn1.Unmarshal(der, into)
	if err == nil && len(rest) > 0 {
		err = errors.New("bytes after its end")
	}
	if err != nil {
		return fmt.Errorf("the %s extension of the certificate request does not parse: %w", what, err)
	}
	return nil
}
