package challenge

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/when"
)

// ending tidies up behind a Challenge that is final or being deleted.
func (d *decision) ending() Action {
	d.next = Park(d.next, time.Time{})
	if !d.Challenge.Status.Processing {
		d.next.State = d.Challenge.Status.State // a queued one was never started
	}
	m := d.Memory
	switch {
	case len(acmeflow.OurFinalizers(d.Challenge)) == 0:
		return Action{Status: d.changed(), Step: Done}
	case m.Running != Wait:
		// What is under way may present: clean-up comes after it.
		return Action{Status: d.changed()}
	case m.CleanedUp || !d.mayBePresented():
		return d.release()
	case d.Replaced:
		return d.cleanUpLater()
	case m.Failed == CleanUp:
		return d.cleanUpAgain()
	default:
		return Action{Status: d.changed(), Step: CleanUp}
	}
}

// mayBePresented reports whether there may be anything to clean up. A process that died may have presented without
// writing so; for errored, notePresented has written it.
func (d *decision) mayBePresented() bool {
	s := d.Challenge.Status
	switch {
	case d.Challenge.Spec.Type == acmev1.ChallengeTypeDNSPersist01:
		return false // the record is its owner's, and stays
	case s.Presented, d.Memory.Touched:
		return true
	case s.State == acmev1.Errored:
		return false // it was never started, and its solver is not to be called: it may name anybody's server
	default:
		return s.State != acmev1.Valid && (s.Processing || s.State != acmev1.Unknown)
	}
}

// notePresented notes in the status that comes with errored whether there may be anything to clean up. What is known to
// be presented has a time then, also what cert-manager has presented. A guess has none.
func (d *decision) notePresented() {
	switch {
	case d.next.Presented && d.next.PresentedAt == nil:
		d.next.PresentedAt = new(metav1.NewTime(d.now))
	case !d.next.Presented:
		d.next.Presented = d.mayBePresented()
	}
}

// release drops the finalizer. A Challenge that stays says that nothing of it is presented any more. Most Orders delete
// their valid Challenges within seconds: waiting for that saves the write.
func (d *decision) release() Action {
	m := d.Memory
	if d.Challenge.DeletionTimestamp == nil {
		wake := m.CleanUpSince.Add(lingering)
		if m.CleanedUp && d.next.State == acmev1.Valid && d.next.Presented && d.now.Before(wake) {
			return Action{Status: d.changed(), Wake: wake}
		}
		d.next.Presented = d.next.Presented && !d.next.State.IsFailure() && !m.CleanedUp
		d.next.Reason, d.next.ReasonEnd = acmeflow.Said(d.next.Reason, d.next.ReasonEnd), ""
	}
	return Action{Status: d.changed(), Step: RemoveFinalizer}
}

// cleanUpLater waits until the Challenge that answers for the same authorization has ended: the clean-up would take
// away what that one shows. The clean-up is never sent before; after a long wait it is given up.
func (d *decision) cleanUpLater() Action {
	end := d.Challenge.DeletionTimestamp.Add(2 * d.Settings.CleanUpLimit)
	if d.now.Before(end) {
		return Action{Status: d.changed(), Wake: when.Earliest(d.now.Add(d.Settings.CheckPeriod), end)}
	}
	return d.abandon(acmev1.ChallengeReasonCleanUpAbandoned, "another Challenge shows the same value")
}

// abandon gives the clean-up up, and says what may be left behind.
func (d *decision) abandon(reason, why string) Action {
	return Action{
		Status: d.changed(),
		Step:   RemoveFinalizer,
		Event: &acmeflow.Event{
			Warning: true, Reason: reason,
			Message: fmt.Sprintf("Gave up cleaning up; %s may be left behind: %s", d.leftBehind(), why),
		},
	}
}

// cleanUpAgain retries a failed clean-up, for a bounded time: a Challenge must not be stuck for ever. The last try is
// at the end of that time, or when it is no longer held back.
func (d *decision) cleanUpAgain() Action {
	m := d.Memory
	limit := m.CleanUpSince.Add(d.Settings.CleanUpLimit)
	if deleted := d.Challenge.DeletionTimestamp; deleted != nil {
		limit = when.Earliest(limit, deleted.Add(d.Settings.CleanUpLimit))
	}
	// No zone now, none seen by this process, and nothing known to be presented: there is nothing to wait for.
	stored := d.Challenge.Status
	guess := stored.State == acmev1.Errored && stored.PresentedAt == nil && stored.FailureClass != "" // no class: cert-manager's
	nowhere := m.Failure.Reason == fault.ReasonNoZone && !m.Touched && (!stored.Presented || guess)
	switch {
	case nowhere:
		return d.abandon(acmev1.ChallengeReasonCleanUpError, m.Failure.Error())
	case d.NamespaceTerminating, !m.FailedAt.Before(limit): // an alert counts these
		return d.abandon(acmev1.ChallengeReasonCleanUpAbandoned, m.Failure.Error())
	case !d.now.Before(limit):
		return Action{Status: d.changed(), Step: CleanUp}
	}
	if wake := d.retryAt(); d.now.Before(wake) {
		end := cleanUpFailed + m.Failure.Error()
		reason := cmp.Or(acmeflow.Said(d.next.Reason, d.next.ReasonEnd), "Being deleted")
		d.next.Reason, d.next.ReasonEnd = acmeflow.WithEnd(reason, end), end
		a := Action{Status: d.changed(), Wake: when.Earliest(wake, limit)}
		if a.Status != nil {
			a.Event = &acmeflow.Event{
				Warning: true, Reason: acmev1.ChallengeReasonCleanUpError, Message: "Error cleaning up challenge: " + m.Failure.Error(),
			}
		}
		return a
	}
	return Action{Status: d.changed(), Step: CleanUp}
}

// leftBehind names what clean-up would have taken away.
func (d *decision) leftBehind() string {
	spec := d.Challenge.Spec
	if acmeflow.WritesRecord(spec.Type) {
		return fmt.Sprintf("the TXT record of %s with value %q", acme.DNS01Name(spec.DNSName, spec.AccountLabel), spec.Key)
	}
	return fmt.Sprintf("the route for http://%s%s", spec.DNSName, acme.HTTP01Path(spec.Token))
}
