package certificate

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
)

// patience is how long a request may be pending before its Certificate says why.
const patience = 10 * time.Second

// issue takes an issuance one step further: key, request, verdict (spec §2.2 to §2.4).
func (d *decision) issue() Action {
	d.crt.Status.NextTry = nil
	if d.quiet = d.issuing() == nil; d.quiet {
		d.unsaid.LastTransitionTime = d.since()
		if !d.short() {
			d.announce()
		}
	}
	d.keep = d.holds() && (d.quiet || len(d.Keys) == 0)
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
func (d *decision) nextKey() (facts.Key, *Action) {
	named := d.crt.Status.NextPrivateKeySecretName
	switch {
	case len(d.Keys) == 0 && (!d.short() || d.needsKey()):
		return facts.Key{}, d.createKey()
	case len(d.Keys) == 0 && d.holds():
		return facts.Key{Public: d.Held.Public}, nil
	case len(d.Keys) == 0:
		return facts.Key{}, nil // it is made with the request
	case len(d.Keys) > 1:
		var drop []string
		for _, k := range d.Keys {
			if named == nil || k.Name != *named {
				drop = append(drop, k.Name)
			}
		}
		return facts.Key{}, &Action{Step: StepDeleteKeys, Names: drop}
	}
	key := d.Keys[0]
	if named == nil {
		d.crt.Status.NextPrivateKeySecretName = &key.Name // made by a pass that was cut short
		named = &key.Name
	}
	if *named != key.Name || keyProblem(&d.crt.Spec, key) || d.revoking.ForbidsKey(key.Public) || d.spent(key) {
		return facts.Key{}, &Action{Step: StepDeleteKeys, Names: []string{key.Name}}
	}
	return key, nil
}

func (d *decision) createKey() *Action {
	a := &Action{Step: StepCreateKey, Name: keyName(d.crt, d.nextRevision())}
	if named := d.crt.Status.NextPrivateKeySecretName; named != nil {
		a.Name = *named
	}
	if a.Held = d.holds(); !a.Held {
		if stop := d.reuseKey(a); stop != nil {
			return stop
		}
	}
	d.crt.Status.NextPrivateKeySecretName = &a.Name
	return a
}

// reuseKey makes an Action that needs a private key take that of the Secret, if rotationPolicy is Never. It returns
// what to do instead if that key will not do.
func (d *decision) reuseKey(a *Action) *Action {
	if !d.neverRotates() || d.Secret == nil || !d.Secret.HasKey || d.revoking.ForbidsKey(d.Secret.Key) {
		return nil
	}
	switch {
	case d.Secret.KeyError != nil:
		a.warn(certmanagerv1.CertificateEventDecodeFailed,
			fmt.Sprintf("The private key in Secret %q cannot be read, a new one is made: %v", d.crt.Spec.SecretName, d.Secret.KeyError))
	case len(facts.KeySpecOf(&d.crt.Spec).ViolationsOf(d.Secret.Key)) > 0:
		return d.cannotRegenerate()
	default:
		a.ReuseKey = true
	}
	return nil
}

func (d *decision) neverRotates() bool {
	p := d.crt.Spec.PrivateKey
	return p != nil && p.RotationPolicy == certmanagerv1.RotationPolicyNever
}

// cannotRegenerate waits for the user: the key must not be replaced, but does not
// match the spec (spec §2.2).
func (d *decision) cannotRegenerate() *Action {
	if d.quiet {
		d.announce()
	}
	message := fmt.Sprintf("The private key in Secret %q does not match spec.privateKey, and rotationPolicy Never forbids a new one: "+
		"set rotationPolicy to Always, or delete the Secret", d.crt.Spec.SecretName)
	a := &Action{Step: StepRest}
	if d.tell(cause.New(cause.KeyNotReplaced, "", "", message)) {
		d.setIssuing(cmmeta.ConditionTrue, d.issuing().Reason, message)
		a.warn(certmanagerv1.CertificateEventCannotRegenerateKey, message)
	}
	return a
}

// nextRequest returns the request of the next revision, or what is to be done to
// have the right one, and only that.
func (d *decision) nextRequest(key facts.Key) (facts.Request, *Action) {
	revision := d.nextRevision()
	var bad []string
	var good []facts.Request
	for _, r := range d.Requests {
		n, ok := r.Revision()
		switch {
		case !ok || n == revision && d.unsuitable(r, key):
			bad = append(bad, r.Name)
		case n == revision:
			good = append(good, r)
		}
	}
	switch {
	case len(bad) > 0:
		return facts.Request{}, &Action{Step: StepDeleteRequests, Names: bad}
	case len(good) == 0:
		return facts.Request{}, d.createRequest(revision, key)
	case len(good) > 1:
		// Two requests may both be signed: keep the first.
		slices.SortFunc(good, byAge)
		var names []string
		for _, r := range good[1:] {
			names = append(names, r.Name)
		}
		return facts.Request{}, &Action{Step: StepDeleteRequests, Names: names}
	}
	return good[0], nil
}

func (d *decision) createRequest(revision int, key facts.Key) *Action {
	a := &Action{
		Step: StepCreateRequest, Name: RequestName(d.crt.Name, revision), Revision: revision, Key: key.Name,
		Budget: d.charge(), IssuerVersion: d.issuerVersion(),
	}
	if key.Name == "" {
		if a.Held = d.holds(); !a.Held {
			if stop := d.reuseKey(a); stop != nil {
				return stop
			}
		}
	}
	d.keep = d.short() && (d.quiet || key.Name == "")
	return a
}

// fulfils reports whether a request is what the spec asks for.
func (d *decision) fulfils(r facts.Request) bool {
	wrong, err := facts.RequestViolations(&d.crt.Spec, r)
	return err == nil && len(wrong) == 0
}

// unsuitable reports whether a request is for another spec or key, or ended
// before this issuance began.
func (d *decision) unsuitable(r facts.Request, key facts.Key) bool {
	return !d.fulfils(r) || !samePublicKey(r, key) || d.endedBefore(r, key)
}

// spent reports whether a key is that of a request that ended before this issuance began: another request with that key
// would be given the Order of the first one.
func (d *decision) spent(key facts.Key) bool {
	r, ok := d.ofRevision(d.nextRevision())
	return ok && samePublicKey(r, key) && d.endedBefore(r, key) && !d.neverRotates()
}

// endedBefore reports whether a request ended before this issuance began.
func (d *decision) endedBefore(r facts.Request, key facts.Key) bool {
	if d.issuing() == nil {
		return false // on the short way: there was no other failure
	}
	// Both times, since they are of different clocks: a verdict that comes from a
	// clock that is slow must not lead to request after request.
	since, ended := d.issuing().LastTransitionTime, d.failedAt(r, key)
	return ended != nil && ended.Before(since) && r.CreationTimestamp.Before(since)
}

// failedAt returns when a request came to an end that made its issuance fail; nil
// if it did not. Without this, a key that is never rotated would keep a request
// suitable that can only fail again.
func (d *decision) failedAt(r facts.Request, key facts.Key) *metav1.Time {
	for _, t := range []certmanagerv1.CertificateRequestConditionType{
		certmanagerv1.CertificateRequestConditionDenied, certmanagerv1.CertificateRequestConditionInvalidRequest,
	} {
		if c := r.Condition(t); c != nil {
			return c.LastTransitionTime
		}
	}
	ready := certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
	switch {
	case ready == nil:
		return nil
	case ready.Reason == certmanagerv1.CertificateRequestReasonFailed, ready.Reason == certmanagerv1.CertificateRequestReasonDenied:
		return r.Status.FailureTime
	case ready.Reason == certmanagerv1.CertificateRequestReasonIssued && !d.isAskedFor(r, key):
		return ready.LastTransitionTime
	default:
		return nil
	}
}

// judge ends the issuance if its request has ended (spec §2.4).
func (d *decision) judge(r facts.Request, key facts.Key) Action {
	if c := r.Condition(certmanagerv1.CertificateRequestConditionDenied); c != nil {
		d.tell(cause.New(cause.Denied, "", "", c.Reason+": "+c.Message))
		return d.fail(c.Reason, c.Message)
	}
	if c := r.Condition(certmanagerv1.CertificateRequestConditionInvalidRequest); c != nil {
		d.tell(causeOf(r, cause.Other, c.Message))
		return d.fail(c.Reason, c.Message)
	}
	ready := certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
	switch {
	case ready == nil && r.Condition(certmanagerv1.CertificateRequestConditionApproved) == nil:
		return d.await(r, cause.NotApproved, "CertificateRequest "+r.Name+cause.OfGroup(r.Spec.IssuerRef))
	case ready == nil && r.Spec.IssuerRef.IsExternal():
		return d.await(r, cause.NoController, cause.Unanswered(r.Name, r.Spec.IssuerRef))
	case ready == nil:
		return d.await(r, cause.Other, "the issuer has not said anything yet")
	case ready.Reason == certmanagerv1.CertificateRequestReasonFailed, ready.Reason == certmanagerv1.CertificateRequestReasonDenied:
		c := causeOf(r, cause.Class(r.FailureClass()), ready.Message)
		d.tell(c)
		return d.fail(ready.Reason, d.failure(r, cause.Sentence(c)))
	case ready.Reason == certmanagerv1.CertificateRequestReasonIssued:
		return d.store(r, key)
	case d.wantsTemporary():
		return Action{
			Step: StepStoreTemporary, Request: r.CertificateRequest, Key: key.Name,
			Events: []Event{{Reason: certmanagerv1.CertificateEventIssuing, Message: "Issued temporary certificate"}},
		}
	default:
		return d.await(r, cause.Other, ready.Message)
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

// failure says of a request that has failed permanently what helps.
func (d *decision) failure(r facts.Request, message string) string {
	if !d.permanently(r) {
		return message
	}
	return message + " (the same request would fail again: it is retried once a day, after a week once a week, and at once when the spec or the issuer has changed, " +
		"the Secret is deleted, or cmctl renew asks for it)"
}

// await waits for a pending request. A cause that the request tells is told at once. What is said of a request that
// tells none is a cause once that takes long: an issuance that just takes its course costs no such write.
func (d *decision) await(r facts.Request, class cause.Class, why string) Action {
	a := Action{Step: StepRest}
	if d.quiet || len(d.Keys) == 0 {
		if d.unseen(r) {
			return Action{Step: StepRest, Wake: r.CreationTimestamp.Add(patience)}
		}
		a = d.leaveShortWay()
	}
	issuing := d.issuing()
	overdue := issuing.LastTransitionTime.Add(patience)
	switch {
	case r.Status.Cause == nil && d.now.Before(overdue):
		if a.Rests() {
			a.Wake = overdue
		}
		if cause.IsWrite(d.crt.Status.Cause) {
			d.tell(nil) // what was refused has been written since
		}
	case r.Status.Cause != nil, class == cause.NotApproved, r.Spec.IssuerRef.IsExternal():
		if c := causeOf(r, class, why); d.tell(c) {
			d.setIssuing(cmmeta.ConditionTrue, issuing.Reason, cause.Sentence(c))
			a.warn(certmanagerv1.CertificateEventWaiting, cause.Sentence(c))
		}
	case why != "": // our own requests say it where anything is in the way
		d.setIssuing(cmmeta.ConditionTrue, issuing.Reason, fmt.Sprintf("CertificateRequest %q waits: %s", r.Name, why))
	}
	return a
}

// issued returns the certificates that the issuer returned, as PEM, or says why they are not what was asked for.
func (d *decision) issued(r facts.Request, key facts.Key) (chain []byte, refusal string) {
	chain, certs, err := pki.CleanChain(r.Status.Certificate)
	if err != nil {
		return nil, fmt.Sprintf("the issuer returned a certificate that cannot be read: %v", err)
	}
	switch leaf := certs[0]; {
	case !pki.FactsOfKey(leaf.PublicKey).Same(key.Public):
		return nil, "the issuer returned a certificate for another private key"
	case d.now.After(leaf.NotAfter):
		return nil, fmt.Sprintf("the issuer returned a certificate that expired on %s", leaf.NotAfter.UTC().Format(time.RFC1123))
	case !facts.WantsKeystores(&d.crt.Spec):
		return chain, ""
	}
	if _, err := facts.KeystoreOf(r.Status.Certificate, r.Status.CA); err != nil {
		return nil, fmt.Sprintf("the issuer returned certificates that cannot be put into keystores: %v", err)
	}
	return chain, ""
}

// isAskedFor reports whether the issuer returned what was asked for.
func (d *decision) isAskedFor(r facts.Request, key facts.Key) bool {
	_, refusal := d.issued(r, key)
	return refusal == ""
}

// store checks what the issuer returned and stores it. What is not the
// certificate asked for is refused and fails like any other issuance.
func (d *decision) store(r facts.Request, key facts.Key) Action {
	chain, why := d.issued(r, key)
	if why != "" {
		d.tell(cause.New(cause.WrongCertificate, "", "", why))
		return d.fail(certmanagerv1.CertificateReasonInvalidCertificate, why)
	}
	if err := d.Passwords.Error; err != nil && facts.WantsKeystores(&d.crt.Spec) {
		return d.awaitPassword(err)
	}
	a := d.finish(facts.OfIssued(d.crt.Name, key.Public, chain, r.CertificateRequest))
	a.Step, a.Request, a.Chain, a.Revision, a.Names = StepStore, r.CertificateRequest, chain, *d.crt.Status.Revision, keyNames(d.Keys)
	a.Key, a.Held = key.Name, key.Name == ""
	return a
}

// finish says that the certificate of the next revision is issued, and assesses the Secret that holds it, so that one
// write says everything.
func (d *decision) finish(secret *facts.Secret) Action {
	revision, status := d.nextRevision(), &d.crt.Status
	status.ACME = nil // what the CA said was of the certificate before
	status.Cause, status.NextTry = nil, nil
	status.Revision = &revision
	status.NextPrivateKeySecretName, status.LastFailureTime, status.FailedIssuanceAttempts = nil, nil, nil
	certmanagerv1.RemoveCertificateCondition(d.crt, certmanagerv1.CertificateConditionIssuing)
	d.keep, d.quiet = false, false
	after := &decision{State: d.State, now: d.now, crt: d.crt}
	after.Certificate, after.Secret = d.crt.DeepCopy(), secret // the status before tells what has changed
	after.assess()
	d.Secret = secret
	return Action{Step: StepRest, Events: []Event{{Reason: certmanagerv1.CertificateEventIssuing, Message: "The certificate has been successfully issued"}}}
}

// awaitPassword waits for the password of a keystore, without which the Secret cannot
// be written.
func (d *decision) awaitPassword(problem error) Action {
	a := Action{Step: StepRest}
	message := "The certificate is issued, but cannot be stored: " + problem.Error()
	if d.tell(cause.New(cause.PasswordMissing, "", "", message)) {
		d.setIssuing(cmmeta.ConditionTrue, d.issuing().Reason, message)
		a.warn(certmanagerv1.CertificateEventKeystorePassword, message)
	}
	return a
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
	d.keep, d.quiet = false, false
	d.crt.Status.NextPrivateKeySecretName = nil // the key goes in the next step, without a write of its own
	d.setIssuing(cmmeta.ConditionFalse, reason, message)
	d.triedWhenDue()
	if wait := d.backoff(); wait > 0 && d.reissue() != nil {
		d.tryAgainIn(wait)
	}
	a := Action{Step: StepRest, Wake: d.now}
	a.warn(reason, message)
	return a
}

// refuse says on the condition Issuing, and in one event, why the step of an Action is not taken, with Action.Unsaid.
func (d *decision) refuse(a Action) Action {
	out := Action{Step: StepRest, Keep: d.Held != nil, Unsaid: a.Unsaid, Revoke: a.Revoke, Failure: d.Refusal.Err}
	d.quiet = false
	issuing, message := d.issuing(), d.Refusal.Message
	why := d.Refusal.Cause
	if why == nil {
		why = cause.New(cause.Other, "", "", message)
	}
	if !d.tell(why) && issuing != nil && issuing.ObservedGeneration == d.crt.Generation {
		return out
	}
	reason := certmanagerv1.CertificateReasonFailed
	switch {
	case issuing != nil:
		reason = issuing.Reason
	case a.Unsaid != nil:
		reason = a.Unsaid.Reason
	}
	d.setIssuing(cmmeta.ConditionTrue, reason, message)
	if issuing == nil && a.Unsaid != nil && a.Unsaid.LastTransitionTime != nil {
		d.issuing().LastTransitionTime = a.Unsaid.LastTransitionTime
	}
	out.warn(certmanagerv1.CertificateEventRequestFailed, message)
	return out
}
