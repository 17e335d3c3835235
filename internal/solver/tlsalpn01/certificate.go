package tlsalpn01

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// acmeIdentifier is the extension that holds the answer: id-pe-acmeIdentifier (RFC 8737 §6.1).
func acmeIdentifier() asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 31}
}

// answerOf is the value of the extension: the SHA-256 sum of the key authorization as an OCTET STRING (RFC 8737 §3).
func answerOf(keyAuthorization string) ([]byte, error) {
	sum := sha256.Sum256([]byte(keyAuthorization))
	return asn1.Marshal(sum[:])
}

// newCertificate makes the self-signed certificate that answers for an identifier (RFC 8737 §3, RFC 8738 §6).
func newCertificate(key *ecdsa.PrivateKey, identifier, keyAuthorization string, now time.Time) (*tls.Certificate, error) {
	answer, err := answerOf(keyAuthorization)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:    big.NewInt(now.UnixNano()),
		Subject:         pkix.Name{CommonName: Protocol},
		NotBefore:       now.Add(-time.Hour),
		NotAfter:        now.Add(24 * time.Hour),
		KeyUsage:        x509.KeyUsageDigitalSignature,
		ExtraExtensions: []pkix.Extension{{Id: acmeIdentifier(), Critical: true, Value: answer}},
	}
	if ip, err := netip.ParseAddr(identifier); err == nil {
		template.IPAddresses = []net.IP{ip.Unmap().AsSlice()}
	} else {
		template.DNSNames = []string{identifier}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate that answers for %q: %w", identifier, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// problemOf says why a certificate does not answer for an identifier; empty if it does. Names are not
// quoted: whoever may create a Challenge could read what only the controller can reach.
func problemOf(c *x509.Certificate, identifier, keyAuthorization string) string {
	found := slices.IndexFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(acmeIdentifier()) })
	answer, err := answerOf(keyAuthorization)
	switch {
	case err != nil:
		return err.Error()
	case found < 0:
		return "the certificate has no acmeIdentifier extension: something in between has its own, and has to pass the handshake through to the responder"
	case !isOnlyFor(c, identifier):
		return "the certificate answers a challenge for another name: the server name of the handshake is to be passed on as it is"
	case !bytes.Equal(c.Extensions[found].Value, answer):
		return "the certificate answers another challenge for the same name, which has to be finished first, or another responder's"
	case !c.Extensions[found].Critical:
		return "the acmeIdentifier extension of the certificate is not critical"
	case !bytes.Equal(c.RawSubject, c.RawIssuer) || c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) != nil:
		return "the certificate is not self-signed"
	}
	return ""
}

// isOnlyFor reports whether the identifier is the one subject alternative name.
func isOnlyFor(c *x509.Certificate, identifier string) bool {
	if len(c.DNSNames)+len(c.IPAddresses)+len(c.EmailAddresses)+len(c.URIs) != 1 {
		return false
	}
	if ip, err := netip.ParseAddr(identifier); err == nil {
		return len(c.IPAddresses) == 1 && c.IPAddresses[0].Equal(ip.AsSlice())
	}
	return len(c.DNSNames) == 1 && strings.EqualFold(c.DNSNames[0], identifier)
}
