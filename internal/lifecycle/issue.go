package lifecycle

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// patience is how long a request may be pending before its Certificate says why.
const patience = 10 * time.Second

// issue takes an issuance one step further: key, request, verdict (spec §2.2 to §2.4).
func (d *decision) issue() Action {
	key, action := d.nextKey()
	if action != nil {
		return *action
	}
	request, action := d.nextRequest(key)
	if action != nil {
		return *action
	}
	return d.judge(request, key)
}

// nextKey returns the private key to issue for, or what is to be done to have one.
func (d *decision) nextKey() (KeyFacts, *Action) {
	named := d.crt.Status.NextPrivateKeySecretName
	switch {
	case len(d.Keys) == 0:
		return KeyFacts{}, d.createKey()
	case len(d.Keys) > 1:
		var drop []string
		for _, k := range d.Keys {
			if named == nil || k.Name != *named {
				drop = append(drop, k.Name)
			}
		}
		return KeyFacts{}, &Action{Step: StepDeleteKeys, Names: drop}
	}
	key := d.Keys[0]
	if named == nil {
		d.crt.Status.NextPrivateKeySecretName = &key.Name // made by a pass that was cut short
		named = &key.Name
	}
	if *named != key.Name || keyProblem(&d.crt.Spec, key) || d.Revoking.Spoils(key.Public) {
		return KeyFacts{}, &Action{Step: StepDeleteKeys, Names: []string{key.Name}}
	}
	return key, nil
}

func (d *decision) createKey() *Action {
	a := &Action{Step: StepCreateKey, Name: keyName(d.crt, d.nextRevision())}
	if named := d.crt.Status.NextPrivateKeySecretName; named != nil {
		a.Name = *named
	}
	if p := d.crt.Spec.PrivateKey; p != nil && p.RotationPolicy == certmanagerv1.RotationPolicyNever && d.Secret != nil && d.Secret.HasKey && !d.Revoking.Spoils(d.Secret.Key) {
		switch {
		case d.Secret.KeyError != nil:
			a.warn(certmanagerv1.CertificateEventDecodeFailed,
				fmt.Sprintf("The private key in Secret %q cannot be read, a new one is made: %v", d.crt.Spec.SecretName, d.Secret.KeyError))
		case len(KeySpecOf(&d.crt.Spec).ViolationsOf(d.Secret.Key)) > 0:
			return d.cannotRegenerate()
		default:
			a.ReuseKey = true
		}
	}
	d.crt.Status.NextPrivateKeySecretName = &a.Name
	return a
}

// cannotRegenerate waits for the user: the key must not be replaced, but does not
// match the spec (spec §2.2).
func (d *decision) cannotRegenerate() *Action {
	message := fmt.Sprintf("The private key in Secret %q does not match spec.privateKey, and rotationPolicy Never forbids a new one: "+
		"set rotationPolicy to Always, or delete the Secret", d.crt.Spec.SecretName)
	a := &Action{Step: StepRest}
	if c := d.issuing(); c.Message != message {
		d.setIssuing(cmmeta.ConditionTrue, c.Reason, message)
		a.warn(certmanagerv1.CertificateEventCannotRegenerateKey, message)
	}
	return a
}

// nextRequest returns the request of the next revision, or what is to be done to
// have the right one, and only that.
func (d *decision) nextRequest(key KeyFacts) (RequestFacts, *Action) {
	revision := d.nextRevision()
	var bad []string
	var good []RequestFacts
	for _, r := range d.Requests {
		n, ok := r.revision()
		switch {
		case !ok || n == revision && d.unsuitable(r, key):
			bad = append(bad, r.Name)
		case n == revision:
			good = append(good, r)
		}
	}
	switch {
	case len(bad) > 0:
		return RequestFacts{}, &Action{Step: StepDeleteRequests, Names: bad}
	case len(good) == 0:
		return RequestFacts{}, &Action{
			Step: StepCreateRequest, Name: RequestName(d.crt.Name, revision), Revision: revision, Key: key.Name,
			Budget: d.charge(), IssuerVersion: d.issuerVersion(),
		}
	case len(good) > 1:
		// Two requests may both be signed: keep the first.
		slices.SortFunc(good, byAge)
		var names []string
		for _, r := range good[1:] {
			names = append(names, r.Name)
		}
		return RequestFacts{}, &Action{Step: StepDeleteRequests, Names: names}
	}
	return good[0], nil
}

