package lifecycle

import (
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/renewal"
)

// Annotations of our own.
const (
	// IssuerVersionAnnotation is on CertificateRequests, and says which version of which
	// issuer they were made for.
	IssuerVersionAnnotation = "chancery.dev/issuer-version"
	// BudgetAnnotation is on CertificateRequests, and says until when the issuances so
	// far have used the budget of their Certificate.
	BudgetAnnotation = "chancery.dev/issuance-budget"
	// KeystoresAnnotation is on target Secrets, and says what the keystores were made
	// of to those who have the private key, and nothing to others.
	KeystoresAnnotation = "chancery.dev/keystores"
)

// IssuerFacts is what decisions need to know of the issuer of a Certificate.
type IssuerFacts struct {
	// Version changes whenever the issuer's spec does, or another one takes its name.
	Version string
	// Informs says that the issuer can be asked when to renew (RFC 9773).
	Informs bool
	// InLine says that a request for the issuer made now is approved and signed at once,
	// and NeedsKey that the request must name a Secret with the requester's private key.
	InLine, NeedsKey bool
	// Authority is the certificate that the issuer signs with, where it has one and
	// that is known.
	Authority *AuthorityFacts
}

// AuthorityFacts is what decisions need to know of the certificate of an issuer.
type AuthorityFacts struct {
	// ID tells the certificate from all others.
	ID Digest
	// Name is of the DER of its subject.
	Name Digest
	// KeyID names its key (RFC 5280 §4.2.1.2); may be empty.
	KeyID string
	// NotBefore is since when it is valid.
	NotBefore time.Time
}

// signed reports whether a certificate is signed by this authority, as far as their
// names tell: a CA that was renewed with its name and key verifies what it signed
// before.
func (a *AuthorityFacts) signed(leaf *LeafFacts) bool {
	if a.ID == leaf.ID {
		return true // it is its own issuer's: what it was signed with is gone for good
	}
	if a.Name != leaf.IssuerName {
		return false
	}
	return a.KeyID == "" || leaf.AuthorityKeyID == "" || a.KeyID == leaf.AuthorityKeyID
}

// rotationSpread is the time over which the certificates of a CA that was replaced are
// issued again.
const rotationSpread = time.Hour

// chainPart is the part of a lifetime over which certificates are issued again whose CA
// certificate expires before them.
const chainPart = 10

// distrusted returns since when, and why, a certificate that is valid by itself does
// not do any more: its issuer has another CA now, or what it was delivered with, to
// verify it, has expired. A zero time means never.
func (d *decision) distrusted() (time.Time, string) {
	if r := d.crt.Spec.Renewal; r != nil && r.Policy == certmanagerv1.RenewalPolicyDisabled {
		return time.Time{}, ""
	}
	leaf := d.Secret.Leaf
	if d.Issuer != nil && d.Issuer.Authority != nil && !d.Issuer.Authority.signed(leaf) {
		at := d.Issuer.Authority.NotBefore.Add(renewal.Part(rotationSpread, d.crt.UID, "rotation"))
		return at, "Renewing certificate as the CA of its issuer has changed since it was issued"
	}
	end := d.Secret.AuthoritiesEnd
	if end.IsZero() || !end.Before(leaf.NotAfter) {
		return time.Time{}, ""
	}
	early := leaf.NotAfter.Sub(leaf.NotBefore) / chainPart // so that nobody sees the chain broken
	issued := leaf.NotBefore
	if r, ok := d.current(); ok {
		issued = r.CreationTimestamp.Time
	}
	renewed := d.Issuer != nil && d.Issuer.Authority != nil && d.Issuer.Authority.NotBefore.After(issued)
	if issued.After(end.Add(-early)) && !renewed {
		return time.Time{}, "" // issued as late as that: another one would come with the same
	}
	at := end.Add(-renewal.Part(early, d.crt.UID, "chain"))
	return at, "Renewing certificate as a CA certificate that came with it expires on " + end.UTC().Format(time.RFC1123)
}

func (d *decision) issuerVersion() string {
	if d.Issuer == nil {
		return ""
	}
	return d.Issuer.Version
}
