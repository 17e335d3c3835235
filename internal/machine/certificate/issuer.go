package certificate

import (
	"crypto/sha256"
	"crypto/x509"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/renewal"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/when"
)

// Annotations of our own.
const (
	// IssuerVersionAnnotation is on CertificateRequests, and says which version of which
	// issuer they were made for.
	IssuerVersionAnnotation = "chancery.dev/issuer-version"
	// BudgetAnnotation is on CertificateRequests, and says until when the issuances so
	// far have used the budget of their Certificate.
	BudgetAnnotation = "chancery.dev/issuance-budget"
)

// IssuerFacts is what decisions need to know of the issuer of a Certificate.
type IssuerFacts struct {
	// Version changes with the issuer's UID, spec and CA. The CA is behind the second slash, if it is known.
	Version string
	// Informs says that the issuer can be asked when to renew (RFC 9773).
	Informs bool
	// InLine says that a request for the issuer made now is approved and signed at once,
	// and NeedsKey that the request must name a Secret with the requester's private key.
	InLine, NeedsKey bool
	// Secret is the name of the Secret with the CA or the account key of the issuer, if it is in the namespace of the
	// Certificate, and the certificate must not replace what it holds; empty otherwise.
	Secret string
	// Authority is the CA certificate that the issuer signs with; nil if none is known.
	Authority *AuthorityFacts
	// ReissueNow says that certificates of an earlier CA are issued again at once.
	ReissueNow bool
}

// AuthorityFacts is what decisions need to know of the CA of an issuer.
type AuthorityFacts struct {
	// ID tells the CA certificate from all others.
	ID facts.Digest
	// Name is the digest of its subject in DER, and Key that of its SubjectPublicKeyInfo.
	Name, Key facts.Digest
	// KeyID names its key (RFC 5280 §4.2.1.2); may be empty.
	KeyID string
	// NotBefore is since when the CA certificate is valid. End is when the first certificate expires, of it and of
	// those that are delivered with it.
	NotBefore, End time.Time
	// FirstSeen is when this subject and key were first found to be the issuer's; zero
	// if the issuer's status does not say so yet.
	FirstSeen time.Time
}

// AuthorityOf returns the facts of a CA, given the certificates that it delivers: first
// the one that it signs with.
func AuthorityOf(delivered []*x509.Certificate, firstSeen time.Time) *AuthorityFacts {
	c := delivered[0]
	return &AuthorityFacts{
		ID: sha256.Sum256(c.Raw), Name: sha256.Sum256(c.RawSubject), Key: sha256.Sum256(c.RawSubjectPublicKeyInfo),
		KeyID: string(c.SubjectKeyId), NotBefore: c.NotBefore, End: pki.FirstEnd(delivered), FirstSeen: firstSeen,
	}
}

// signed reports whether a certificate is signed with the subject and the key of this
// authority: a CA that was renewed with both verifies what it signed before. Where the
// certificate was delivered without its CA's, key identifiers tell.
func (a *AuthorityFacts) signed(leaf *facts.Leaf) bool {
	switch {
	case a.ID == leaf.ID:
		return true // the CA has signed itself, and the key that it was signed with is the same
	case a.Name != leaf.IssuerName:
		return false
	case leaf.IssuerKey != (facts.Digest{}):
		return a.Key == leaf.IssuerKey
	default:
		return a.KeyID == "" || leaf.AuthorityKeyID == "" || a.KeyID == leaf.AuthorityKeyID
	}
}

// overlapPart is the last part of the time for which both CAs are valid. Certificates of
// the old CA are issued again before that part begins.
const overlapPart = 10

// chainPart is the part of a lifetime over which certificates are issued again whose CA
// certificate expires before them.
const chainPart = 10

