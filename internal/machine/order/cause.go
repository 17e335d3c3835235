package order

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/when"
)

const (
	// causePause is the shortest time between two writes of an Order that tell of causes: causes may come and go as
	// often as strangers want, and each is written to the request and the Certificate too.
	causePause = 20 * time.Second
	// causeAgain is how often an Order tells of the same cause in other words.
	causeAgain = 10 * time.Minute
)

// causes ranks the classes that a Challenge may wait with: first those that a person has to mend.
func causes() []fault.Class {
	return []fault.Class{
		fault.ClassConfiguration, fault.ClassCredential, fault.ClassSolver, fault.ClassPermanent, fault.ClassRefused, fault.ClassPaused,
		fault.ClassValidation, fault.ClassRateLimited, fault.ClassUnavailable, fault.ClassSelfCheck,
	}
}

// passOn says what the Challenges wait for, so that the request and the Certificate say it too. A cause is written at
// once if it is another one, by its class, problem type and subject, but not soon after the last one; and in other
// words after causeAgain at the earliest. A cause that is gone is cleared by the next write.
func (d *decision) passOn() Action {
	m, until := d.Memory, d.expiry()
	first := FirstCause(d.Challenges, d.next.Cause)
	if first == nil {
		if m.Cause {
			return Action{Status: d.changed(), Cause: true, Wake: until}
		}
		return d.wait(acmeflow.FailureOf(""), "", until)
	}
	why := about(first)
	last := m.Began
	if m.WroteAt.After(last) {
		last = m.WroteAt
	}
	var due time.Time
	switch told := d.next.Cause; {
	case why.Cause("").SameAs(told):
		due = last.Add(causeAgain)
	case told != nil:
		due = last.Add(causePause)
	}
	if d.now.Before(due) {
		return Action{Status: d.changed(), Cause: m.Cause, Wake: when.Earliest(until, due)}
	}
	words := fmt.Sprintf("Challenge %s for domain %q (%s) waits: %s", first.Name, first.Spec.DNSName, first.Spec.Type, first.Status.Reason)
	return Action{Status: d.status(why, words), Cause: true, Wake: when.Earliest(until, d.now.Add(causeAgain))}
}

// about is the failure of a Challenge.
func about(c *acmev1.Challenge) acmeflow.Failure {
	return acmeflow.Failure{
		Class: fault.Class(c.Status.FailureClass), Code: acme.CodeOf(c.Status.ProblemType),
		Subject: displayed(c.Spec.DNSName, c.Spec.Wildcard), Said: acmeflow.Said(c.Status.Reason, c.Status.ReasonEnd),
	}
}

// FirstCause is the Challenge whose failure a waiting Order reports: the worst one; of two equally bad ones, the one
// that the Order has reported already, or else the first by name. It is nil if no Challenge has a failure.
func FirstCause(challenges []*acmev1.Challenge, told *cmmeta.Cause) *acmev1.Challenge {
	failing := slices.DeleteFunc(slices.Clone(challenges), func(c *acmev1.Challenge) bool {
		return c.Status.State.IsFinal() || c.DeletionTimestamp != nil || !slices.Contains(causes(), fault.Class(c.Status.FailureClass))
	})
	if len(failing) == 0 {
		return nil
	}
	rank := func(c *acmev1.Challenge) int {
		r := 2 * slices.Index(causes(), fault.Class(c.Status.FailureClass))
		if told != nil && about(c).Cause("").SameAs(told) {
			r--
		}
		return r
	}
	return slices.MinFunc(failing, func(a, b *acmev1.Challenge) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
	})
}
