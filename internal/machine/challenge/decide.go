package challenge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/when"
)

const (
	// yieldChecks is how many failed self checks in a row let others have the slot, and are worth telling people about.
	yieldChecks = 3
	// yieldValidation is how long a CA may take to validate before others may have the slot.
	yieldValidation = 30 * time.Second
	// callLimit is longer than any call takes: what waits for one is not started again before.
	callLimit = 2 * time.Minute
	// changingPoll is the time between looks whether the account's key has been replaced.
	changingPoll = time.Second
	// issuerHold keeps a Challenge from being started while its issuer cannot be used.
	issuerHold = time.Hour
	// lingering is how long a valid Challenge keeps its finalizer once it is cleaned up.
	lingering = 10 * time.Second
	// slotSettle is how long a challenge may wait with its slot after its self check has passed.
	slotSettle = 2 * time.Minute
	// selfCheckFailed opens the reason at the solver's SelfCheckDeadline.
	selfCheckFailed = "The self check has failed for "
	// cleanUpFailed opens how a reason ends, with the trouble that clean-up had.
	cleanUpFailed = "clean-up failed: "
)

// decision is one decision in the making.
type decision struct {
	State
	now time.Time
	// next is the status as it is known now.
	next acmev1.ChallengeStatus
}

// Decide says what a Challenge needs now. It is total: every state has exactly one action.
func Decide(s State, now time.Time) Action {
	if s.Challenge == nil {
		return Action{Step: Done}
	}
	d := newDecision(s, now)
	if s.Challenge.Status.State.IsFinal() || s.Challenge.DeletionTimestamp != nil {
		return d.ending()
	}
	if state, f, reason := d.verdict(); state != acmev1.Unknown {
		return d.end(state, f, reason)
	}
	if s.Untrusted != "" {
		return d.end(acmev1.Errored, acmeflow.FailureOf(fault.ClassConfiguration), s.Untrusted)
	}
	if reason := s.Settings.Refuses(s.Challenge); reason != "" {
		return d.end(acmev1.Errored, acmeflow.FailureOf(fault.ClassConfiguration), reason)
	}
	var a Action
	switch {
	case s.Memory.Running != Wait:
		a = d.running()
	case !d.next.Processing && !d.next.Presented:
		a = d.queued()
	default:
		a = d.active()
	}
	if a.Status == nil && d.next.Presented && !s.Challenge.Status.Presented {
		a.Status = d.changed()
	}
	a.Yield = a.Yield && d.next.Processing
	a.Ready = a.Ready && !d.next.Processing
	if a.HoldsUntil = d.holdsUntil(); now.Before(a.HoldsUntil) && !d.next.Processing && !a.Step.External() &&
		(a.Wake.IsZero() || a.HoldsUntil.Before(a.Wake)) {
		a.Wake = a.HoldsUntil
	}
	return a
}

// Start is the status to write when the scheduler starts a Challenge.
func Start(s acmev1.ChallengeStatus) acmev1.ChallengeStatus {
	s.Processing = true
	return s
}

// Park is the status to write when the scheduler parks a Challenge. From then on its state says that it was
// started once: whatever it has presented will be cleaned up. The status also says until when it holds its name, so
// that another process knows; with a zero holdsUntil it does not.
func Park(s acmev1.ChallengeStatus, holdsUntil time.Time) acmev1.ChallengeStatus {
	s.Processing = false
	if !holdsUntil.IsZero() && s.ValidatingSince == nil {
		s.ValidatingSince = new(metav1.NewTime(holdsUntil.Add(-nameHold)))
	}
	if s.State == acmev1.Unknown {
		s.State = acmev1.Pending
	}
	return s
}