// unsuitable reports whether a request is for another spec or key, or ended
// before this issuance began.
func (d *decision) unsuitable(r RequestFacts, key KeyFacts) bool {
	wrong, err := RequestViolations(&d.crt.Spec, r)
	if err != nil || len(wrong) > 0 || !samePublicKey(r, key) {
		return true
	}
	// Both times, since they are of different clocks: a verdict that comes from a
	// clock that is slow must not have request after request made.
	since, ended := d.issuing().LastTransitionTime, d.failedAt(r, key)
	return ended != nil && ended.Before(since) && r.CreationTimestamp.Before(since)
}

// failedAt returns when a request came to an end that made its issuance fail; nil
// if it did not. Without this, a key that is never rotated would keep a request
// suitable that can only fail again.
func (d *decision) failedAt(r RequestFacts, key KeyFacts) *metav1.Time {
	for _, t := range []certmanagerv1.CertificateRequestConditionType{
		certmanagerv1.CertificateRequestConditionDenied, certmanagerv1.CertificateRequestConditionInvalidRequest,
	} {
		if c := r.condition(t); c != nil {
			return c.LastTransitionTime
		}
	}
	ready := certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
	switch {
	case ready == nil:
		return nil
	case ready.Reason == certmanagerv1.CertificateRequestReasonFailed, ready.Reason == certmanagerv1.CertificateRequestReasonDenied:
		return r.Status.FailureTime
	case ready.Reason == certmanagerv1.CertificateRequestReasonIssued && d.refusal(r, key) != "":
		return ready.LastTransitionTime
	default:
		return nil
	}
}

// judge ends the issuance if its request has ended (spec §2.4).
func (d *decision) judge(r RequestFacts, key KeyFacts) Action {
	if c := r.condition(certmanagerv1.CertificateRequestConditionDenied); c != nil {
		return d.fail(c.Reason, c.Message)
	}
	if c := r.condition(certmanagerv1.CertificateRequestConditionInvalidRequest); c != nil {
		return d.fail(c.Reason, c.Message)
	}
	ready := certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
	switch {
	case ready == nil && r.condition(certmanagerv1.CertificateRequestConditionApproved) == nil:
		return d.await(r, "it is not approved yet")
	case ready == nil:
		return d.await(r, "its issuer has not said anything yet")
	case ready.Reason == certmanagerv1.CertificateRequestReasonFailed, ready.Reason == certmanagerv1.CertificateRequestReasonDenied:
		return d.fail(ready.Reason, d.failure(r, ready.Message))
	case ready.Reason == certmanagerv1.CertificateRequestReasonIssued:
		return d.store(r, key)
	case d.wantsTemporary():
		return Action{
			Step: StepStoreTemporary, Request: r.CertificateRequest, Key: key.Name,
			Events: []Event{{Reason: certmanagerv1.CertificateEventIssuing, Message: "Issued temporary certificate"}},
		}
	default:
		return d.await(r, ready.Message)
	}
}

// wantsTemporary reports whether the Secret is to hold a certificate that nobody
// trusts until there is one to trust (spec §2.4).
func (d *decision) wantsTemporary() bool {
	if d.crt.Annotations[certmanagerv1.IssueTemporaryAnnotation] != "true" {
		return false
	}
	f := d.Secret
	return f == nil || f.Leaf == nil || !f.Key.Same(f.Leaf.Key)
}

// failure says of a request that failed for good that only a change helps.
func (d *decision) failure(r RequestFacts, message string) string {
	if wait, ok := d.Backoff.afterClass(r.failureClass(), 1); !ok || wait != forever {
		return message
	}
	return message + " (the same request would fail again: it is retried once the spec or the issuer has changed, or cmctl renew asks for it)"
}

// await waits for a pending request. Once that takes long, the Certificate says
// why, so that whoever looks at it need not look for the request; an issuance
// that just takes its course costs no such write.
func (d *decision) await(r RequestFacts, why string) Action {
	issuing := d.issuing()
	if overdue := issuing.LastTransitionTime.Add(patience); d.now.Before(overdue) {
		return Action{Step: StepRest, Wake: overdue}
	}
	if why != "" {
		d.setIssuing(cmmeta.ConditionTrue, issuing.Reason, fmt.Sprintf("CertificateRequest %q waits: %s", r.Name, why))
	}
	return Action{Step: StepRest}
}

