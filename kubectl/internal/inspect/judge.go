package inspect

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
)

// judged is a chain with what is needed to judge it.
type judged struct {
	// certs are as they stand: the first is the one that counts.
	certs []*x509.Certificate
	// roots are trusted; nil means those of this computer. rootsOf says where they come from.
	roots   []*x509.Certificate
	rootsOf string
	// at is when the chain is to be good, and serves says that a server presents it.
	at     time.Time
	serves bool
	// added are the missing certificates that the CA has published.
	added []*x509.Certificate
}

func (j *judged) leaf() *x509.Certificate { return j.certs[0] }

// issuerOf returns the certificate that has signed another one, as far as it is known.
func (j *judged) issuerOf(c *x509.Certificate) *x509.Certificate {
	for _, ca := range slices.Concat(j.certs, j.added, j.roots) {
		if bytes.Equal(ca.RawSubject, c.RawIssuer) && c.CheckSignatureFrom(ca) == nil {
			return ca
		}
	}
	return nil
}

// names compares a certificate with the spec that it was issued for.
func (r *Report) names(spec *certmanagerv1.CertificateSpec, leaf *x509.Certificate) {
	if pki.IsTemporary(leaf) {
		r.add(aboutNames, Wrong, "kubectl chancery status "+r.Certificate, "it is a temporary certificate, which nobody trusts: the real one is still to come")
		return
	}
	r.violations(facts.Violations(spec, facts.OfLeaf(leaf)))
}

// violations says which fields of a Certificate are not fulfilled.
func (r *Report) violations(fields []string) {
	if len(fields) == 0 {
		r.add(aboutNames, OK, "", "they are those that %s asks for", r.Certificate)
		return
	}
	r.add(aboutNames, Wrong, "kubectl chancery status "+r.Certificate, "%s asks for others: %s", r.Certificate, strings.Join(fields, ", "))
}

// key says whether a private key belongs to a certificate.
func (r *Report) key(text []byte, leaf *x509.Certificate) {
	const help = "Delete the Secret, or have the certificate renewed: kubectl chancery renew"
	key, err := pki.DecodePrivateKey(text)
	switch {
	case len(text) == 0:
		r.add(aboutKey, Wrong, help, "tls.key is empty")
	case err != nil:
		r.add(aboutKey, Wrong, help, "tls.key cannot be read: %v", err)
	case !pki.PublicKeysEqual(key.Public(), leaf.PublicKey):
		r.add(aboutKey, Wrong, help, "tls.key does not belong to the certificate")
	default:
		r.add(aboutKey, OK, "", "it belongs to the certificate")
	}
}

// validity says whether all certificates of a path are valid now, and whether those of the CA last.
func (r *Report) validity(j *judged) {
	certs := j.certs
	if root := j.issuerOf(certs[len(certs)-1]); root != nil {
		certs = append(certs[:len(certs):len(certs)], root)
	}
	for _, root := range j.roots { // clients with the root of the leaf need no links to older roots
		if path, others := pki.SplitPath(j.leaf(), j.certs[1:], root); len(others) > 0 {
			certs = slices.Concat(j.certs[:1], path, []*x509.Certificate{root})
			break
		}
	}
	for _, c := range certs {
		if r.now.Before(c.NotBefore) {
			r.add(aboutValidity, Wrong, "Compare the clocks of the CA and of this computer", "%s is not valid before %s", called(c), stamp(c.NotBefore))
			return
		}
	}
	first, leaf := pki.FirstToExpire(certs), certs[0]
	if r.now.After(first.NotAfter) {
		r.add(aboutValidity, Wrong, "See why it was not renewed: kubectl chancery status", "%s expired on %s", called(first), stamp(first.NotAfter))
		return
	}
	if len(certs) > 1 {
		const help = "Renew the CA: what it has signed is renewed by itself then"
		switch ca := pki.FirstToExpire(certs[1:]); {
		case ca.NotAfter.Before(leaf.NotAfter):
			r.add(aboutValidity, Wrong, help, "%s expires on %s, before the certificate does: clients do not trust the certificate from then on", called(ca), stamp(ca.NotAfter))
			return
		case explain.CAExpiresSoon(ca.NotBefore, ca.NotAfter, r.now):
			r.add(aboutValidity, Wrong, help, "%s expires on %s: clients trust nothing that it has signed from then on", called(ca), stamp(ca.NotAfter))
			return
		}
	}
	r.add(aboutValidity, OK, "", "the first to expire is %s, on %s", called(first), stamp(first.NotAfter))
}

