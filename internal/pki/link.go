package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"slices"
	"time"

	"chancery.dev/internal/limits"
)

// NewLink returns a link certificate (RFC 4210 §4.4, "new with old"): the name, the key and the limits of the root that
// replaces the root old, signed by the key of old. A verifier that knows old alone then accepts what root has signed.
// The link expires with the first of the two roots.
//
// It is an error if old has expired at now, if oldKey is not its key, or if old does not allow a CA below it: its key
// usages, its path length or its name constraints forbid the link.
func NewLink(root, old *x509.Certificate, oldKey crypto.Signer, now time.Time) (*x509.Certificate, error) {
	if !now.Before(old.NotAfter) {
		return nil, fmt.Errorf("the old root has expired on %s", old.NotAfter.UTC().Format(time.RFC3339))
	}
	template := &x509.Certificate{
		RawSubject: root.RawSubject, Subject: root.Subject, PublicKey: root.PublicKey, SubjectKeyId: root.SubjectKeyId,
		NotBefore: root.NotBefore, NotAfter: FirstEnd([]*x509.Certificate{root, old}),
		BasicConstraintsValid: true, IsCA: true, ExtraExtensions: limitsOf(root),
	}
	link, err := Sign(template, old, oldKey)
	if err == nil {
		err = CheckLimits(link, []*x509.Certificate{old})
	}
	if err != nil {
		return nil, err
	}
	return link, nil
}

// limitsOf are the extensions of a CA certificate that limit what it may sign (RFC 5280 §4.2.1.3, 9, 10 and 12).
func limitsOf(c *x509.Certificate) []pkix.Extension {
	return slices.DeleteFunc(slices.Clone(c.Extensions), func(e pkix.Extension) bool {
		return !slices.ContainsFunc([]asn1.ObjectIdentifier{oidKeyUsage, oidBasicConstraints, oidNameConstraints, oidExtKeyUsage}, e.Id.Equal)
	})
}

// earlyPart is the last part of a lifetime in which a cross certificate is left out.
const earlyPart = 10

// EarlyBy returns how long before it expires a link, or another cross certificate, is left out behind a leaf: a tenth
// of the shorter lifetime of the two. A leaf that came with it is renewed in that time. The lifetime of a link is the
// time for which both of its roots are valid.
func EarlyBy(leaf, cross time.Duration) time.Duration { return min(leaf, cross) / earlyPart }

// Lasting returns the chain of a leaf without the cross certificates that are left out at now.
func (c Chain) Lasting(now time.Time) Chain {
	lifetime := c.Certificates[0].NotAfter.Sub(c.Certificates[0].NotBefore)
	return c.Without(func(x *x509.Certificate) bool {
		return !now.Before(x.NotAfter.Add(-EarlyBy(lifetime, x.NotAfter.Sub(x.NotBefore))))
	})
}

// WithoutLinks returns the chain without the cross certificates that have the name and the key of its root.
func (c Chain) WithoutLinks() Chain {
	return c.Without(func(x *x509.Certificate) bool { return c.CA != nil && holder(x) == holder(c.CA) && IsSelfSigned(c.CA) })
}

// Without returns the chain without some cross certificates, and without those that only they lead to.
func (c Chain) Without(drop func(*x509.Certificate) bool) Chain {
	var kept []*x509.Certificate
	for _, x := range c.Cross { // the nearest come first
		besides := func(o *x509.Certificate) bool { return holder(o) == holder(x) }
		below := func(k *x509.Certificate) bool { return SignedByName(k, x) }
		leads := slices.ContainsFunc(c.Certificates, besides) || c.CA != nil && besides(c.CA) || slices.ContainsFunc(kept, below)
		if leads && !drop(x) {
			kept = append(kept, x)
		}
	}
	c.Cross = kept
	return c
}

// SplitLinks takes the links out of a bundle: the certificates that have the name and the key of a self-signed
// certificate in the bundle, and are signed by somebody else. The order stays.
func SplitLinks(bundle []*x509.Certificate) (others, links []*x509.Certificate) {
	roots, selfSigned := map[string]bool{}, map[*x509.Certificate]bool{}
	for _, c := range bundle {
		if IsSelfSigned(c) {
			roots[holder(c)], selfSigned[c] = true, true
		}
	}
	for _, c := range bundle {
		if !selfSigned[c] && roots[holder(c)] {
			links = append(links, c)
		} else {
			others = append(others, c)
		}
	}
	return others, links
}

// MaxRoots is how many certificates a CA hands on in ca.crt at most, links included.
const MaxRoots = limits.Roots

// Succeed returns what ca.crt of a CA is to hold after its root was replaced: issued, which begins with the new root,
// then the CA certificates of earlier that are valid at now, and the links behind them. Above MaxRoots, or above
// MaxChainPEM bytes, those are left out that expire first. The first of issued always stays first. issued MUST have a
// certificate.
func Succeed(issued, earlier []*x509.Certificate, now time.Time) []*x509.Certificate {
	root, seen := issued[0], map[string]bool{}
	var all []*x509.Certificate
	for i, c := range slices.Concat(issued, earlier) {
		// A root that was renewed with its key is no older root, unless verifiers tell the two apart.
		renewed := holder(c) == holder(root) && bytes.Equal(c.SubjectKeyId, root.SubjectKeyId) && IsSelfSigned(c)
		use := i < len(issued) || c.IsCA && now.Before(c.NotAfter) && !renewed && checkForeignKey(c.PublicKey) == nil
		if use && !seen[string(c.Raw)] && len(all) < maxChain {
			all, seen[string(c.Raw)] = append(all, c), true
		}
	}
	others, links := SplitLinks(all)
	isRoot := func(c *x509.Certificate) bool { return c == root }
	all = slices.Concat(issued[:1], slices.DeleteFunc(others, isRoot), slices.DeleteFunc(links, isRoot))
	byEnd := slices.Clone(all[1:]) // of two that expire at once, the link is behind: it leads to the other
	slices.SortStableFunc(byEnd, func(a, b *x509.Certificate) int { return b.NotAfter.Compare(a.NotAfter) })
	keep, size := all[:1:1], len(EncodeCertificates(root))
	for _, c := range byEnd {
		if size += len(EncodeCertificates(c)); len(keep) == MaxRoots || size > MaxChainPEM {
			break
		}
		keep = append(keep, c)
	}
	return slices.DeleteFunc(all, func(c *x509.Certificate) bool { return !slices.Contains(keep, c) })
}
