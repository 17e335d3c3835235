package acmeflow

import (
	"fmt"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/when"
)

// nameHold is how long a Challenge that has given its slot to others holds its name while the CA validates.
const nameHold = 10 * time.Minute

// NameHeldUntil is until when a Challenge holds its name, by its stored status; zero if it does not.
func NameHeldUntil(s acmev1.ChallengeStatus) time.Time {
	if s.ValidatingSince == nil {
		return time.Time{}
	}
	return s.ValidatingSince.Add(nameHold)
}

// holdsUntil is until when nobody else may start for the name, since the CA may be validating (mission rule 3); zero if
// it cannot be.
func (d *challengeDecision) holdsUntil() time.Time {
	stored, told := NameHeldUntil(d.next), d.Memory.Told
	if stored.IsZero() && !told.IsZero() {
		return told.Add(nameHold)
	}
	return stored
}

// givenUp ends a Challenge that has given its slot to others while the CA validates, once it must not hold its name any
// longer. Its Order deactivates the authorization.
func (d *challengeDecision) givenUp() (acmev1.State, failed, string) {
	if until := d.holdsUntil(); d.next.Processing || until.IsZero() || d.now.Before(until) {
		return acmev1.Unknown, of(""), ""
	}
	return acmev1.Errored, of(fault.ClassUnavailable), fmt.Sprintf("The ACME server was told to validate, has given no result within %s, "+
		"and other Challenges wait: the authorization is given up", nameHold)
}

// passed waits out the settle time, in the slot if that is short, then asks the CA to validate.
func (d *challengeDecision) passed() ChallengeAction {
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
	a := ChallengeAction{Wake: when.Earliest(until, d.refetch()), NotBefore: until, Yield: until.Sub(d.now) > slotSettle}
	if wait > shortSettle {
		a.Status = d.status(of(""), fmt.Sprintf("The self check has passed; the ACME server is told at %s, %s", instant(until), why))
	}
	return a
}

// deadline is when the self check has failed for long enough, if the solver sets a limit. It
// counts from what is stored, so that it holds over restarts.
func (d *challengeDecision) deadline() (time.Time, bool) {
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
func (d *challengeDecision) pastDeadline() ChallengeAction {
	limit, saw := d.Challenge.Spec.Solver.SelfCheckDeadline, d.Memory.NotYet
	if limit.Then == acmev1.SelfCheckDeadlineFail {
		return d.end(acmev1.Errored, of(fault.ClassValidation), fmt.Sprintf("%s%s: %s", selfCheckFailed, limit.After.Duration, saw))
	}
	a := d.accept()
	if a.Step != ChallengeAccept {
		return a
	}
	reason := fmt.Sprintf("%s%s; the ACME server is told all the same: %s", selfCheckFailed, limit.After.Duration, saw)
	if a.Status = d.status(of(fault.ClassSelfCheck), reason); a.Status != nil {
		a.Event = &Event{Warning: true, Reason: acmev1.ChallengeReasonSelfCheckDeadline, Message: reason}
	}
	return a
}

// instant is a time as reasons give it.
func instant(at time.Time) string { return at.UTC().Truncate(time.Second).Format(time.RFC3339) }