// chained says whether a chain is in order.
func (r *Report) chained(ctx context.Context, certs []*x509.Certificate) {
	const help = "Put the certificate first, and after it each certificate that has signed the one before"
	chain, err := pki.BuildChain(ctx, certs)
	if err != nil {
		r.add(aboutChain, Wrong, help, "%v", err)
		return
	}
	ordered := slices.Concat(chain.Certificates, chain.Cross)
	if chain.CA != nil && len(certs) > len(ordered) {
		ordered = append(ordered, chain.CA)
	}
	same := func(a, b *x509.Certificate) bool { return bytes.Equal(a.Raw, b.Raw) }
	switch {
	case !slices.EqualFunc(certs, ordered, same):
		var right []string
		for _, c := range ordered {
			right = append(right, called(c))
		}
		r.add(aboutChain, Wrong, help, "it is not in order, which is %s", strings.Join(right, ", "))
	case len(certs) > len(chain.Certificates)+len(chain.Cross):
		r.add(aboutChain, OK, "", "it is in order, and ends with its root, which no client needs")
	default:
		r.add(aboutChain, OK, "", "it is in order")
	}
}

// trusted says whether a chain leads to a root that is trusted.
func (r *Report) trusted(j *judged) {
	err := j.verify(nil)
	var unknown x509.UnknownAuthorityError
	switch {
	case err == nil:
		r.add(aboutTrust, OK, "", "it leads to %s", j.rootsOf)
	case !errors.As(err, &unknown):
		r.add(aboutTrust, Wrong, "Correct the CA's certificate, and have the certificate renewed: kubectl chancery renew", "%v", err)
	case len(j.added) > 0 && j.verify(j.added) == nil:
		var missing []string
		for _, c := range j.added {
			missing = append(missing, called(c))
		}
		r.add(aboutTrust, Wrong, "Put the missing certificates behind the others: the CA publishes them, see "+strings.Join(j.leaf().IssuingCertificateURL, ", "),
			"it is incomplete, and only some clients find what is missing: %s", strings.Join(missing, ", "))
	default:
		top := j.certs[len(j.certs)-1]
		r.add(aboutTrust, Wrong, "If clients are to trust a CA of your own, name its certificate with --ca-file",
			"it does not lead to %s: %s, which has signed %s, is not among them", j.rootsOf, subject(top.Issuer.String(), "no name"), called(top))
	}
}

// verify verifies a chain, with further certificates between it and the roots.
func (j *judged) verify(further []*x509.Certificate) error {
	o := x509.VerifyOptions{Intermediates: poolOf(slices.Concat(j.certs[1:], further)), CurrentTime: j.at}
	if end := pki.FirstEnd(j.certs); end.Before(j.at) {
		o.CurrentTime = end // that it has ended is said already
	}
	if j.roots != nil {
		o.Roots = poolOf(j.roots)
	}
	if !j.serves {
		o.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	}
	_, err := j.leaf().Verify(o)
	return err
}

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// called is the short name of a certificate for people.
func called(c *x509.Certificate) string {
	if c.Subject.CommonName == "" && len(c.DNSNames) > 0 {
		return fmt.Sprintf("%q", c.DNSNames[0])
	}
	return fmt.Sprintf("%q", c.Subject.String())
}
