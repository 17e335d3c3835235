package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxChain bounds the number of certificates that are joined: their signatures may have to be
// verified with each of them. The spec allows 1,000 (§3.4); real chains have less than ten.
const maxChain = 20

// Chain is certificates in order.
type Chain struct {
	// Certificates are leaf first, each signed by the next, without a self-signed
	// root (unless it is the only certificate).
	Certificates []*x509.Certificate
	// CA is the topmost known certificate: the root if it is known. Nil for a lone certificate that is not self-signed.
	CA *x509.Certificate
}

// PEM returns the two parts encoded; ca is nil if there is none.
func (c Chain) PEM() (chain, ca []byte) {
	if c.CA != nil {
		ca = EncodeCertificates(c.CA)
	}
	return EncodeCertificates(c.Certificates...), ca
}

// BuildChain orders certificates, given in any order and possibly more than once, into the one chain that holds them
// all (spec §3.4). It is an error if there is no such chain, or if ctx ends. It looks at names and signatures only:
// whether a signer may sign is for verifiers to say.
func BuildChain(ctx context.Context, certs []*x509.Certificate) (Chain, error) {
	unique, err := deduplicate(certs)
	if err != nil {
		return Chain{}, err
	}
	ordered, err := order(ctx, unique)
	if err != nil {
		return Chain{}, err
	}
	return split(ordered), nil
}

// Prepend returns the chain that BuildChain would make of this chain's certificates and a new leaf that its lowest
// certificate has signed. It is for signers that have just made the leaf: the signature is not verified again.
func (c Chain) Prepend(leaf *x509.Certificate) (Chain, error) {
	if len(c.Certificates) == 0 || !bytes.Equal(leaf.RawIssuer, c.Certificates[0].RawSubject) {
		return Chain{}, errors.New("the certificate is not signed by the lowest certificate of the chain")
	}
	issuer := c.Certificates[0]
	if bytes.Equal(leaf.RawIssuer, leaf.RawSubject) && PublicKeysEqual(leaf.PublicKey, issuer.PublicKey) {
		return Chain{}, fmt.Errorf("the certificate has the name and the key of its signer %q: it must have its own", name(issuer))
	}
	lone := len(c.Certificates) == 1
	switch {
	case lone && c.CA == issuer: // self-signed
		return Chain{Certificates: []*x509.Certificate{leaf}, CA: issuer}, nil
	case lone && c.CA == nil:
		return Chain{Certificates: []*x509.Certificate{leaf, issuer}, CA: issuer}, nil
	default:
		return Chain{Certificates: slices.Concat([]*x509.Certificate{leaf}, c.Certificates), CA: c.CA}, nil
	}
}

func deduplicate(certs []*x509.Certificate) ([]*x509.Certificate, error) {
	seen := make(map[string]bool, len(certs))
	var unique []*x509.Certificate
	for _, c := range certs {
		if !seen[string(c.Raw)] {
			seen[string(c.Raw)] = true
			unique = append(unique, c)
		}
	}
	switch {
	case len(unique) == 0:
		return nil, errors.New("no certificates to make a chain of")
	case len(unique) > maxChain:
		return nil, fmt.Errorf("%d certificates are too many for a chain: the limit is %d", len(unique), maxChain)
	}
	return unique, nil
}

// order links each certificate to its issuer. There is one chain if all but one
// have an issuer and no two have the same.
func order(ctx context.Context, certs []*x509.Certificate) ([]*x509.Certificate, error) {
	bySubject := make(map[string][]*x509.Certificate, len(certs))
	for _, c := range certs {
		bySubject[string(c.RawSubject)] = append(bySubject[string(c.RawSubject)], c)
	}
	child := make(map[*x509.Certificate]*x509.Certificate, len(certs))
	var top *x509.Certificate
	for _, c := range certs {
		issuer, err := issuerAmong(ctx, c, bySubject[string(c.RawIssuer)])
		switch {
		case err != nil:
			return nil, err
		case issuer == nil && top != nil:
			return nil, fmt.Errorf("the certificates %q and %q do not belong to one chain: neither leads to the other", name(top), name(c))
		case issuer == nil:
			top = c
		case child[issuer] != nil:
			return nil, fmt.Errorf("%q signs both %q and %q: only one of them can be in the chain", name(issuer), name(child[issuer]), name(c))
		default:
			child[issuer] = c
		}
	}
	ordered := make([]*x509.Certificate, 0, len(certs))
	for c := top; c != nil; c = child[c] {
		ordered = append(ordered, c)
	}
	if len(ordered) != len(certs) {
		return nil, errors.New("the certificates sign each other in a circle: they make no chain")
	}
	slices.Reverse(ordered)
	return ordered, nil
}

