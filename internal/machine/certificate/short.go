package certificate

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
)

// A Certificate takes the short way if a request for it is approved and signed at once, by this process alone, and its
// last issuance did not fail. Nothing is said of the issuance before its end then: the condition Issuing is not shown,
// and the private key is in no Secret but in the memory of this process, unless the issuer reads it from there. A
// process that ends takes the key with it: the request is useless then, and is made again.
//
// Whatever is not signed at the next look leaves the short way before it waits: its key gets a Secret, and the
// Certificate shows that it is being issued, since its request was made.

// short reports whether a request that is made now is approved, signed and stored at once.
func (d *decision) short() bool {
	switch {
	case d.Passwords.Error != nil && facts.WantsKeystores(&d.crt.Spec), d.crt.Status.LastFailureTime != nil, d.Held != nil && d.Held.Refused:
		return false
	case d.ours() && d.signed():
		return true // whatever has become of the issuer
	default:
		return d.Issuer != nil && d.Issuer.InLine && d.crt.Annotations[certmanagerv1.IssueTemporaryAnnotation] != "true"
	}
}

// needsKey reports whether the issuer reads the private key from a Secret.
func (d *decision) needsKey() bool { return d.Issuer != nil && d.Issuer.NeedsKey }

// signed reports whether the request of the next revision is.
func (d *decision) signed() bool {
	r, ok := d.ofRevision(d.nextRevision())
	return ok && r.ReadyReason() == certmanagerv1.CertificateRequestReasonIssued
}

// holds reports whether the private key in memory is one to issue for.
func (d *decision) holds() bool {
	return d.Held != nil && len(facts.KeySpecOf(&d.crt.Spec).ViolationsOf(d.Held.Public)) == 0 && !d.revoking.ForbidsKey(d.Held.Public) &&
		!d.spent(facts.Key{Public: d.Held.Public})
}

// ours reports whether this process is on the short way: it has made a request for what the spec asks for, and waits.
func (d *decision) ours() bool {
	r, ok := d.ofRevision(d.nextRevision())
	return ok && d.holds() && d.Held.Public.Same(r.Public) && d.fulfils(r)
}

// hasKeySecret reports whether a request was made with a next private key that a Secret holds.
func (d *decision) hasKeySecret(r facts.Request) bool {
	return slices.ContainsFunc(d.Keys, func(k facts.Key) bool { return samePublicKey(r, k) })
}

// unseen reports whether nobody has looked at a request yet, which is young. Clocks may differ a little.
func (d *decision) unseen(r facts.Request) bool {
	age := d.now.Sub(r.CreationTimestamp.Time)
	return len(r.Status.Conditions) == 0 && age < patience && age > -patience
}

// since returns when the request was made that is under way, if its key is at hand; nil if there is none. An API server
// whose clock is ahead does not date it in the future.
func (d *decision) since() *metav1.Time {
	r, ok := d.ofRevision(d.nextRevision())
	if !ok || r.Failed() && d.crt.Status.LastFailureTime != nil || !d.ours() && !d.hasKeySecret(r) {
		return nil
	}
	if r.CreationTimestamp.After(d.now) {
		return at(d.now.Truncate(time.Second))
	}
	return r.CreationTimestamp.DeepCopy()
}

// announce shows what was unsaid: that the Certificate is being issued, and since when.
func (d *decision) announce() {
	d.setIssuing(d.unsaid.Status, d.unsaid.Reason, d.unsaid.Message)
	if d.unsaid.LastTransitionTime != nil {
		d.issuing().LastTransitionTime = d.unsaid.LastTransitionTime
	}
	d.quiet = false
}

// leaveShortWay is to be done before a request is waited for.
func (d *decision) leaveShortWay() Action {
	if d.quiet {
		d.announce()
	}
	if len(d.Keys) == 0 {
		return *d.createKey()
	}
	return Action{Step: StepRest}
}

// restoring is how long after its creation a Certificate may find that its Secret was restored with it.
const restoring = 10 * time.Minute

// restored reports whether the first certificate is being issued because there was no Secret, and there is one since
// that is good: a backup brings both within a moment, and the watch of Secrets may be the slower one. Later, an
// issuance takes its course, and counts: who deletes a Secret and puts it back has no more of them than others.
func (d *decision) restored() bool {
	why := d.issuing()
	if why == nil && d.ours() {
		why = &d.Held.Issuing
	}
	fresh := d.crt.Status.Revision == nil && d.now.Sub(d.crt.CreationTimestamp.Time) < restoring
	return fresh && why != nil && why.Reason == certmanagerv1.CertificateReasonDoesNotExist && d.reissue() == nil
}

// giveUp ends an issuance that nobody needs any more. Its requests go, and with them an Order.
func (d *decision) giveUp() Action {
	d.crt.Status.LastFailureTime, d.crt.Status.FailedIssuanceAttempts = nil, nil
	certmanagerv1.RemoveCertificateCondition(d.crt, certmanagerv1.CertificateConditionIssuing)
	a := Action{Step: StepRest, Wake: d.now}
	for _, r := range d.Requests {
		if n, ok := r.Revision(); ok && n == d.nextRevision() && !d.postponed(StepDropSurplus) {
			a.Step, a.Names = StepDropSurplus, append(a.Names, r.Name)
		}
	}
	a.Events = []Event{{Reason: certmanagerv1.CertificateEventIssuing,
		Message: fmt.Sprintf("Secret %q exists again, with the right certificate: the issuance is not needed any more", d.crt.Spec.SecretName)}}
	return a
}

// stored returns what is left to do where the Secret holds the certificate of the next revision already, because a
// process ended before it could say so; nil if it does not.
func (d *decision) stored() *Action {
	f := d.Secret
	if f == nil || f.Leaf == nil || !f.HasKey || f.KeyError != nil || !f.Key.Same(f.Leaf.Key) || !f.Named || f.CertificateName != d.crt.Name {
		return nil
	}
	r, ok := d.ofRevision(d.nextRevision())
	if !ok || r.ReadyReason() != certmanagerv1.CertificateRequestReasonIssued {
		return nil
	}
	if chain, err := pki.DecodeChain(r.Status.Certificate); err != nil || facts.OfLeaf(chain[0]).ID != f.Leaf.ID {
		return nil
	}
	a := d.finish(f)
	return &a
}