// newDecision merges what is stored with what is remembered.
func newDecision(s State, now time.Time) *decision {
	d := &decision{State: s, now: now, next: *s.Challenge.Status.DeepCopy()}
	if !s.Memory.Presented.IsZero() && !d.next.Presented && !d.next.State.IsFinal() { // a final one was cleaned up since
		at := metav1.NewTime(s.Memory.Presented)
		d.next.Presented, d.next.PresentedAt = true, &at
		d.next.Reason, d.next.ReasonEnd, d.next.FailureClass, d.next.ProblemType = "", "", "", ""
	}
	if d.next.State == acmev1.Unknown && (s.Memory.Authorization != nil || d.next.Presented) {
		d.next.State = acmev1.Pending
	}
	return d
}

// status is the one to write with the given failure and reason, or nil if it is stored already. There is no failure
// while nothing has failed.
func (d *decision) status(f acmeflow.Failure, reason string) *acmev1.ChallengeStatus {
	d.next.FailureClass, d.next.ProblemType = f.ShownClass(), f.ProblemType()
	d.next.Reason, d.next.ReasonEnd = acmeflow.WithEnd(reason, f.End), f.End
	return d.changed()
}

// changed is the status to write with the class and the reason that it has, or nil if it is stored already. A class
// or a problem type alone is not worth a write: it comes with the next words.
func (d *decision) changed() *acmev1.ChallengeStatus {
	stored := d.Challenge.Status
	stored.FailureClass, stored.ProblemType, stored.ReasonEnd = d.next.FailureClass, d.next.ProblemType, d.next.ReasonEnd
	if cmmeta.Equal(d.next, stored) {
		return nil
	}
	return d.next.DeepCopy()
}

// verdict is the final state that the CA's answers amount to, with the failure and its reason; the state is empty if
// there is none yet.
func (d *decision) verdict() (acmev1.State, acmeflow.Failure, string) {
	m := d.Memory
	if m.Failed == Fetch && !m.Failure.MayPass() {
		if acmeflow.IsGone(m.Failure) {
			return acmev1.Expired, acmeflow.Failure{Class: fault.ClassValidation, Code: acmeflow.CodeOf(m.Failure)}, "The ACME server no longer knows the authorization: " + m.Failure.Error()
		}
		return acmev1.Errored, acmeflow.Failure{Class: fault.ClassRefused, Code: acmeflow.CodeOf(m.Failure)}, "Failed to retrieve authorization: " + m.Failure.Error()
	}
	if m.Authorization == nil {
		return d.givenUp()
	}
	mine, offered := d.remoteChallenge()
	switch m.Authorization.Status {
	case acme.StatusValid:
		reason := "Successfully authorized domain"
		if m.Warning != "" {
			reason += ", but " + m.Warning
		}
		return acmev1.Valid, acmeflow.FailureOf(""), reason
	case acme.StatusInvalid:
		return acmev1.Invalid, acmeflow.Failure{Class: acme.ClassOfInvalid(mine.Error), Code: mine.Error.Cause()}, "Error accepting authorization: " + cmp.Or(acmeflow.TextOf(mine.Error), "the ACME server shows it as invalid and gives no reason")
	case acme.StatusExpired:
		return acmev1.Expired, acmeflow.FailureOf(fault.ClassValidation), "The authorization has expired at the ACME server"
	case acme.StatusDeactivated, acme.StatusRevoked:
		return acmev1.Errored, acmeflow.FailureOf(fault.ClassRefused), "The authorization was " + string(m.Authorization.Status) + " at the ACME server"
	default: // pending, or no word of RFC 8555
	}
	switch {
	case !offered:
		return acmev1.Errored, acmeflow.FailureOf(fault.ClassRefused), "The ACME server no longer offers this challenge"
	case mine.Status == acme.StatusInvalid:
		return acmev1.Invalid, acmeflow.Failure{Class: acme.ClassOfInvalid(mine.Error), Code: mine.Error.Cause()}, "Error accepting authorization: " + cmp.Or(acmeflow.TextOf(mine.Error), "the ACME server shows the challenge as invalid and gives no reason")
	case m.Refusal != nil && mine.Status == acme.StatusPending:
		return acmev1.Errored, acmeflow.Failure{Class: fault.ClassRefused, Code: acmeflow.CodeOf(m.Refusal)}, "Error accepting challenge: " + m.Refusal.Error()
	case d.overdue():
		return acmev1.Expired, acmeflow.FailureOf(fault.ClassValidation), "The authorization expired before it was validated"
	}
	return d.givenUp()
}

