package facts

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// OlderRoots says what becomes of the roots that the Secret of a CA holds when the CA gets a new certificate.
type OlderRoots int

const (
	// ForgetOlderRoots stores ca.crt as the issuer gave it: nobody hands on what is behind the first certificate.
	ForgetOlderRoots OlderRoots = iota
	// KeepOlderRoots keeps them behind the new root, with a link certificate, for an issuer that hands them on.
	KeepOlderRoots
	// DropOlderRoots takes them out, also without a new certificate: their keys are stolen.
	DropOlderRoots
)

// SucceedCA returns ca.crt of the Secret of a CA that gets a new certificate: ca as the issuer gave it, then the roots
// that the Secret earlier holds in ca.crt and first in tls.crt, then the links. If the CA and the one before are roots,
// and the key in earlier is that of the one before, one more link leads from the new root to that one (RFC 4210 §4.4).
// It is ca itself where nothing is added.
//
// unlinked says why verifiers that know only the root before refuse what the new one has signed; nil if they accept it.
func SucceedCA(chain, ca []byte, earlier *corev1.Secret, now time.Time) (text []byte, unlinked error) {
	issued, err := pki.DecodeBundle(ca)
	if err != nil {
		return ca, nil //nolint:nilerr // what cannot be read is stored as the issuer gave it
	}
	before, _ := pki.Trust(earlier.Data[cmmeta.TLSCAKey]) // as much of it as can be read
	old, _, err := pki.FirstOf(earlier.Data[cmmeta.TLSCertKey])
	if err == nil && old.IsCA && pki.IsSelfSigned(old) {
		before = append([]*x509.Certificate{old}, before...)
	}
	if len(before) > 0 {
		var link *x509.Certificate
		if link, unlinked = linkOf(chain, issued, before[0], earlier.Data[cmmeta.TLSPrivateKeyKey], now); link != nil {
			before = append(before, link)
		}
	}
	all := pki.Succeed(issued, before, now)
	if slices.EqualFunc(all, issued, (*x509.Certificate).Equal) {
		return ca, unlinked
	}
	return pki.EncodeCertificates(all...), unlinked
}

// linkOf returns the link from a new root to the one before; nil if there can be none, for which unlinked is the
// reason, or if none is needed.
func linkOf(chain []byte, issued []*x509.Certificate, old *x509.Certificate, key []byte, now time.Time) (link *x509.Certificate, unlinked error) {
	root := issued[0]
	leaf, err := DecodeLeaf(chain)
	switch {
	case err != nil:
		return nil, err
	case pki.PublicKeysEqual(root.PublicKey, old.PublicKey) && bytes.Equal(root.RawSubject, old.RawSubject):
		return nil, nil // verifiers see no other root
	case !leaf.Equal(root) && slices.ContainsFunc(issued, old.Equal):
		return nil, nil // the issuer above hands on what is needed
	case !leaf.Equal(root):
		return nil, errors.New("the intermediate is below another root now, and only the key of the old root could vouch for that one")
	}
	signer, err := pki.DecodePrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("the old private key cannot be read: %w", err)
	}
	return pki.NewLink(root, old, signer, now)
}
