package certificate

import (
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/when"
)

// status.cause says what is in the way of a Certificate: the newest trouble of its chain, until something newer has
// happened. The condition Ready repeats it in a sentence. Causes are compared by class, problem type and subject:
// strangers choose the texts, and a text that has changed alone is not written.

// tell notes a cause and when the next try is, and reports whether it is another cause than is known.
func (d *decision) tell(c *cmmeta.Cause) bool { return cause.Tell(&d.crt.Status, c) }

// pace holds a write back that comes soon after the last one that told of a cause, and tells of nothing but another
// cause.
func (d *decision) pace(a *Action) {
	due := d.Told.Add(cause.Pause)
	if a.Rests() && a.Status != nil && d.now.Before(due) && cause.Alone(&d.Certificate.Status, a.Status) {
		a.Status, a.Events, a.Wake = nil, nil, when.Earliest(a.Wake, due)
	}
}

// is reports whether the cause that is known is of a class.
func (d *decision) is(class cause.Class) bool {
	c := d.crt.Status.Cause
	return c != nil && c.Class == string(class)
}

// setRestCause notes the cause of a Certificate for which nothing is issued, or none.
func (d *decision) setRestCause(c *cmmeta.Cause) {
	d.tell(c)
	d.crt.Status.NextTry = nil
}

// tryAgainIn notes that a failed issuance is tried again once that time has passed: in whole seconds from the failure,
// as its time is stored.
func (d *decision) tryAgainIn(wait time.Duration) {
	failed := d.crt.Status.LastFailureTime.Time
	d.waitsUntil(failed.Truncate(time.Second).Add(d.now.Add(wait).Sub(failed)))
}

// triedWhenDue notes that the next try is the renewal: the certificate is good until then.
func (d *decision) triedWhenDue() {
	d.crt.Status.NextTry = nil
	if due := d.renewalDue(); due.After(d.now) {
		d.waitsUntil(due)
	}
}

// waitsUntil notes when the Certificate is tried again by itself.
func (d *decision) waitsUntil(next time.Time) {
	d.crt.Status.NextTry = at(next.Truncate(time.Second))
}

// noteWindows makes the cause say that the renewal windows cannot be met, where nothing worse is in the way.
func (d *decision) noteWindows(problem string) {
	switch {
	case problem == "" && d.is(cause.RenewalWindows):
		d.crt.Status.Cause = nil
	case problem != "" && d.free():
		d.tell(cause.New(cause.RenewalWindows, "", "", problem))
	}
}

// noteAuthority makes the cause say that a CA certificate above a good certificate has expired, where nothing worse is
// in the way.
func (d *decision) noteAuthority(a *Action) {
	var end time.Time
	if f := d.Secret; f != nil && f.Leaf != nil && f.AuthoritiesEnd.Before(f.Leaf.NotAfter) && d.isReady() {
		end = f.AuthoritiesEnd
	}
	switch {
	case !end.IsZero() && !d.now.Before(end):
		if c := cause.OfAuthority(end, d.crt.Status.RenewalTime); d.free() || d.is(cause.CAExpired) {
			if d.tell(c); !c.SameAs(d.Certificate.Status.Cause) {
				a.warn(c.Class, cause.Sentence(c))
			}
		}
		return
	case a.Rests():
		a.Wake = when.Earliest(a.Wake, end)
	}
	if d.is(cause.CAExpired) {
		d.tell(nil)
	}
}

// noteUsages makes the cause say that a good certificate is not for all that was asked for, where nothing else is in
// the way. Nothing is issued for it: the issuer would leave the same out.
func (d *decision) noteUsages(a *Action) {
	lacking := d.leftOut()
	switch {
	case len(lacking) == 0 && d.is(cause.UsageLeftOut):
		d.tell(nil)
	case len(lacking) > 0 && d.free():
		c := cause.OfUsages(lacking, d.crt.Status.RenewalTime)
		if d.tell(c); !c.SameAs(d.Certificate.Status.Cause) {
			a.warn(c.Class, cause.Sentence(c))
		}
	}
}

// leftOut are the usages that were asked for, and that a good certificate is not for, if nothing is under way or has
// failed since.
func (d *decision) leftOut() []certmanagerv1.KeyUsage {
	encode := d.crt.Spec.EncodeUsagesInRequest
	if _, asked := d.current(); !asked || encode != nil && !*encode || !d.isReady() || d.issuing() != nil || d.crt.Status.LastFailureTime != nil {
		return nil
	}
	return pki.Lacking(d.Secret.Leaf.Uses, d.crt.Spec.Usages)
}

// free reports whether no cause is known but one that every other comes before.
func (d *decision) free() bool { return d.crt.Status.Cause == nil || d.is(cause.UsageLeftOut) }

// isReady reports whether the condition Ready is True.
func (d *decision) isReady() bool {
	return certmanagerv1.HasCertificateCondition(d.crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue)
}

// sayCause makes the condition Ready say the cause: at the beginning, or at the end if the certificate is good.
func (d *decision) sayCause() {
	ready := certmanagerv1.FindCertificateCondition(d.crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
	if c := d.crt.Status.Cause; c != nil && ready != nil {
		scene := cause.Scene{Cause: c, Namespace: d.crt.Namespace, Certificate: d.crt.Name, Owner: cause.OwnerOf(d.crt)}
		ready.Message = scene.Ready(ready.Message, ready.Status == cmmeta.ConditionTrue)
	}
}

// causeOf is what a request waits for, or has failed with: what it says itself, or else what is known of it here.
func causeOf(r facts.Request, class cause.Class, message string) *cmmeta.Cause {
	if c := r.Status.Cause; c != nil {
		return c
	}
	return cause.New(class, "", "", message)
}
