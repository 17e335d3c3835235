package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"

	"chancery.dev/internal/limits"
)

// The largest PEM texts that are decoded, in bytes: decoding of hostile input takes more than linear time (spec
// appendix C).
const (
	MaxCertificatePEM = limits.CertificatePEM
	MaxPrivateKeyPEM  = limits.PrivateKeyPEM
	MaxChainPEM       = limits.ChainPEM
	MaxBundlePEM      = limits.BundlePEM
)

const (
	pemCertificate = "CERTIFICATE"
	pemRequest     = "CERTIFICATE REQUEST"
)

// checkSize does not say how large the text is: a signature differs in length from one
// try to the next, and what is said must not.
func checkSize(what string, text []byte, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("%s has more bytes of PEM than the %d that are decoded", what, limit)
	}
	return nil
}

// firstLines are the first lines of PEM blocks, readable or not. One may stand after a byte order mark, or
// where the last line of another has no end.
var firstLines = regexp.MustCompile(`(?m)(?:^[ \t\x{feff}]*|-----)-----BEGIN`)

// readBlock decodes the first PEM block of a text; nil if there is none. Broken counts what, before it or in the place
// of it, begins like a block and cannot be read: pem.Decode passes over that, and other programs may not.
func readBlock(text []byte) (block *pem.Block, rest []byte, broken int) {
	block, rest = pem.Decode(text)
	read, good := text, 0
	if block != nil {
		read, good = text[:len(text)-len(rest)], 1
	}
	return block, rest, len(firstLines.FindAllIndex(read, -1)) - good
}

// nextBlock is readBlock where each block has to be readable.
func nextBlock(text []byte) (block *pem.Block, rest []byte, err error) {
	block, rest, broken := readBlock(text)
	if broken > 0 {
		return nil, nil, errors.New("a PEM block cannot be read: its first and last line stand alone, without spaces before them, and have the same label, and between them is Base64")
	}
	return block, rest, nil
}