// remoteChallenge is this Challenge as the CA last showed it.
func (d *decision) remoteChallenge() (acme.Challenge, bool) {
	return d.Memory.remoteChallenge(d.Challenge.Spec.URL)
}

// remoteChallenge is a challenge as the CA last showed it.
func (m Memory) remoteChallenge(url string) (acme.Challenge, bool) {
	if m.Authorization == nil {
		return acme.Challenge{}, false
	}
	for _, c := range m.Authorization.Challenges {
		if c.URL == url {
			return c, true
		}
	}
	return acme.Challenge{}, false
}

// end writes a final state, and frees the slot with the same write (mission rule 6).
func (d *decision) end(state acmev1.State, f acmeflow.Failure, reason string) Action {
	if state == acmev1.Errored {
		d.notePresented()
	}
	d.next.State, d.next.Processing = state, false
	a := Action{Status: d.status(f, reason)}
	spec := d.Challenge.Spec
	switch {
	case state != acmev1.Valid:
		a.Event = &acmeflow.Event{Warning: true, Reason: acmev1.ChallengeReasonFailed, Message: reason}
	case d.next.Presented:
		a.Event = &acmeflow.Event{
			Reason:  acmev1.ChallengeReasonDomainVerified,
			Message: fmt.Sprintf("Domain %q verified with %q validation", spec.DNSName, spec.Type),
		}
	}
	return a
}

// running waits for a call to come back; when that takes long, others may have the slot: a silent CA must not hold it.
func (d *decision) running() Action {
	m := d.Memory
	patience := m.Since.Add(d.Settings.YieldAfter)
	a := Action{NotBefore: m.Since.Add(callLimit)}
	switch {
	case m.Running == Check && m.Checks >= yieldChecks, !d.now.Before(patience):
		a.Yield = true
	default:
		a.Wake = patience
	}
	return a
}

// queued waits for the scheduler (mission rule 2). One that has given up its slot says when it wants another.
func (d *decision) queued() Action {
	var a Action
	if d.Memory.Failure != nil {
		a.NotBefore = d.retryAt()
	}
	if until := d.Account.ParkedUntil; until.After(a.NotBefore) && d.now.Before(until) {
		a.NotBefore = until
	}
	if _, blocked := d.Issuer.Blocks(d.Challenge.Spec.IssuerRef.Name); blocked {
		a.NotBefore = d.now.Add(issuerHold) // its change is an event
	}
	return a
}

// active takes the next step of a Challenge that was started. A parked one only
// looks: it does not change anything before it has a slot again.
func (d *decision) active() Action {
	if reason, ok := d.Issuer.Blocks(d.Challenge.Spec.IssuerRef.Name); ok {
		if reason == "" {
			return Action{}
		}
		return Action{Status: d.status(acmeflow.FailureOf(fault.ClassConfiguration), reason), Yield: true}
	}
	if d.Memory.Failure != nil && d.blocksLater(d.Memory.Failed) {
		if wake := d.retryAt(); d.now.Before(wake) {
			return d.backOff(wake)
		}
	}
	mine, _ := d.remoteChallenge()
	started := mine.Status == acme.StatusProcessing || mine.Status == acme.StatusValid
	switch {
	case d.next.Processing && !d.hasFinalizer():
		return Action{Step: AddFinalizer}
	case !d.Memory.Accepted.IsZero() || started:
		return d.poll()
	case d.Memory.Authorization == nil || !d.now.Before(d.refetch()):
		return d.callCA(Fetch)
	case acmeflow.Outdated(d.Challenge.Spec, d.Account.Thumbprint):
		return Action{Wake: d.refetch(), Yield: true} // its Order deletes it
	case !d.next.Presented:
		return Action{Step: Present}
	default:
		return d.check()
	}
}

