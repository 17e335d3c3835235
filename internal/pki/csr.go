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

// CreateCSR returns a PEM encoded certificate request (RFC 2986), signed with key. Its shape is fixed by spec §2.3. An
// error means that the template cannot be encoded: trying again does not help.
func CreateCSR(t CSRTemplate, key crypto.Signer) ([]byte, error) {
	subject, err := t.subject()
	if err != nil {
		return nil, err
	}
	encoded, err := t.extensions(isEmptySubject(subject), key.Public())
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
		ExtraExtensions:    encoded,
	}, key)
	if err != nil {
		return nil, fmt.Errorf("create certificate request: %w", err)
	}
	return pemBlock(pemRequest, der), nil
}

// subject returns the subject in DER.
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

// extensions encodes extensions until the first error.
type extensions struct {
	list []pkix.Extension
	err  error
}

func (x *extensions) add(id asn1.ObjectIdentifier, critical bool, value any) {
	der, err := asn1.Marshal(value)
	switch {
	case x.err != nil:
	case err != nil:
		x.err = fmt.Errorf("encode the extension %s: %w", id, err)
	default:
		x.list = append(x.list, pkix.Extension{Id: id, Critical: critical, Value: der})
	}
}

// extensions are in the order of spec §2.3.
func (t CSRTemplate) extensions(emptySubject bool, key crypto.PublicKey) ([]pkix.Extension, error) {
	usages, err := ParseUsages(t.Usages, t.IsCA, key)
	if err != nil {
		return nil, err
	}
	var x extensions
	t.AltNames.encode(&x, emptySubject) // RFC 5280 §4.2.1.6
	if t.EncodeUsages {
		usages.encode(&x)
	}
	if t.EncodeBasicConstraints {
		x.add(oidBasicConstraints, true, basicConstraints{IsCA: t.IsCA, MaxPathLen: -1})
	}
	t.NameConstraints.encode(&x)
	return x.list, x.err
}

// basicConstraints is RFC 5280 §4.2.1.9.
type basicConstraints struct {
	IsCA       bool `asn1:"optional"`
	MaxPathLen int  `asn1:"optional,default:-1"`
}

func (u KeyUsages) encode(x *extensions) {
	if u.Bits != 0 {
		x.add(oidKeyUsage, true, bitString(u.Bits))
	}
	if len(u.Extended) > 0 {
		x.add(oidExtKeyUsage, false, u.Extended)
	}
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
	// KeyUsage and ExtKeyUsage say which of the extensions the request carries, and Usages what they hold.
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
	var keyUsage asn1.BitString
	var basic basicConstraints
	for _, known := range []struct {
		what  string
		id    asn1.ObjectIdentifier
		into  any
		found *bool
	}{
		{"key usage", oidKeyUsage, &keyUsage, &f.KeyUsage},
		{"extended key usage", oidExtKeyUsage, &f.Usages.Extended, &f.ExtKeyUsage},
		{"basic constraints", oidBasicConstraints, &basic, &f.BasicConstraints},
	} {
		e := findExtension(csr.Extensions, known.id)
		if e == nil {
			continue
		}
		if err := unmarshalAll(e.Value, known.into); err != nil {
			return CSRFacts{}, fmt.Errorf("the %s extension of the certificate request does not parse: %w", known.what, err)
		}
		*known.found = true
	}
	for i := range 9 {
		f.Usages.Bits |= x509.KeyUsage(keyUsage.At(i) << i)
	}
	f.IsCA = basic.IsCA
	return f, nil
}

// The attributes of a request in which extensions are looked for: that of RFC 2985 §5.4.2, and Microsoft's older one.
var (
	oidExtensionRequest          = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}
	oidMicrosoftExtensionRequest = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 14}
)

// HiddenExtensions returns an error if CAs may find extensions in a request that InspectCSR does not see: OpenSSL and
// Microsoft's CAs read Microsoft's attribute, and crypto/x509 passes over attributes that it cannot read.
func HiddenExtensions(csr *x509.CertificateRequest) error {
	var info struct { // RFC 2986 §4.1
		Version            int
		Subject, PublicKey asn1.RawValue
		Attributes         []asn1.RawValue `asn1:"tag:0"`
	}
	if _, err := asn1.Unmarshal(csr.RawTBSCertificateRequest, &info); err != nil {
		return fmt.Errorf("the attributes of the certificate request do not parse: %w", err)
	}
	for _, raw := range info.Attributes {
		var attribute struct {
			ID     asn1.ObjectIdentifier
			Values []asn1.RawValue `asn1:"set"`
		}
		switch _, err := asn1.Unmarshal(raw.FullBytes, &attribute); {
		case err != nil:
			return fmt.Errorf("an attribute of the certificate request does not parse: %w", err)
		case attribute.ID.Equal(oidMicrosoftExtensionRequest), attribute.ID.Equal(oidExtensionRequest) && len(attribute.Values) != 1:
			return fmt.Errorf("the certificate request has extensions in the attribute %s that are not read: "+
				"put all extensions into one value of the attribute %s", attribute.ID, oidExtensionRequest)
		}
	}
	return nil
}

// unmarshalAll decodes DER that has nothing behind it.
func unmarshalAll(der []byte, into any) error {
	rest, err := asn1.Unmarshal(der, into)
	if err == nil && len(rest) > 0 {
		err = errors.New("bytes after its end")
	}
	return err
}