// issuerAmong returns the candidate that signed c, or nil. A self-signed
// certificate has none but itself: it is where a chain ends. Candidates that c names by
// their key identifier (RFC 5280 §4.2.1.1) come first: the others are seldom verified.
func issuerAmong(ctx context.Context, c *x509.Certificate, candidates []*x509.Certificate) (*x509.Certificate, error) {
	if IsSelfSigned(c) {
		return nil, nil
	}
	var named, others []*x509.Certificate
	for _, candidate := range candidates {
		if bytes.Equal(candidate.SubjectKeyId, c.AuthorityKeyId) {
			named = append(named, candidate)
		} else {
			others = append(others, candidate)
		}
	}
	var issuer *x509.Certificate
	for _, candidate := range append(named, others...) {
		switch {
		case candidate == c:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case issuer == nil:
			if signed(candidate, c) {
				issuer = candidate
			}
		case bytes.Equal(candidate.RawSubjectPublicKeyInfo, issuer.RawSubjectPublicKeyInfo):
			return nil, fmt.Errorf("%q can be signed by two certificates of the same name and key, %q: leave one of them out", name(c), name(issuer))
		}
	}
	return issuer, nil
}

// IsSelfSigned reports whether a certificate is signed with its own key.
func IsSelfSigned(c *x509.Certificate) bool {
	return bytes.Equal(c.RawIssuer, c.RawSubject) && signed(c, c)
}

// signed verifies the signature alone: CheckSignatureFrom would also ask whether
// issuer is a CA, which a self-signed leaf is not.
func signed(issuer, c *x509.Certificate) bool {
	return issuer.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}

func split(ordered []*x509.Certificate) Chain {
	last := len(ordered) - 1
	top := ordered[last]
	switch {
	case last == 0 && IsSelfSigned(top):
		return Chain{Certificates: ordered, CA: top}
	case last == 0:
		return Chain{Certificates: ordered}
	case IsSelfSigned(top):
		return Chain{Certificates: ordered[:last], CA: top}
	default:
		return Chain{Certificates: ordered, CA: top}
	}
}

// name is what a message calls a certificate.
func name(c *x509.Certificate) string {
	if s := c.Subject.String(); s != "" {
		return s
	}
	return "serial number " + c.SerialNumber.String()
}

// FirstOf decodes the first certificate of a PEM chain of at most MaxChainPEM bytes, and returns the rest as it is.
func FirstOf(text []byte) (leaf *x509.Certificate, rest []byte, err error) {
	if len(text) > MaxChainPEM {
		return nil, nil, fmt.Errorf("%d bytes of PEM are more than the %d that are decoded", len(text), MaxChainPEM)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, nil, errors.New("no PEM block of type CERTIFICATE")
	}
	leaf, err = x509.ParseCertificate(block.Bytes)
	return leaf, rest, err
}

// FirstToExpire returns the certificate whose validity (RFC 5280 §4.1.2.5) ends first; nil if there is none.
func FirstToExpire(certs []*x509.Certificate) *x509.Certificate {
	var first *x509.Certificate
	for _, c := range certs {
		if first == nil || c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	return first
}

// FirstEnd returns when the first of some certificates expires; zero if there is none.
func FirstEnd(certs []*x509.Certificate) time.Time {
	if first := FirstToExpire(certs); first != nil {
		return first.NotAfter
	}
	return time.Time{}
}