// blocksLater reports whether a failed step keeps later ones waiting. Presenting again what is presented does not.
func (d *decision) blocksLater(step Step) bool {
	return step != Present || !d.next.Presented
}

// backOff waits until the failed step may be tried again.
func (d *decision) backOff(wake time.Time) Action {
	m := d.Memory
	a := Action{Wake: wake, NotBefore: wake, Yield: wake.Sub(d.now) >= d.Settings.YieldAfter || m.Failures > 1}
	if m.Failure.Class == fault.ClassNotProcessed {
		return a
	}
	prefix := map[Step]string{
		Present: "Error presenting challenge: ",
		Accept:  "Error accepting challenge: ",
		Fetch:   "Failed to retrieve authorization: ",
	}[m.Failed]
	why := acmeflow.FailureOfCall(m.Failure)
	why.End = acmeflow.Retrying(m.Failure, wake)
	a.Status = d.status(why, prefix+m.Failure.Error())
	if a.Status != nil && m.Failed == Present {
		a.Event = &acmeflow.Event{Warning: true, Reason: acmev1.ChallengeReasonPresentError, Message: prefix + m.Failure.Error()}
	}
	return a
}

// callCA calls the CA, unless the account is parked.
func (d *decision) callCA(step Step) Action {
	if until := d.Account.ParkedUntil; d.now.Before(until) {
		a := Action{Wake: until, NotBefore: until, Yield: true}
		if until.Sub(d.now) > acmeflow.ShortPark {
			a.Status = d.status(acmeflow.FailureOf(fault.ClassRateLimited), d.Account.WhyParked())
		}
		return a
	}
	if step == Accept && d.Account.Changing {
		return Action{Wake: d.now.Add(changingPoll)}
	}
	return Action{Step: step}
}

// poll reads the authorization at the CA's pace, after the CA was told to validate.
func (d *decision) poll() Action {
	m := d.Memory
	wake := m.Accepted.Add(acmeflow.PollDelay(0, 0))
	if m.Authorization != nil {
		wake = m.FetchedAt.Add(acmeflow.PollDelay(max(m.Polls, 1), m.Authorization.RetryAfter))
	}
	mine, _ := d.remoteChallenge()
	forgotten := mine.Status == acme.StatusPending && m.Polls >= acmeflow.LongPolls // RFC 8555 §8.2: tell it again
	switch {
	case forgotten && d.next.Processing:
		return d.callCA(Accept)
	case !d.now.Before(wake):
		return d.callCA(Fetch)
	}
	a := Action{Wake: wake, Yield: d.now.Sub(m.Told) >= yieldValidation, Ready: forgotten}
	// RFC 8555 §8.2: it tries again by itself. Some CAs leave the challenge pending then.
	if mine.Error != nil && (mine.Status == acme.StatusProcessing || mine.Status == acme.StatusPending) {
		a.Status = d.status(acmeflow.Failure{Class: fault.ClassValidation, Code: mine.Error.Cause()}, "The ACME server has not validated the answer yet, and is trying again: "+mine.Error.Error())
	}
	return a
}

