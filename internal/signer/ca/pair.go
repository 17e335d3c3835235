package ca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// pairKind says what is wrong with a key pair.
type pairKind int

const (
	pairMissing    pairKind = iota + 1 // there is no Secret
	pairUnreadable                     // a key of the Secret is missing or does not decode
	pairUnfit                          // what it holds cannot sign certificates
)

// pairError is an error that only a change of the Secret mends.
type pairError struct {
	kind pairKind
	err  error
}

func (e *pairError) Error() string { return e.err.Error() }
func (e *pairError) Unwrap() error { return e.err }

// keyPair is a certificate authority. It is never changed, so it can be shared.
type keyPair struct {
	secret string // namespace/name, for messages
	key    crypto.Signer
	tls    []*x509.Certificate
	// chain has the authority's own certificates, the signing one first; chainErr says why there is none.
	chain    pki.Chain
	chainErr error
	// linked are the links in ca.crt that lead from the chain to older roots, the nearest first. others are the
	// certificates there after the first that are no such links.
	others, linked []*x509.Certificate
}

// signing returns the certificate that signs: the first of tls.crt (spec §3.4).
func (p *keyPair) signing() *x509.Certificate { return p.tls[0] }

// authority returns the certificates of the chain, the signing one first, and the root if it is known.
func (p *keyPair) authority() []*x509.Certificate {
	certs, ca := p.chain.Certificates, p.chain.CA
	if ca == nil || ca == certs[len(certs)-1] {
		return certs
	}
	return append(certs[:len(certs):len(certs)], ca)
}

const (
	// bytesPerByte is how many bytes a byte of a certificate takes once it is parsed.
	bytesPerByte = 8
	// bytesPerKeyByte is how many bytes an RSA key takes for each byte of its modulus: primes, exponents, and what is
	// computed of them beforehand.
	bytesPerKeyByte = 16
	// bytesPerMLDSAKey is how many bytes an ML-DSA key takes, of any parameter set. Other keys are small.
	bytesPerMLDSAKey = 92 << 10
)

// size is how many bytes the certificates and the key take. The root that was verified may be in ca.crt alone.
func (p *keyPair) size() (n int) {
	all := slices.Concat(p.tls, p.others, p.linked, p.chain.Cross)
	if p.chain.CA != nil {
		all = append(all, p.chain.CA)
	}
	for _, c := range all {
		n += bytesPerByte * len(c.Raw)
	}
	if key, is := p.key.Public().(*rsa.PublicKey); is {
		n += bytesPerKeyByte * key.Size()
	} else if pki.IsMLDSA(p.key.Public()) {
		n += bytesPerMLDSAKey
	}
	return n
}

func parsePair(ctx context.Context, secret *corev1.Secret) (*keyPair, error) {
	p := &keyPair{secret: secret.Namespace + "/" + secret.Name}
	unreadable := func(key string, err error) error {
		return &pairError{pairUnreadable, fmt.Errorf("Secret %s, key %s: %w", p.secret, key, err)}
	}
	for _, key := range []string{cmmeta.TLSCertKey, cmmeta.TLSPrivateKeyKey} {
		if len(secret.Data[key]) == 0 {
			return nil, unreadable(key, errors.New("it is missing or empty: a CA issuer needs tls.crt and tls.key"))
		}
	}
	var err error
	if p.tls, err = pki.DecodeChain(secret.Data[cmmeta.TLSCertKey]); err != nil {
		return nil, unreadable(cmmeta.TLSCertKey, err)
	}
	if p.key, err = pki.DecodePrivateKey(secret.Data[cmmeta.TLSPrivateKeyKey]); err != nil {
		return nil, unreadable(cmmeta.TLSPrivateKeyKey, err)
	}
	all := p.tls
	if text := secret.Data[cmmeta.TLSCAKey]; len(text) > 0 {
		roots, err := pki.DecodeBundle(text)
		if err != nil {
			return nil, unreadable(cmmeta.TLSCAKey, err)
		}
		all = append(all[:len(all):len(all)], roots[0])
		p.others = roots[1:]
	}
	if err := p.fit(); err != nil {
		return nil, &pairError{pairUnfit, err}
	}
	p.chain, p.chainErr = pki.BuildChain(ctx, all)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("verify the chain in Secret %s: %w", p.secret, err)
	}
	// Of several certificates of one name and key, any may sign.
	if p.chainErr == nil && !(bytes.Equal(p.chain.Certificates[0].RawSubject, p.signing().RawSubject) && p.ofKey(p.chain.Certificates[0])) {
		p.chainErr = errors.New("the first certificate in tls.crt, which signs, must be the lowest of the chain: remove those that it has signed")
	}
	if p.chainErr == nil && len(p.others) < pki.MaxRoots { // more are not handed on
		return p, p.splitLinks(ctx, all)
	}
	return p, nil
}

// splitLinks tells the links in ca.crt from the roots. all are the certificates that the chain is made of. It is an
// error if ctx ends.
func (p *keyPair) splitLinks(ctx context.Context, all []*x509.Certificate) error {
	var signed []*x509.Certificate
	for _, c := range p.others {
		if !pki.IsSelfSigned(c) {
			signed = append(signed, c)
		}
	}
	if len(signed) == 0 {
		return nil
	}
	chain, err := pki.BuildChain(ctx, all, signed...)
	if ctx.Err() != nil {
		return fmt.Errorf("verify the links in Secret %s: %w", p.secret, ctx.Err())
	}
	if err == nil { // else there are too many: they stay among the others
		p.linked = slices.DeleteFunc(chain.Cross, func(c *x509.Certificate) bool { return !slices.Contains(signed, c) })
		p.others = slices.DeleteFunc(p.others, func(c *x509.Certificate) bool { return slices.Contains(p.linked, c) })
	}
	return nil
}

// ofKey reports whether a certificate is for the key of the pair.
func (p *keyPair) ofKey(c *x509.Certificate) bool {
	return pki.PublicKeysEqual(c.PublicKey, p.key.Public())
}

// fit reports why the pair cannot be an authority.
func (p *keyPair) fit() error {
	cert := p.signing()
	switch {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return fmt.Errorf("Secret %s, key tls.crt: the first certificate (%s) is not a CA: use a certificate made with isCA: true", p.secret, cert.Subject)
	case p.ofKey(cert):
		return nil
	case slices.ContainsFunc(p.tls, p.ofKey):
		return fmt.Errorf("Secret %s: the certificate that the key in tls.key belongs to is not the first one in tls.crt: put it before those above it", p.secret)
	default:
		return fmt.Errorf("Secret %s: the key in tls.key does not belong to the first certificate in tls.crt (%s): store the two that belong together", p.secret, cert.Subject)
	}
}
