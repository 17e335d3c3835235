// Package revocation decides the steps after a person asks to revoke a certificate. First the certificate is pinned, so
// that a retry never revokes another certificate. Then the certificate is replaced, so that no application is without a
// certificate. Then the CA revokes the pinned certificate.
//
// The package is pure. internal/machine/certificate asks it for a part of each decision on a Certificate. The
// replacement is issued like any other certificate. A signer.Revoker asks the CA to revoke.
package revocation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/pki"
)

// Annotations of a Certificate.
const (
	// Annotation asks for the certificate to be replaced and revoked; its value is a Reason.
	Annotation = "chancery.dev/revoke"
	// RecordAnnotation says how the last such request has ended: a Record.
	RecordAnnotation = "chancery.dev/last-revocation"
)

// Reason is why a certificate is revoked (RFC 5280 §5.3.1): one of those that CAs accept from subscribers.
type Reason string

// The reasons.
const (
	Unspecified          Reason = "unspecified"
	KeyCompromise        Reason = "keyCompromise" // its key must not be used again
	AffiliationChanged   Reason = "affiliationChanged"
	Superseded           Reason = "superseded"
	CessationOfOperation Reason = "cessationOfOperation"
)

// ParseReason reads the value of Annotation. The error says which values there are.
func ParseReason(value string) (Reason, error) {
	all := []Reason{Unspecified, KeyCompromise, AffiliationChanged, Superseded, CessationOfOperation}
	if slices.Contains(all, Reason(value)) {
		return Reason(value), nil
	}
	return "", fmt.Errorf("%q is no reason for which a CA revokes a certificate: set the annotation %s to one of %s", value, Annotation,
		strings.Trim(fmt.Sprint(all), "[]"))
}

// Pin is the certificate that is to be revoked. A nil Pin means none.
type Pin struct {
	// ID is the SHA-256 of its DER.
	ID [sha256.Size]byte
	// Serial is its serial number, in lower case hexadecimal.
	Serial string
	// Key is its public key.
	Key pki.PublicKeyFacts
	// NotAfter is when it ends.
	NotAfter time.Time
	// Since is when it was pinned.
	Since time.Time
	// Reason is why it is revoked.
	Reason Reason
}

// Means reports whether a certificate with that ID and public key is to be replaced: it is the pinned one, or
// has a key that must not be used any more.
func (p *Pin) Means(id [sha256.Size]byte, key pki.PublicKeyFacts) bool {
	return p != nil && (p.ID == id || p.ForbidsKey(key))
}

// ForbidsKey reports whether a public key must not be used any more, whatever rotationPolicy says.
func (p *Pin) ForbidsKey(key pki.PublicKeyFacts) bool {
	return p != nil && p.Reason == KeyCompromise && p.Key.Same(key)
}

// Why says why the certificate is replaced.
func (p *Pin) Why() string {
	return fmt.Sprintf("The certificate with serial number %s is to be revoked (%s)", p.Serial, p.Reason)
}

// SecretName returns the name of the Secret that keeps the pinned certificate of a Certificate. It is the same
// whenever it is asked for.
func SecretName(certificate string, uid types.UID) string {
	const longest, digits = 230, 8
	sum := sha256.Sum256([]byte(uid))
	if len(certificate) > longest {
		certificate = strings.TrimRight(certificate[:longest], "-.")
	}
	return certificate + "-revoke-" + hex.EncodeToString(sum[:])[:digits]
}

// Outcome is how a request has ended.
type Outcome string

// The outcomes.
const (
	// Revoked: by the CA, which may have done so before.
	Revoked Outcome = "Revoked"
	// Unsupported: the certificate is replaced; its issuer cannot revoke any.
	Unsupported Outcome = "Unsupported"
	// Expired: nobody trusts the certificate any more.
	Expired Outcome = "Expired"
)

// Record is what is kept of a request that has ended.
type Record struct {
	Serial  string
	Reason  Reason
	Time    time.Time
	Outcome Outcome
}

// String is the value of RecordAnnotation.
func (r Record) String() string {
	return fmt.Sprintf("serial=%s reason=%s time=%s outcome=%s", r.Serial, r.Reason, r.Time.UTC().Format(time.RFC3339), r.Outcome)
}

// ParseRecord reads the value of RecordAnnotation; false if it is none.
func ParseRecord(text string) (Record, bool) {
	var r Record
	var serial, reason, at, outcome string
	if n, err := fmt.Sscanf(text, "serial=%s reason=%s time=%s outcome=%s", &serial, &reason, &at, &outcome); n != 4 || err != nil {
		return r, false
	}
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return r, false
	}
	return Record{Serial: serial, Reason: Reason(reason), Time: t, Outcome: Outcome(outcome)}, true
}

// says is the record for people.
func (r Record) says() string {
	at := r.Time.UTC().Format(time.RFC3339)
	switch r.Outcome {
	case Revoked:
		return fmt.Sprintf("The certificate with serial number %s was replaced and revoked (%s) at %s", r.Serial, r.Reason, at)
	case Unsupported:
		return fmt.Sprintf("The certificate with serial number %s was replaced at %s, but not revoked: its issuer cannot revoke certificates. "+
			"It is trusted until it expires, or until its CA is not any more", r.Serial, at)
	default:
		return fmt.Sprintf("The certificate with serial number %s was not revoked: it had expired by %s", r.Serial, at)
	}
}
