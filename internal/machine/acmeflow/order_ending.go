package acmeflow

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
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
func (d *orderDecision) fail(state acmev1.State, f failed, reason string) OrderAction {
	d.next.State, d.next.FailureTime = state, new(metav1.NewTime(d.now.Truncate(time.Second)))
	a := OrderAction{Status: d.status(f, reason)}
	if d.Memory.Running == OrderWait {
		if tidying, ok := d.deactivate(); ok {
			a.Step, a.URLs, a.Wake = tidying.Step, tidying.URLs, tidying.Wake
		}
	}
	return a
}

// pendingAuthorizations are the addresses of authorizations that the CA may still hold open for this order.
func (d *orderDecision) pendingAuthorizations() []string {
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
func (d *orderDecision) afterFailed() OrderAction {
	if open := d.undeleted(func(c *acmev1.Challenge) bool { return !c.Status.State.IsFinal() }); len(open) > 0 {
		return OrderAction{Step: OrderDeleteChallenges, Delete: open}
	}
	if d.Memory.Running != OrderWait {
		return OrderAction{}
	}
	if a, ok := d.deactivate(); ok {
		return a
	}
	if failed := d.Order.Status.FailureTime; failed != nil && d.Memory.Deactivated && d.now.Before(failed.Add(deactivationWindow)) {
		return OrderAction{Wake: failed.Add(deactivationWindow)} // until then, remember that it was done
	}
	return OrderAction{Step: OrderDone}
}

// deactivate gives up what a failed order leaves pending at the CA (RFC 8555 §7.5.2). The process that wrote the
// failure may have died since, or may have been waiting for another call: the deactivation is repeated until it is
// known to be done.
func (d *orderDecision) deactivate() (OrderAction, bool) {
	m, failed := d.Memory, d.next.FailureTime
	if m.Deactivated || failed == nil || d.Issuer.Readiness == IssuerMissing {
		return OrderAction{}, false
	}
	urls, end := d.pendingAuthorizations(), failed.Add(deactivationWindow)
	if len(urls) == 0 || !d.now.Before(end) {
		return OrderAction{}, false
	}
	wake := d.Account.ParkedUntil
	if m.Failed == OrderDeactivate && wake.Before(d.retryAt()) {
		wake = d.retryAt()
	}
	if next := d.now.Add(startingPause); d.Account.URL == "" && wake.Before(next) {
		wake = next
	}
	if d.now.Before(wake) {
		return OrderAction{Wake: when.Earliest(wake, end)}, true
	}
	return OrderAction{Step: OrderDeactivate, URLs: urls}, true
}

// afterValid deletes the Challenges of an order whose certificate is stored (spec §5.3 g).
func (d *orderDecision) afterValid() OrderAction {
	if owned := d.undeleted(func(*acmev1.Challenge) bool { return true }); len(owned) > 0 {
		return OrderAction{Step: OrderDeleteChallenges, Delete: owned}
	}
	return OrderAction{Step: OrderDone}
}

// complete stores the certificate.
func (d *orderDecision) complete() OrderAction {
	if len(d.next.Certificate) == 0 {
		d.next.Certificate = d.Memory.Chain
	}
	d.next.State, d.next.FailureTime = acmev1.Valid, nil
	return OrderAction{
		Status: d.status(of(""), ""),
		Event:  &Event{Reason: acmev1.OrderReasonComplete, Message: "Order completed successfully"},
	}
}

// failedChallenge is the owned Challenge that decides the order's failure, if any. A Challenge that has ended because
// it was untrusted, and still is, does not decide: another one takes its place.
func (d *orderDecision) failedChallenge() *acmev1.Challenge {
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
func (d *orderDecision) settleFailed(c *acmev1.Challenge) OrderAction {
	why := about(c)
	why.class = challengeClass(c.Status)
	return d.fail(c.Status.State, why, fmt.Sprintf("Challenge %s for domain %q (%s) is %s: %s",
		c.Name, c.Spec.DNSName, c.Spec.Type, c.Status.State, cmp.Or(c.Status.Reason, "no reason was given")))
}
