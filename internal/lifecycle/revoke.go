package lifecycle

import (
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/revocation"
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
// it waits, the Certificate takes its course. News is said before the certificate is pinned: a process that ends
// between the two then goes on as if nothing had happened.
func (d *decision) revokeOrIssue(a revocation.Action, news bool) Action {
	alone := Action{Step: StepRest, Keep: d.Held != nil}
	switch {
	case a.Step == revocation.StepPin && news:
		return alone
	case a.Step == revocation.StepPin:
		alone.Step = StepPin
	case a.Step == revocation.StepRecord:
		alone.Step, alone.Record = StepRecord, a.Record
	case a.Step == revocation.StepUnpin:
		alone.Step = StepUnpin
	default:
		out := d.next()
		out.Keep, out.Unsaid, out.Revoke = d.keep, d.unsaid, a.Step == revocation.StepAsk
		return out
	}
	d.quiet = true // the status is decided once the step is taken
	return alone
}