// check waits until the answer can be seen, then has the CA validate.
func (d *decision) check() Action {
	m := d.Memory
	if wait := d.Challenge.Spec.Solver.WaitInsteadOfSelfCheck; wait != nil {
		ready := d.now
		if at := d.next.PresentedAt; at != nil {
			ready = at.Add(wait.Duration)
		}
		if d.now.Before(ready) {
			reason := fmt.Sprintf("Waiting %s before accepting %s challenge without self-check", wait.Duration, d.Challenge.Spec.Type)
			return Action{
				Status: d.status(acmeflow.FailureOf(""), reason), Wake: ready, NotBefore: ready,
				Yield: ready.Sub(d.now) >= d.Settings.YieldAfter,
			}
		}
		return d.accept()
	}
	if !m.Passed.IsZero() {
		return d.passed()
	}
	a := Action{Yield: m.Checks >= yieldChecks, Ready: !d.now.Before(d.representAt(false))}
	if m.Checks == 0 {
		a.Step = Check
		return a
	}
	end, limited := d.deadline()
	if limited && !d.now.Before(end) {
		return d.pastDeadline()
	}
	if m.Checks >= yieldChecks {
		why := acmeflow.Failure{Class: fault.ClassSelfCheck, End: fmt.Sprintf("retried every %s", d.Settings.CheckPeriod)}
		if limited {
			why.End += " until " + acmeflow.Instant(end)
		}
		a.Status = d.status(why, fmt.Sprintf("Waiting for %s challenge propagation: %s", d.Challenge.Spec.Type, m.NotYet))
	}
	wake := m.CheckedAt.Add(CheckDelay(m.Checks, d.Settings.CheckPeriod))
	if limited {
		wake = when.Earliest(wake, end)
	}
	switch {
	case d.now.Before(wake):
		a.Wake = when.Earliest(wake, d.refetch())
	case d.next.Processing && !d.now.Before(d.representAt(true)):
		a.Step = Present
	default:
		a.Step = Check
	}
	return a
}

// warned says what the self check has warned of when the CA is told to validate; it holds nothing up.
func (d *decision) warned(a Action) Action {
	if d.Memory.Warning == "" || a.Step != Accept {
		return a
	}
	reason := "The self check has passed, but " + d.Memory.Warning
	if a.Status = d.status(acmeflow.FailureOf(""), reason); a.Status != nil {
		a.Event = &acmeflow.Event{Warning: true, Reason: acmev1.ChallengeReasonRecordExpires, Message: reason}
	}
	return a
}

// accept tells the CA to validate; a parked Challenge needs a slot for that.
func (d *decision) accept() Action {
	if !d.next.Processing {
		a := Action{Ready: true}
		if d.now.Before(d.Account.ParkedUntil) {
			a.NotBefore = d.Account.ParkedUntil
		}
		return a
	}
	return d.callCA(Accept)
}

// representAt is when to present again what a self check keeps missing. A parked Challenge wants a slot for that; each
// time it waits about twice as long, so that Challenges that never pass want few.
func (d *decision) representAt(slot bool) time.Time {
	last, wait := d.Memory.PresentTried, d.Settings.RepresentAfter
	if first := d.next.PresentedAt; first != nil && last.IsZero() {
		last = first.Time
	} else if first != nil && !slot {
		wait += max(0, last.Sub(first.Time))
	}
	return last.Add(wait)
}

// refetch is when the authorization is to be read again.
func (d *decision) refetch() time.Time {
	if d.Memory.Authorization == nil {
		return d.now
	}
	return d.Settings.LookAgain(d.Memory.FetchedAt, d.Memory.Authorization.Expires)
}

// overdue reports whether the CA shows the authorization as pending long after its expiry.
func (d *decision) overdue() bool {
	expires := d.Memory.Authorization.Expires
	return !expires.IsZero() && !d.Memory.FetchedAt.Before(expires.Add(acmeflow.ExpiryGrace))
}

// retryAt is when the failed step may be tried again.
func (d *decision) retryAt() time.Time {
	m, f := d.Memory, *d.Memory.Failure
	switch m.Failed {
	case Accept:
		m.Failures = max(m.Failures, m.Unaccepted)
	case Present, CleanUp:
		f.Class = fault.ClassSolver // whatever the provider says of itself, the CA is not asked
	default: // the failure is that of the CA, and so is the back-off
	}
	m.Failure = &f
	return m.RetryAt()
}

func (d *decision) hasFinalizer() bool {
	return slices.Equal(acmeflow.OurFinalizers(d.Challenge), []string{acmev1.ChallengeFinalizer})
}
