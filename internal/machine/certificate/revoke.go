package certificate

import (
	"slices"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/when"
)

// revoke decides what a request to revoke the certificate needs (package revocation), and has the condition Revoking
// say so. It reports whether that is news.
func (d *decision) revoke() (a revocation.Action, news bool) {
	is := certmanagerv1.FindCertificateCondition(d.crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking)
	s := revocation.State{
		SecretName: d.crt.Spec.SecretName, Record: d.crt.Annotations[revocation.RecordAnnotation], Condition: is,
		Held: d.heldForRevocation(), Pin: d.Pin, Cannot: d.CannotRevoke, Answer: d.Revocation,
	}
	s.Wanted, s.Asked = d.crt.Annotations[revocation.Annotation]
	if !s.Asked && d.postponed(StepUnpin) {
		s.Pin = nil // what is left of it means nothing any more
	}
	if d.foreign() {
		s.Owner = d.SecretOwner
	}
	if s.Asked {
		d.revoking = d.Pin
	}
	a = revocation.Decide(s, d.now)
	switch {
	case a.Clear:
		certmanagerv1.RemoveCertificateCondition(d.crt, certmanagerv1.CertificateConditionRevoking)
		return a, true
	case a.Say == nil || is != nil && is.Status == a.Say.Status && is.Reason == a.Say.Reason && is.Message == a.Say.Message:
		return a, false
	}
	certmanagerv1.SetCertificateCondition(d.crt, *a.Say, d.now)
	if a.Issue && d.issuing() == nil {
		d.setIssuing(cmmeta.ConditionTrue, certmanagerv1.CertificateReasonRevoking, a.Say.Message)
	}
	return a, true
}

// heldForRevocation returns the certificate that the Secret holds; nil if it holds none.
func (d *decision) heldForRevocation() *revocation.Held {
	f := d.Secret
	if f == nil || f.Leaf == nil {
		return nil
	}
	return &revocation.Held{
		ID: f.Leaf.ID, Key: f.Leaf.Key, NotAfter: f.Leaf.NotAfter, Temporary: f.Leaf.Temporary,
		Proven: f.HasKey && f.KeyError == nil && f.Key.Same(f.Leaf.Key),
	}
}

// revokeOrIssue returns the one step of the Action. A revocation pins and records before anything else is done; while
// it waits, or cannot take that step, the Certificate takes its course. News is said before the certificate is pinned:
// a process that ends between the two then goes on as if nothing had happened.
func (d *decision) revokeOrIssue(a revocation.Action, news bool) Action {
	alone := Action{Step: StepRest, Keep: d.Held != nil}
	switch a.Step {
	case revocation.StepPin:
		alone.Step = StepPin
	case revocation.StepRecord:
		alone.Step, alone.Record = StepRecord, a.Record
	case revocation.StepUnpin:
		alone.Step = StepUnpin
	default:
	}
	switch {
	case alone.Step == StepRest, d.postponed(alone.Step):
		out := d.next()
		out.Keep, out.Unsaid, out.Revoke = d.keep, d.unsaid, a.Step == revocation.StepAsk
		return out
	case alone.Step == StepPin && news:
		return Action{Step: StepRest, Keep: alone.Keep}
	}
	d.quiet = true // the status is decided once the step is taken
	return alone
}

// postponed reports whether a step could not be taken a while ago, and is not tried again yet.
func (d *decision) postponed(step Step) bool {
	return slices.ContainsFunc(d.Postponed, func(p Postponed) bool { return p.Step == step && d.now.Before(p.Until) })
}

// awaitsPin reports whether nothing but a revocation asks for the issuance, whose certificate cannot be pinned yet: if
// a replacement were stored now, nobody would know any more which certificate was meant.
func (d *decision) awaitsPin() bool {
	return d.postponed(StepPin) && d.issuing().Reason == certmanagerv1.CertificateReasonRevoking && d.Pin == nil && d.reissue() == nil
}

// tellPostponed says, once, what could not be done, and wakes the Certificate when to try again.
func (d *decision) tellPostponed(a *Action) {
	for _, p := range d.Postponed {
		if a.Rests() && d.now.Before(p.Until) {
			a.Wake = when.Earliest(a.Wake, p.Until)
		}
		if p.News != "" {
			reason := revocation.ReasonRetrying
			if p.Step == StepDropSurplus {
				reason = certmanagerv1.CertificateEventRequestFailed
			}
			a.warn(reason, p.News)
		}
	}
}
