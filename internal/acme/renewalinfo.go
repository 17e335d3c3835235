package acme

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"math/big"
	"time"
)

// RenewalInfo is the CA's suggestion when to renew (RFC 9773 §4.2). Meta.RetryAfter says when to ask again (§4.3).
type RenewalInfo struct {
	Meta
	// SuggestedWindow is when to renew: at a random instant in it.
	SuggestedWindow Window `json:"suggestedWindow"`
	// ExplanationURL tells a person why; may be empty.
	ExplanationURL string `json:"explanationURL,omitempty"`
}

// Window is a span of time.
type Window struct {
	// Start is the earliest instant.
	Start time.Time `json:"start"`
	// End is the latest instant.
	End time.Time `json:"end"`
}

// CertID names a certificate to the CA (RFC 9773 §4.1): the base64url of its authority key
// identifier, a dot, and the base64url of its serial number's DER bytes.
func CertID(cert *x509.Certificate) (string, error) {
	if len(cert.AuthorityKeyId) == 0 {
		return "", errors.New("acme: the certificate has no authority key identifier: no renewal information for it (RFC 9773 §4.1)")
	}
	if cert.SerialNumber == nil || cert.SerialNumber.Sign() < 0 {
		return "", errors.New("acme: the certificate has no positive serial number (RFC 9773 §4.1)")
	}
	b64 := base64.RawURLEncoding
	return b64.EncodeToString(cert.AuthorityKeyId) + "." + b64.EncodeToString(derInteger(cert.SerialNumber)), nil
}

// derInteger is the content of n's DER encoding: a leading zero keeps a high bit from being a sign.
func derInteger(n *big.Int) []byte {
	b := n.Bytes()
	if len(b) == 0 || b[0]&0x80 != 0 {
		b = append([]byte{0}, b...)
	}
	return b
}
