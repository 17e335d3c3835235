package acmeflow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

const (
	// causePatience is how old an Order is before it says what its Challenges wait for: an issuance that takes its
	// course costs no such write. It is shorter than the patience of the Certificate (internal/machine/certificate), so
	// that the Certificate is written once.
	causePatience = 5 * time.Second
	// causeAgain is how often an Order says in other words what has the same class.
	causeAgain = 10 * time.Minute
)

// causes ranks the classes that a Challenge may wait with: first those that a person has to mend.
func causes() []fault.Class {
	return []fault.Class{
		fault.ClassConfiguration, fault.ClassCredential, fault.ClassSolver, fault.ClassPermanent, fault.ClassRefused, fault.ClassPaused,
		fault.ClassValidation, fault.ClassRateLimited, fault.ClassUnavailable, fault.ClassSelfCheck,
	}
}

// passOn says what the Challenges wait for, so that the request and the Certificate say it too. The cause is written
// when its class changes, and in other words after causeAgain at the earliest. A cause that is over is cleared by the
// next write.
func (d *orderDecision) passOn() OrderAction {
	m, until := d.Memory, d.expiry()
	cause := FirstCause(d.Challenges)
	if cause == nil {
		if m.Cause {
			return OrderAction{Status: d.changed(), Cause: true, Wake: until}
		}
		return d.wait(of(""), "", until)
	}
	class := fault.Class(cause.Status.FailureClass)
	due := d.Order.CreationTimestamp.Add(causePatience)
	if d.next.FailureClass == of(class).shown() {
		last := m.Began
		if m.WroteAt.After(last) {
			last = m.WroteAt
		}
		due = last.Add(causeAgain)
	}
	if d.now.Before(due) {
		return OrderAction{Status: d.changed(), Cause: m.Cause, Wake: earliest(until, due)}
	}
	words := fmt.Sprintf("Challenge %s for domain %q (%s) waits: %s",
		cause.Name, cause.Spec.DNSName, cause.Spec.Type, cause.Status.Reason)
	return OrderAction{Status: d.status(failed{class, acme.CodeOf(cause.Status.ProblemType)}, words), Cause: true, Wake: earliest(until, d.now.Add(causeAgain))}
}

// FirstCause is the Challenge whose failure its Order reports while it waits; nil if no Challenge has one.
func FirstCause(challenges []*acmev1.Challenge) *acmev1.Challenge {
	rank := func(c *acmev1.Challenge) int {
		return slices.Index(causes(), fault.Class(c.Status.FailureClass))
	}
	var first *acmev1.Challenge
	for _, c := range challenges {
		if c.Status.State.IsFinal() || c.DeletionTimestamp != nil || rank(c) < 0 {
			continue
		}
		if first == nil || rank(c) < rank(first) || rank(c) == rank(first) && strings.Compare(c.Name, first.Name) < 0 {
			first = c
		}
	}
	return first
}
