package servingcert

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"chancery.dev/internal/pki"
)

const (
	// caLife is how long a CA is valid (spec §8).
	caLife = 365 * 24 * time.Hour
	// skew is how much earlier certificates begin, for clients whose clocks are behind.
	skew = 5 * time.Minute
	// maxOverlap bounds how long a certificate is kept that is due, because its successor's CA is new.
	maxOverlap = time.Hour
	// maxCAs is how many CAs a bundle has at most.
	maxCAs = 8
)

// authority is a CA as its Secret holds it.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	// earlier are the CAs before this one.
	earlier []*x509.Certificate
}

// readAuthority reads the CA of a Secret; nil if the Secret has none.
func readAuthority(data map[string][]byte) (*authority, error) {
	if len(data[corev1.TLSCertKey])+len(data[corev1.TLSPrivateKeyKey]) == 0 {
		return nil, nil
	}
	cert, err := pki.DecodeCertificate(data[corev1.TLSCertKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", corev1.TLSCertKey, err)
	}
	key, err := pki.DecodePrivateKey(data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", corev1.TLSPrivateKeyKey, err)
	}
	if !cert.IsCA || len(cert.SubjectKeyId) == 0 {
		return nil, fmt.Errorf("%s has to be the certificate of a CA, with a subject key identifier", corev1.TLSCertKey)
	}
	if !pki.PublicKeysEqual(cert.PublicKey, key.Public()) {
		return nil, fmt.Errorf("%s is not the key of %s", corev1.TLSPrivateKeyKey, corev1.TLSCertKey)
	}
	bundle, err := pki.DecodeBundle(data[corev1.ServiceAccountRootCAKey])
	if err != nil {
		bundle = nil // the CA itself is what counts
	}
	return &authority{cert: cert, key: key, earlier: slices.DeleteFunc(bundle, cert.Equal)}, nil
}

// newAuthority makes a CA that comes after another one, if there is one.
func newAuthority(name string, before *authority, now time.Time) (*authority, error) {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA, Size: 384})
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: now.Add(caLife), PublicKey: key.Public(),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	cert, err := pki.Sign(template, template, key)
	if err != nil {
		return nil, err
	}
	ca := &authority{cert: cert, key: key}
	if before != nil {
		ca.earlier = before.bundle(now)
	}
	return ca, nil
}

// data is what a Secret of the CA holds.
func (a *authority) data(now time.Time) (map[string][]byte, error) {
	key, err := pki.EncodePKCS8(a.key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		corev1.TLSCertKey: pki.EncodeCertificates(a.cert), corev1.TLSPrivateKeyKey: key,
		corev1.ServiceAccountRootCAKey: pki.EncodeCertificates(a.bundle(now)...),
	}, nil
}

// bundle is what clients have to trust: the CA, and those before it until they expire.
func (a *authority) bundle(now time.Time) []*x509.Certificate {
	out := []*x509.Certificate{a.cert}
	for _, ca := range a.earlier {
		if len(out) < maxCAs && ca.IsCA && now.Before(ca.NotAfter) && !slices.ContainsFunc(out, ca.Equal) {
			out = append(out, ca)
		}
	}
	return out
}

// renewal is when the next CA is made.
func (a *authority) renewal() time.Time { return afterTwoThirds(a.cert) }

func afterTwoThirds(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) * 2 / 3)
}

// sign makes a certificate for a server; it ends with the CA at the latest.
func (a *authority) sign(dnsNames []string, life time.Duration, now time.Time) (*tls.Certificate, error) {
	if !now.Before(a.cert.NotAfter) {
		return nil, errors.New("the CA has expired")
	}
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		DNSNames: dnsNames, NotBefore: now.Add(-skew), NotAfter: now.Add(life), PublicKey: key.Public(), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	leaf, err := pki.Sign(template, a.cert, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// signed reports whether a certificate is signed by the CA.
func (a *authority) signed(leaf *x509.Certificate) bool {
	return bytes.Equal(a.cert.SubjectKeyId, leaf.AuthorityKeyId)
}

// due is when a certificate of the server is to be replaced by one of this CA: after two thirds of its life. It is kept
// for a while longer if the CA is new, because not all clients may trust the CA yet; and replaced at once if its own CA
// is in the bundle no more.
func (a *authority) due(leaf *x509.Certificate, now time.Time) time.Time {
	due := afterTwoThirds(leaf)
	settled := a.cert.NotBefore.Add(min(leaf.NotAfter.Sub(leaf.NotBefore)/6, maxOverlap))
	trusted := func(ca *x509.Certificate) bool { return bytes.Equal(ca.SubjectKeyId, leaf.AuthorityKeyId) }
	switch {
	case !slices.ContainsFunc(a.bundle(now), trusted):
		return now
	case settled.After(due) && !a.signed(leaf):
		return settled
	default:
		return due
	}
}
