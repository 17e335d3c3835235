package certificate

import (
	"cmp"
	"fmt"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/when"
)

// ReasonOverBudget is the reason of the condition Issuing of a Certificate that was
// issued too often to be issued again at once.
const ReasonOverBudget = "IssuanceBudgetExceeded"

// The budget of a Certificate is a bucket that leaks (the generic cell rate algorithm):
// each issuance moves a time forward, which must not run too far ahead. Without it,
// whoever overwrites the Secret again and again gets it issued again and again.
const (
	// issuanceCost makes five issuances an hour.
	issuanceCost = 12 * time.Minute
	// changeCost is that of an issuance that a change of the spec has asked for.
	changeCost = 3 * time.Minute
	// burst is how much may be used at once, and changeBurst how much with changes of
	// the spec: a user who puts things right does not wait for what has gone before.
	burst       = time.Hour
	changeBurst = 2 * time.Hour
	// renewalPart bounds the cost of a renewal by a part of the lifetime: certificates
	// may be of minutes.
	renewalPart = 8
)

// cost returns what an issuance for that reason costs, and how much may be used.
func (d *decision) cost(reason string) (each, limit time.Duration) {
	switch {
	case d.specChanged():
		return changeCost, changeBurst
	case reason == certmanagerv1.CertificateReasonRenewing && d.Secret != nil && d.Secret.Leaf != nil:
		lifetime := max(d.Secret.Leaf.NotAfter.Sub(d.Secret.Leaf.NotBefore), 0)
		return min(issuanceCost, lifetime/renewalPart), burst
	default:
		return issuanceCost, burst
	}
}

// specChanged reports whether the spec is another one than that of the last issuance,
// or than when the budget was found to be used up: somebody has a hand in this.
func (d *decision) specChanged() bool {
	if c := d.budgetExceeded(); c != nil && c.ObservedGeneration < d.crt.Generation {
		return true
	}
	r, ok := d.current()
	if !ok || r.Error != nil {
		return false
	}
	wrong, err := facts.RequestViolations(&d.crt.Spec, r)
	return err == nil && len(wrong)+len(facts.KeySpecOf(&d.crt.Spec).ViolationsOf(r.Public)) > 0
}

// budgetExceeded returns the condition that says that the budget is used up, or nil.
func (d *decision) budgetExceeded() *certmanagerv1.CertificateCondition {
	return d.notIssuing(ReasonOverBudget)
}

// notIssuing returns the condition that says that, for a reason of our own, nothing is
// issued, or nil.
func (d *decision) notIssuing(reason string) *certmanagerv1.CertificateCondition {
	c := certmanagerv1.FindCertificateCondition(d.crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
	if c == nil || c.Reason != reason {
		return nil
	}
	return c
}

// used returns until when the issuances so far use the budget, as the request of the
// last one says.
func (d *decision) used() time.Time {
	r, ok := d.current()
	if !ok {
		return time.Time{}
	}
	until, err := time.Parse(time.RFC3339, r.Annotations[BudgetAnnotation])
	if err != nil {
		return time.Time{}
	}
	return when.Earliest(until, r.CreationTimestamp.Add(changeBurst)) // whatever was written there
}

// budget returns when the budget allows an issuance for that reason; zero for now.
func (d *decision) budget(reason string) time.Time {
	each, limit := d.cost(reason)
	if allowed := d.used().Add(each - limit); d.now.Before(allowed) {
		return allowed
	}
	return time.Time{}
}

// budgetOfFailures returns when the budget allows to issue after failures that somebody does not want to wait after;
// zero for now. Failures are not in the budget, because no certificate says so: a full budget in a row is free.
func (d *decision) budgetOfFailures() time.Time {
	allowed := d.crt.Status.LastFailureTime.Add(issuanceCost)
	if d.attempts() < int(burst/issuanceCost) || !d.now.Before(allowed) {
		return time.Time{}
	}
	return allowed
}

// hold returns what to do instead of an issuance that somebody has asked for by hand, as cmctl renew does, and that the
// budget does not allow yet; nil if the issuance may begin, or has begun. A revocation is not held up.
func (d *decision) hold() *Action {
	if r, ok := d.ofRevision(d.nextRevision()); d.revoking != nil || d.keysAreLeft() || ok && !r.Failed() {
		return nil
	}
	issuing := d.issuing()
	until := d.budget(issuing.Reason)
	if d.backoff() > 0 {
		until = when.Latest(until, d.budgetOfFailures())
	}
	switch {
	case until.IsZero():
		return nil
	case d.repairs():
		return &Action{Step: StepRepair}
	}
	a := d.pause(Action{Step: StepRest, Wake: until})
	message := d.tooOften(issuing.Reason, until)
	if issuing.Message != message {
		d.tell(cause.New(cause.IssuedTooOften, "", "", message))
		d.setIssuing(cmmeta.ConditionTrue, issuing.Reason, message)
		a.warn(ReasonOverBudget, message)
	}
	d.waitsUntil(until)
	return &a
}

// charge returns until when the budget is used with the issuance that is under way.
func (d *decision) charge() time.Time {
	reason := ""
	if c := cmp.Or(d.issuing(), d.unsaid); c != nil {
		reason = c.Reason
	}
	each, limit := d.cost(reason)
	from := d.used()
	if from.Before(d.now) {
		from = d.now
	}
	return when.Earliest(from.Add(each), d.now.Add(limit))
}

// overBudget says that, why and for how long the Certificate is not issued again.
func (d *decision) overBudget(why *Violation, until time.Time) Action {
	message := d.tooOften(why.Message, until)
	a := Action{Step: StepRest, Wake: until}
	d.tell(cause.New(cause.IssuedTooOften, "", "", message))
	d.waitsUntil(until)
	if c := d.budgetExceeded(); c == nil || c.Message != message {
		d.setIssuing(cmmeta.ConditionFalse, ReasonOverBudget, message)
		a.warn(ReasonOverBudget, message)
	}
	return a
}

// tooOften says why an issuance has to wait, how long, and what helps.
func (d *decision) tooOften(why string, until time.Time) string {
	rival := "find out what has it renewed again and again"
	if name := d.rival(); name != "" {
		rival = fmt.Sprintf("field manager %q wrote certificate or key last: have it leave the Secret alone, or choose another secretName", name)
	}
	past := "was issued too often within the last hour, and would be again"
	if d.crt.Status.LastFailureTime != nil && until.Equal(d.budgetOfFailures()) {
		past = "has failed too often in a row to be tried again at once"
	}
	return fmt.Sprintf("The certificate in Secret %q %s (%s): %s. It is renewed at %s, or at once when the spec is changed",
		d.crt.Spec.SecretName, past, why, rival, until.UTC().Format(time.RFC3339))
}

// rival returns who else writes to the Secret; empty if nobody is known to.
func (d *decision) rival() string {
	if d.Secret == nil {
		return ""
	}
	return d.Secret.Ownership.Rival
}
