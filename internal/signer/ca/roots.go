package ca

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/when"
)

// bundle returns what is delivered with a leaf. By default it is the chain and its root. Where the issuer hands on
// roots (chancery.dev/deliver-roots), it is also what verifiers with an older root need: the links from the new root to
// the older ones (RFC 4210 §4.4) behind the leaf, and the older roots behind the new one in ca.crt.
//
// The Secret of a CA gets the links in ca.crt. In tls.crt, a link would have the name and the key of the first
// certificate in ca.crt, and the chain rule of spec §3.4 allows one certificate of each. Here those links go that have
// expired: the issuer that signs with the Secret leaves out what its leaves are to have no more.
//
// While certificates of a stolen key are replaced (chancery.dev/reissue-now), older roots and links are given to
// nobody.
func (p *keyPair) bundle(issuer metav1.Object, chain pki.Chain, r signer.Request, now time.Time) (signer.Bundle, error) {
	var beside []*x509.Certificate
	switch deliver, stolen := certmanagerv1.DeliversRoots(issuer), certmanagerv1.ReissuesNow(issuer); {
	case stolen:
		chain = chain.WithoutLinks()
	case deliver:
		if len(p.others) >= pki.MaxRoots {
			return signer.Bundle{}, p.tooMany()
		}
		beside = older(p.others, chain.CA, now)
		if r.IsCA {
			beside = append(beside, older(p.linked, nil, now)...)
		} else {
			chain.Cross = append(chain.Cross[:len(chain.Cross):len(chain.Cross)], p.linked...)
		}
		chain = chain.Lasting(now)
	}
	var out signer.Bundle
	out.Chain, out.CA = chain.PEM()
	out.CA = append(out.CA, pki.EncodeCertificates(beside...)...)
	return out, nil
}

// older returns the CA certificates that are valid, without the root.
func older(certs []*x509.Certificate, root *x509.Certificate, now time.Time) (out []*x509.Certificate) {
	for _, c := range certs {
		if c.IsCA && now.Before(c.NotAfter) && !c.Equal(root) {
			out = append(out, c)
		}
	}
	return out
}

// Roots implements signer.RootTeller.
func (s *Signer) Roots(ctx context.Context, issuer certmanagerv1.GenericIssuer) ([]*x509.Certificate, error) {
	spec := issuer.GetSpec().CA
	if spec == nil {
		return nil, fmt.Errorf("issuer %q has no spec.ca", issuer.GetName())
	}
	pair, err := s.pair(ctx, issuer, spec)
	if err != nil {
		return nil, signFault(err)
	}
	top := pair.chain.CA
	switch {
	case pair.chainErr != nil:
		return nil, fault.Pending(reasonSecretInvalidData, "the CA certificates in Secret %s: %w", pair.secret, pair.chainErr)
	case top == nil || !pki.IsSelfSigned(top):
		return nil, fault.Pending(reasonSecretInvalidData, "Secret %s has no root: put the root of the CA into ca.crt", pair.secret)
	case !certmanagerv1.DeliversRoots(issuer) || certmanagerv1.ReissuesNow(issuer):
		return []*x509.Certificate{top}, nil
	case len(pair.others) >= pki.MaxRoots:
		return nil, fault.Pending(reasonSecretInvalidData, "Secret %s: %w", pair.secret, pair.tooMany())
	}
	return append([]*x509.Certificate{top}, slices.DeleteFunc(older(pair.others, top, s.config.Now()), func(c *x509.Certificate) bool {
		return !pki.IsSelfSigned(c)
	})...), nil
}

// tooMany says that there are more roots and links than are handed on.
func (p *keyPair) tooMany() error {
	return fmt.Errorf("ca.crt has %d certificates, and %d can be delivered at most", len(p.others)+1, pki.MaxRoots)
}

// olderRoots says of each older root that is valid whether links lead there, and when that is to be looked at again:
// when the first of the roots and links expires. Zero is for never. If there are more than are handed on, it says
// nothing.
func (p *keyPair) olderRoots(now time.Time) (found []certmanagerv1.OlderRoot, until time.Time) {
	if len(p.others) >= pki.MaxRoots {
		return nil, time.Time{}
	}
	cross := older(slices.Concat(p.chain.Cross, p.linked), nil, now)
	for _, root := range older(p.others, nil, now) {
		one := certmanagerv1.OlderRoot{Authority: signer.AuthorityID(root), NotAfter: metav1.NewTime(root.NotAfter)}
		isOwn := func(c *x509.Certificate) bool { return signer.AuthorityID(c) == one.Authority }
		if !pki.IsSelfSigned(root) || slices.ContainsFunc(p.authority(), isOwn) {
			continue
		}
		if !slices.ContainsFunc(cross, func(c *x509.Certificate) bool { return pki.SignedByName(c, root) }) {
			one.Unlinked = p.unlinked(root)
		}
		found, until = append(found, one), when.Earliest(until, root.NotAfter)
	}
	if len(found) > 0 && len(cross) > 0 {
		until = when.Earliest(until, pki.FirstEnd(cross))
	}
	return found, until
}

// unlinked says why no link leads to an older root, as far as the certificates tell.
func (p *keyPair) unlinked(old *x509.Certificate) string {
	top := p.chain.CA
	if top == nil || !pki.IsSelfSigned(top) {
		return "the root of the CA is not known"
	}
	if err := pki.CheckLimits(top, []*x509.Certificate{old}); err != nil {
		return err.Error()
	}
	return "the key of the older root has signed no link to the root of the CA, or the link has expired"
}