// unmarked returns a text without the byte order marks that editors put before the first line of a file: it is taken
// for a line that is no part of a block otherwise.
func unmarked(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\ufeff"), nil) }

// isCertificate reports whether a PEM label is that of a certificate; two of them are what old programs write (RFC 7468
// §5.1). OpenSSL's TRUSTED CERTIFICATE is none: it has more in it than a certificate.
func isCertificate(label string) bool {
	return label == pemCertificate || label == "X509 "+pemCertificate || label == "X.509 "+pemCertificate
}

// DecodeCertificate reads the first certificate of a PEM text of at most MaxCertificatePEM bytes.
func DecodeCertificate(text []byte) (*x509.Certificate, error) {
	certs, err := decodeCertificates("certificate", text, MaxCertificatePEM)
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}

// DecodeChain reads the certificates of a PEM text of at most MaxChainPEM bytes:
// one at least, in the order of the text.
func DecodeChain(text []byte) ([]*x509.Certificate, error) {
	return decodeCertificates("certificate chain", text, MaxChainPEM)
}

// CleanChain returns the certificates of a PEM text of at most MaxChainPEM bytes as PEM of at most as many, and nothing
// else: what others have written may have anything around them. It is an error if a block cannot be read or is no
// certificate, or if there is none.
func CleanChain(text []byte) (clean []byte, certs []*x509.Certificate, err error) {
	if certs, err = DecodeChain(text); err != nil {
		return nil, nil, err
	}
	clean = EncodeCertificates(certs...)
	return clean, certs, checkSize("certificate chain", clean, MaxChainPEM) // which may have been in longer lines
}

// DecodeBundle reads the certificates of a trust bundle of at most MaxBundlePEM bytes.
func DecodeBundle(text []byte) ([]*x509.Certificate, error) {
	return decodeCertificates("certificate bundle", text, MaxBundlePEM)
}

// Trust reads the certificates of a text that somebody trusts, of at most MaxBundlePEM bytes. leftOut says, for each
// other PEM block, why it is left out.
func Trust(text []byte) (certs []*x509.Certificate, leftOut []string) {
	if len(text) > MaxBundlePEM {
		return nil, []string{fmt.Sprintf("it has more bytes of PEM than the %d that are decoded", MaxBundlePEM)}
	}
	text = unmarked(text)
	for n := 1; ; n++ {
		block, rest, broken := readBlock(text)
		for range broken {
			leftOut = append(leftOut, fmt.Sprintf("PEM block %d cannot be read", n))
			n++
		}
		if block == nil {
			return certs, leftOut
		}
		text = rest
		if !isCertificate(block.Type) {
			leftOut = append(leftOut, fmt.Sprintf("PEM block %d is a %.40q, not a CERTIFICATE", n, block.Type))
		} else if cert, err := x509.ParseCertificate(block.Bytes); err != nil {
			leftOut = append(leftOut, fmt.Sprintf("PEM block %d does not parse: %.100s", n, err))
		} else {
			certs = append(certs, cert)
		}
	}
}

// LeftOut names the first part of a CA bundle that is not used because it is no certificate, and counts the others. It
// is empty if the whole bundle is used, or if it has no certificate at all: such a bundle is refused later.
func LeftOut(where string, bundle []byte) string {
	certs, others := Trust(bundle)
	if len(certs) == 0 || len(others) == 0 {
		return ""
	}
	text := where + " is used without what is no certificate in it: " + others[0]
	if more := len(others) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// TrustPool is Trust for a verifier; nil if there is no certificate.
func TrustPool(text []byte) *x509.CertPool {
	certs, _ := Trust(text)
	if len(certs) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

func decodeCertificates(what string, text []byte, limit int) ([]*x509.Certificate, error) {
	if err := checkSize(what, text, limit); err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	text = unmarked(text)
	for n := 1; ; n++ {
		block, rest, err := nextBlock(text)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d of the %s: %w", n, what, err)
		}
		if block == nil {
			break
		}
		text = rest
		if block.Type == "TRUSTED "+pemCertificate {
			return nil, fmt.Errorf("PEM block %d of the %s is a %q, which has trust settings of OpenSSL in it: openssl x509 writes it as a CERTIFICATE", n, what, block.Type)
		}
		if !isCertificate(block.Type) {
			return nil, fmt.Errorf("PEM block %d of the %s is a %.40q, not a CERTIFICATE", n, what, block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d of the %s does not parse: %w", n, what, err)
		}
		if err := checkForeignKey(cert.PublicKey); err != nil {
			return nil, fmt.Errorf("PEM block %d of the %s: %w", n, what, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("the %s has no PEM block CERTIFICATE", what)
	}
	return certs, nil
}

// EncodeCertificates returns certificates as PEM, in their order.
func EncodeCertificates(certs ...*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certs {
		out.Write(pemBlock(pemCertificate, c.Raw))
	}
	return out.Bytes()
}

// DecodeCSR reads a PEM encoded certificate request (RFC 2986) of at most MaxChainPEM bytes and verifies its signature,
// the proof that the requester holds the key.
func DecodeCSR(text []byte) (*x509.CertificateRequest, error) {
	csr, err := ParseCSR(text)
	if err != nil {
		return nil, err
	}
	if csr.PublicKey == nil {
		return nil, errors.New("the certificate request is for a kind of key that is not known here")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the certificate request is not signed by its own key: %w", err)
	}
	return csr, nil
}

// NamesNothing reports whether a request has a key, and neither a subject nor extensions.
func NamesNothing(csr *x509.CertificateRequest) bool {
	return isEmptySubject(csr.RawSubject) && len(csr.Extensions) == 0
}

// KeyAlone returns a request for a public key that names nothing, and is not signed.
func KeyAlone(key crypto.PublicKey) *x509.CertificateRequest {
	return &x509.CertificateRequest{PublicKey: key, RawSubject: []byte{0x30, 0x00}}
}

// InspectPEM is InspectCSR of a request as DecodeCSR takes it. The signature is not verified.
func InspectPEM(text []byte) (CSRFacts, error) {
	csr, err := ParseCSR(text)
	if err != nil {
		return CSRFacts{}, err
	}
	return InspectCSR(csr)
}

// ParseCSR is DecodeCSR without a look at the signature: for a request that was verified before, or will be. Verifying
// takes ten times as long as parsing.
func ParseCSR(text []byte) (*x509.CertificateRequest, error) {
	if err := checkSize("certificate request", text, MaxChainPEM); err != nil {
		return nil, err
	}
	block, _, err := nextBlock(unmarked(text))
	if err != nil {
		return nil, fmt.Errorf("the certificate request: %w", err)
	}
	if block == nil {
		return nil, errors.New("the certificate request has no PEM block CERTIFICATE REQUEST")
	}
	// "NEW" is what old tools write (RFC 7468 §7).
	if block.Type != pemRequest && block.Type != "NEW "+pemRequest {
		return nil, fmt.Errorf("the certificate request's PEM block is a %.40q, not a CERTIFICATE REQUEST", block.Type)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the certificate request does not parse: %w", err)
	}
	if err := checkForeignKey(csr.PublicKey); err != nil {
		return nil, fmt.Errorf("the certificate request: %w", err)
	}
	return csr, nil
}