// distrusted returns since when, and why, a certificate that is valid by itself is to be
// issued again: its issuer has another CA now, or a CA certificate that it was delivered
// with expires. A zero time means never.
func (d *decision) distrusted() (time.Time, string) {
	if r := d.crt.Spec.Renewal; r != nil && r.Policy == certmanagerv1.RenewalPolicyDisabled {
		return time.Time{}, ""
	}
	if d.Issuer != nil && d.Issuer.ReissueNow && d.Issuer.Authority != nil && d.Secret.Roots > 1 {
		return d.Issuer.Authority.NotBefore, "Renewing certificate as it came with roots of earlier CAs, whose keys may be stolen"
	}
	if d.Issuer != nil && d.Issuer.Authority != nil && !d.Issuer.Authority.signed(d.Secret.Leaf) {
		return d.replacedAt(), "Renewing certificate as the CA of its issuer has changed since it was issued"
	}
	end := d.Secret.AuthoritiesEnd
	lifetime := d.Secret.Leaf.NotAfter.Sub(d.Secret.Leaf.NotBefore)
	since := d.chainBreaksAt(end, lifetime/chainPart)
	early := pki.EarlyBy(lifetime, d.Secret.CrossEnd.Sub(d.Secret.CrossBegin))
	if cross := d.chainBreaksAt(d.Secret.CrossEnd, early); !cross.IsZero() && when.Earliest(since, cross).Equal(cross) {
		end, since = d.Secret.CrossEnd, cross
	}
	return since, "Renewing certificate as a CA certificate that came with it expires on " + end.UTC().Format(time.RFC1123)
}

// replacedAt returns when a certificate of an earlier CA is issued again. Certificates are
// spread evenly from when the new CA was first seen, and is valid, to when each would be
// renewed anyway or, if that is earlier, nine tenths of the time for which its old CA is
// still valid have passed. Zero means that the issuer's status does not know the CA yet.
func (d *decision) replacedAt() time.Time {
	a, oldEnd := d.Issuer.Authority, when.Earliest(d.Secret.AuthoritiesEnd, d.Secret.CrossEnd)
	switch {
	case d.Issuer.ReissueNow:
		return a.NotBefore
	case a.FirstSeen.IsZero():
		return time.Time{}
	case a.FirstSeen.After(d.now): // said by a clock that was put right since
		return when.Earliest(a.FirstSeen, oldEnd)
	}
	from := a.FirstSeen
	if a.NotBefore.After(from) {
		from = a.NotBefore
	}
	until := when.Earliest(d.renewalDue(), d.Secret.Leaf.NotAfter)
	if !oldEnd.IsZero() {
		until = when.Earliest(until, oldEnd.Add(-oldEnd.Sub(from)/overlapPart))
	}
	if !until.After(from) {
		return from
	}
	at := from.Add(renewal.Part(until.Sub(from), d.crt.UID, "rotation"))
	at, _ = renewal.Place(d.crt.Spec.Renewal, at, until.Add(time.Second)) // without such a window, at is as good
	return at
}

// chainBreaksAt returns when a certificate is issued again because a CA certificate that
// it was delivered with expires at end; zero for never, or while the issuer would deliver
// the same certificates again. early is the last time before end, in which nobody is to see
// the chain any more.
func (d *decision) chainBreaksAt(end time.Time, early time.Duration) time.Time {
	leaf := d.Secret.Leaf
	at := end.Add(-renewal.Part(early, d.crt.UID, "chain"))
	known := d.Issuer != nil && d.Issuer.Authority != nil
	switch {
	case end.IsZero(), known && !d.Issuer.Authority.End.After(end):
		return time.Time{}
	case known && d.Issuer.ReissueNow:
		return d.Issuer.Authority.NotBefore
	case !end.Before(leaf.NotAfter):
		return time.Time{}
	case known:
		return at
	}
	issued := leaf.NotBefore
	if r, ok := d.current(); ok {
		issued = r.CreationTimestamp.Time
	}
	if issued.After(end.Add(-early)) {
		return time.Time{} // issued as late as that: another one would come with the same
	}
	return at
}

func (d *decision) issuerVersion() string {
	if d.Issuer == nil {
		return ""
	}
	return d.Issuer.Version
}
