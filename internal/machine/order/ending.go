package order

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/selection"
	"chancery.dev/internal/when"
)

const (
	// maxDeactivations bounds how often the deactivation of what a failed order leaves pending is tried, and
	// deactivationWindow is for how long after the failure. A new process leaves older failures alone.
	maxDeactivations   = 3
	deactivationWindow = 10 * time.Minute
	// startingPause is how soon a failed Order looks again whether its issuer has an account that can be used:
	// events of issuers are for Orders that have not ended.
	startingPause = 2 * time.Second
)

// fail ends the order, and deactivates what it leaves pending at the CA.
func (d *decision) fail(state acmev1.State, f acmeflow.Failure, reason string) Action {
	d.next.State, d.next.FailureTime = state, new(metav1.NewTime(d.now.Truncate(time.Second)))
	a := Action{Status: d.status(f, reason)}
	if d.Memory.Running == Wait {
		if tidying, ok := d.deactivate(); ok {
			a.Step, a.URLs, a.Wake = tidying.Step, tidying.URLs, tidying.Wake
		}
	}
	return a
}

// pendingAuthorizations are the addresses of authorizations that the CA may still hold open for this order.
func (d *decision) pendingAuthorizations() []string {
	ended := map[string]bool{}
	for _, c := range d.Challenges {
		if c.Status.State == acmev1.Valid || c.Status.State == acmev1.Invalid {
			ended[c.Spec.AuthorizationURL] = true
		}
	}
	var urls []string
	for _, a := range d.next.Authorizations {
		open := a.InitialState == acmev1.Unknown || a.InitialState == acmev1.Pending
		if open && !ended[a.URL] {
			urls = append(urls, a.URL)
		}
	}
	return urls
}

// afterFailed tidies up behind an order that has failed: what is pending at the CA is deactivated, Challenges that have
// not ended are deleted, the failed ones stay for people to look at.
func (d *decision) afterFailed() Action {
	if open := d.undeleted(func(c *acmev1.Challenge) bool { return !c.Status.State.IsFinal() }); len(open) > 0 {
		return Action{Step: DeleteChallenges, Delete: open}
	}
	if d.Memory.Running != Wait {
		return Action{}
	}
	if a, ok := d.deactivate(); ok {
		return a
	}
	if failed := d.Order.Status.FailureTime; failed != nil && d.Memory.Deactivated && d.now.Before(failed.Add(deactivationWindow)) {
		return Action{Wake: failed.Add(deactivationWindow)} // until then, remember that it was done
	}
	return Action{Step: Done}
}

// deactivate gives up what a failed order leaves pending at the CA (RFC 8555 §7.5.2). The process that wrote the
// failure may have died since, or may have been waiting for another call: the deactivation is repeated until it is
// known to be done.
func (d *decision) deactivate() (Action, bool) {
	m, failed := d.Memory, d.next.FailureTime
	if m.Deactivated || failed == nil || d.Issuer.Readiness == acmeflow.IssuerMissing {
		return Action{}, false
	}
	urls, end := d.pendingAuthorizations(), failed.Add(deactivationWindow)
	if len(urls) == 0 || !d.now.Before(end) {
		return Action{}, false
	}
	wake := d.Account.ParkedUntil
	if m.Failed == Deactivate && wake.Before(d.retryAt()) {
		wake = d.retryAt()
	}
	if next := d.now.Add(startingPause); d.Account.URL == "" && wake.Before(next) {
		wake = next
	}
	if d.now.Before(wake) {
		return Action{Wake: when.Earliest(wake, end)}, true
	}
	return Action{Step: Deactivate, URLs: urls}, true
}

// afterValid deletes the Challenges of an order whose certificate is stored (spec §5.3 g).
func (d *decision) afterValid() Action {
	if owned := d.undeleted(func(*acmev1.Challenge) bool { return true }); len(owned) > 0 {
		return Action{Step: DeleteChallenges, Delete: owned}
	}
	return Action{Step: Done}
}

// complete stores the certificate.
func (d *decision) complete() Action {
	if len(d.next.Certificate) == 0 {
		d.next.Certificate = d.Memory.Chain
	}
	d.next.State, d.next.FailureTime = acmev1.Valid, nil
	return Action{
		Status: d.status(acmeflow.FailureOf(""), ""),
		Event:  &acmeflow.Event{Reason: acmev1.OrderReasonComplete, Message: "Order completed successfully"},
	}
}

// failedChallenge is the owned Challenge that decides the order's failure, if any. A Challenge that has ended because
// it was untrusted, and still is, does not decide: another one takes its place.
func (d *decision) failedChallenge() *acmev1.Challenge {
	rank := map[acmev1.State]int{acmev1.Expired: 1, acmev1.Errored: 2, acmev1.Invalid: 3}
	var worst *acmev1.Challenge
	untrusted := d.untrusted()
	for _, c := range d.Challenges {
		r := rank[c.Status.State]
		if r == 0 || c.Status.State == acmev1.Errored && untrusted(c) || (worst != nil && r <= rank[worst.Status.State]) {
			continue
		}
		worst = c
	}
	return worst
}

// settleFailed ends the order because one of its Challenges has failed.
func (d *decision) settleFailed(c *acmev1.Challenge) Action {
	why := about(c)
	why.Class = challengeClass(c.Status)
	return d.fail(c.Status.State, why, fmt.Sprintf("Challenge %s for domain %q (%s) is %s: %s",
		c.Name, c.Spec.DNSName, c.Spec.Type, c.Status.State, cmp.Or(c.Status.Reason, "no reason was given")))
}

// untrusted returns whether a Challenge is not to be solved for this Order, as it is known now.
func (d *decision) untrusted() func(*acmev1.Challenge) bool {
	authorizations := make(map[string]acmev1.ACMEAuthorization, len(d.next.Authorizations))
	for _, a := range d.next.Authorizations {
		authorizations[a.URL] = a
	}
	solvers := selection.For(d.Order.Labels, d.Issuer.Solvers)
	return func(c *acmev1.Challenge) bool {
		return acmeflow.UntrustedFor(d.Order, authorizations[c.Spec.AuthorizationURL], d.Issuer, solvers, c) != ""
	}
}

// Class is the class of the failure that ended an Order, which decides when to order anew; empty while the Order
// has not failed. It is read from the Order, so it is the same after a restart.
func Class(s acmev1.OrderStatus) fault.Class {
	return finalClass(s.State, s.FailureClass, s.Reason)
}

// Problem is the CA's problem behind the failure that has ended an Order, or that its status shows; empty if there
// is none.
func Problem(s acmev1.OrderStatus) acme.Code {
	if s.FailureClass == "" && s.State.IsFailure() { // another controller has left it
		return codeIn(s.Reason)
	}
	return acme.CodeOf(s.ProblemType)
}

// challengeClass is that of a Challenge.
func challengeClass(s acmev1.ChallengeStatus) fault.Class {
	return finalClass(s.State, s.FailureClass, s.Reason)
}

func finalClass(state acmev1.State, class acmev1.FailureClass, reason string) fault.Class {
	switch {
	case !state.IsFailure():
		return ""
	case class != "":
		return fault.Class(class)
	default:
		return leftClass(state, reason)
	}
}
