package challenge

import (
	"fmt"
	"slices"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/when"
)

const (
	// nameHold is how long a Challenge that has given its slot to others holds its name while the CA validates.
	nameHold = 10 * time.Minute
	// shortSettle is the longest wait after a self check that is not written to the status.
	shortSettle = 2 * time.Second
)

// NameHeldUntil is until when a Challenge holds its name, by its stored status; zero if it does not.
func NameHeldUntil(s acmev1.ChallengeStatus) time.Time {
	if s.ValidatingSince == nil {
		return time.Time{}
	}
	return s.ValidatingSince.Add(nameHold)
}

// holdsUntil is until when nobody else may start for the name, since the CA may be validating (mission rule 3); zero if
// it cannot be.
func (d *decision) holdsUntil() time.Time {
	stored, told := NameHeldUntil(d.next), d.Memory.Told
	if stored.IsZero() && !told.IsZero() {
		return told.Add(nameHold)
	}
	return stored
}

// givenUp ends a Challenge that has given its slot to others while the CA validates, once it must not hold its name any
// longer. Its Order deactivates the authorization.
func (d *decision) givenUp() (acmev1.State, acmeflow.Failure, string) {
	if until := d.holdsUntil(); d.next.Processing || until.IsZero() || d.now.Before(until) {
		return acmev1.Unknown, acmeflow.FailureOf(""), ""
	}
	return acmev1.Errored, acmeflow.FailureOf(fault.ClassUnavailable), fmt.Sprintf("The ACME server was told to validate, has given no result within %s, "+
		"and other Challenges wait: the authorization is given up", nameHold)
}

// passed waits out the settle time, in the slot if that is short, then asks the CA to validate.
func (d *decision) passed() Action {
	m, place := d.Memory, "name"
	if m.Zone != "" {
		place = "zone"
	}
	wait, why := m.SettleTime, "since its last check of this "+place+" failed though ours had passed"
	if own := d.Challenge.Spec.Solver.SettleTime; own != nil && own.Duration >= wait {
		wait, why = own.Duration, "after a settle time of "+own.Duration.String()
	}
	until := m.Passed.Add(wait)
	if !d.now.Before(until) {
		return d.warned(d.accept())
	}
	a := Action{Wake: when.Earliest(until, d.refetch()), NotBefore: until, Yield: until.Sub(d.now) > slotSettle}
	if wait > shortSettle {
		a.Status = d.status(acmeflow.FailureOf(""), fmt.Sprintf("The self check has passed; the ACME server is told at %s, %s", acmeflow.Instant(until), why))
	}
	return a
}

// deadline is when the self check has failed for long enough, if the solver sets a limit. It
// counts from what is stored, so that it holds over restarts.
func (d *decision) deadline() (time.Time, bool) {
	limit := d.Challenge.Spec.Solver.SelfCheckDeadline
	if limit == nil {
		return time.Time{}, false
	}
	since := d.Challenge.CreationTimestamp.Time
	if at := d.next.PresentedAt; at != nil {
		since = at.Time
	}
	return since.Add(limit.After.Duration), true
}

// pastDeadline does what the solver asks for when the self check has failed for so long.
func (d *decision) pastDeadline() Action {
	limit, saw := d.Challenge.Spec.Solver.SelfCheckDeadline, d.Memory.NotYet
	if limit.Then == acmev1.SelfCheckDeadlineFail {
		return d.end(acmev1.Errored, acmeflow.FailureOf(fault.ClassValidation), fmt.Sprintf("%s%s: %s", selfCheckFailed, limit.After.Duration, saw))
	}
	a := d.accept()
	if a.Step != Accept {
		return a
	}
	reason := fmt.Sprintf("%s%s; the ACME server is told all the same: %s", selfCheckFailed, limit.After.Duration, saw)
	if a.Status = d.status(acmeflow.FailureOf(fault.ClassSelfCheck), reason); a.Status != nil {
		a.Event = &acmeflow.Event{Warning: true, Reason: acmev1.ChallengeReasonSelfCheckDeadline, Message: reason}
	}
	return a
}

// CheckDelay is how long to wait after the given number of failed self checks in
// a row: ¼ s, doubling, settling at the period.
func CheckDelay(failures int, period time.Duration) time.Duration {
	return min(fault.SelfChecks.With("").Step(failures), period)
}

// ContradictsSelfCheck reports whether a Challenge has ended as invalid because the CA did not find what the self check
// had found. Other problems, such as a CAA record, have nothing to do with how soon an answer is seen (RFC 8555 §6.7).
func (m Memory) ContradictsSelfCheck(c *acmev1.Challenge) bool {
	if m.Passed.IsZero() || c.Status.State != acmev1.Invalid {
		return false
	}
	mine, _ := m.remoteChallenge(c.Spec.URL)
	return slices.Contains([]acme.Code{
		"", acme.CodeUnauthorized, acme.CodeIncorrectResponse, acme.CodeDNS, acme.CodeConnection, acme.CodeTLS,
	}, mine.Error.Cause())
}