// refusal says why what the issuer returned is not the certificate asked for; ""
// if it is.
func (d *decision) refusal(r RequestFacts, key KeyFacts) string {
	leaf, err := LeafOf(r.Status.Certificate)
	switch {
	case err != nil:
		return fmt.Sprintf("the issuer returned a certificate that cannot be read: %v", err)
	case !pki.FactsOfKey(leaf.PublicKey).Same(key.Public):
		return "the issuer returned a certificate for another private key"
	case d.now.After(leaf.NotAfter):
		return fmt.Sprintf("the issuer returned a certificate that expired on %s", leaf.NotAfter.UTC().Format(time.RFC1123))
	case !wantsKeystores(&d.crt.Spec):
		return ""
	}
	if _, err := keystoreOf(r.Status.Certificate, r.Status.CA); err != nil {
		return fmt.Sprintf("the issuer returned certificates that cannot be put into keystores: %v", err)
	}
	return ""
}

// store checks what the issuer returned and has it stored. What is not the
// certificate asked for is refused and fails like any other issuance.
func (d *decision) store(r RequestFacts, key KeyFacts) Action {
	if why := d.refusal(r, key); why != "" {
		return d.fail(certmanagerv1.CertificateReasonInvalidCertificate, why)
	}
	if err := d.Passwords.Error; err != nil && wantsKeystores(&d.crt.Spec) {
		return d.awaitPassword(err)
	}
	revision := d.nextRevision()
	status := &d.crt.Status
	status.ACME = nil // what the CA said was of the certificate before
	status.Revision = &revision
	status.NextPrivateKeySecretName, status.LastFailureTime, status.FailedIssuanceAttempts = nil, nil, nil
	certmanagerv1.RemoveCertificateCondition(d.crt, certmanagerv1.CertificateConditionIssuing)
	d.becomeReady(r, key)
	return Action{
		Step: StepStore, Request: r.CertificateRequest, Revision: revision, Key: key.Name, Names: keyNames(d.Keys),
		Events: []Event{{Reason: certmanagerv1.CertificateEventIssuing, Message: "The certificate has been successfully issued"}},
	}
}

// awaitPassword waits for the password of a keystore, without which the Secret cannot
// be written.
func (d *decision) awaitPassword(problem error) Action {
	a := Action{Step: StepRest}
	message := "The certificate is issued, but cannot be stored: " + problem.Error()
	if c := d.issuing(); c.Message != message {
		d.setIssuing(cmmeta.ConditionTrue, c.Reason, message)
		a.warn(certmanagerv1.CertificateEventKeystorePassword, message)
	}
	return a
}

// becomeReady assesses the Secret as it will be once it is stored, so that one
// write says everything.
func (d *decision) becomeReady(r RequestFacts, key KeyFacts) {
	stored := d.State
	stored.Certificate = d.crt
	stored.Secret = &SecretFacts{
		HasKey: true, HasCertificate: true, Key: key.Public,
		CertificateName: d.crt.Name, Named: true, Issuer: r.Spec.IssuerRef, IssuerSaid: true,
	}
	leaf, err := LeafOf(r.Status.Certificate)
	if stored.Secret.CertificateError = err; err == nil {
		stored.Secret.Leaf = LeafFactsOf(leaf)
	}
	after := &decision{State: stored, now: d.now, crt: d.crt}
	after.assess()
}

// fail ends the issuance. The reason is that of the request (spec §2.4).
func (d *decision) fail(reason, message string) Action {
	attempts := 1
	if n := d.crt.Status.FailedIssuanceAttempts; n != nil {
		attempts += *n
	}
	message = "The certificate request has failed to complete and will be retried: " + message
	d.crt.Status.FailedIssuanceAttempts = &attempts
	d.crt.Status.LastFailureTime = at(d.now)
	d.crt.Status.NextPrivateKeySecretName = nil // the key goes in the next step, without a write of its own
	d.setIssuing(cmmeta.ConditionFalse, reason, message)
	a := Action{Step: StepRest, Wake: d.now}
	a.warn(reason, message)
	return a
}

// Refuse returns the status of a Certificate whose spec no request can be made
// for, or nil if it says so already.
func Refuse(crt *certmanagerv1.Certificate, message string, now time.Time) *certmanagerv1.CertificateStatus {
	d := &decision{now: now, crt: crt.DeepCopy()}
	issuing := d.issuing()
	if issuing != nil && issuing.Message == message && issuing.ObservedGeneration == crt.Generation {
		return nil
	}
	reason := certmanagerv1.CertificateReasonFailed
	if issuing != nil {
		reason = issuing.Reason
	}
	d.setIssuing(cmmeta.ConditionTrue, reason, message)
	return &d.crt.Status
}
