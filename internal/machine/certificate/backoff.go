package certificate

import (
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/renewal"
)

// Backoff bounds how long a Certificate waits after a failed issuance. A Min of
// zero or less means not at all.
type Backoff struct {
	Min, Max time.Duration
	// ByClass has failures whose class is known waited out as suits the class, not by
	// Min and Max: for whoever has set neither.
	ByClass bool
}

// After returns how long to wait after that many failures in a row: Min, doubled
// by each further one, at most Max (spec §2.1, 4).
func (b Backoff) After(attempts int) time.Duration {
	if b.Min <= 0 {
		return 0
	}
	wait := b.Min
	for range attempts - 1 {
		if wait >= b.Max/2 {
			return b.Max
		}
		wait *= 2
	}
	return min(wait, b.Max)
}

// afterClass returns how long to wait after that many failures in a row, of which the last is of that class; false if
// the class says nothing. The waits for a CA that did not find what it looked for are those of Let's Encrypt's
// integration guide.
func (b Backoff) afterClass(class fault.Class, attempts int) (time.Duration, bool) {
	if !b.ByClass {
		return 0, false
	}
	switch class {
	case fault.ClassPolicy:
		return Backoff{Min: time.Hour, Max: day}.After(attempts), true
	case fault.ClassValidation:
		steps := []time.Duration{time.Minute, 10 * time.Minute, 100 * time.Minute, day}
		return steps[min(max(attempts, 1), len(steps))-1], true
	case fault.ClassRateLimited, fault.ClassPaused:
		return Backoff{Min: 30 * time.Minute, Max: 12 * time.Hour}.After(attempts), true
	case fault.ClassUnavailable, fault.ClassRefused, fault.ClassConfiguration:
		return Backoff{Min: time.Minute, Max: time.Hour}.After(attempts), true
	default:
		return 0, false
	}
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// permanently reports whether a request has failed such that the same request would fail again. If it is not known
// which version of the issuer it was made for, a change of the issuer could not be told: the failure counts as one of
// no known class then.
func (d *decision) permanently(r RequestFacts) bool {
	return d.Backoff.ByClass && r.failureClass() == fault.ClassPermanent && r.Annotations[IssuerVersionAnnotation] != ""
}

// afterPermanent returns how long to wait after a failure at that time that only a change helps against: the change
// may be one that nothing tells of. It is a day, and a week once the certificate has been due for a week, more or less
// a fifth: always the same for a Certificate.
func (d *decision) afterPermanent(failed time.Time) time.Duration {
	wait := day
	if due := d.dueSince(); !due.IsZero() && failed.Sub(due) >= week {
		wait = week
	}
	return wait*4/5 + renewal.Part(wait*2/5, d.crt.UID, "again")
}

// dueSince returns since when there should have been another certificate; zero if there need not be one yet.
func (d *decision) dueSince() time.Time {
	ready := certmanagerv1.FindCertificateCondition(d.crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
	if ready != nil && ready.Status != cmmeta.ConditionTrue && ready.LastTransitionTime != nil {
		return ready.LastTransitionTime.Time
	}
	return d.renewalDue()
}

// failureClass returns the class of the failure that a request ended with; empty if
// nothing is known.
func (r RequestFacts) failureClass() fault.Class {
	if c := r.condition(certmanagerv1.CertificateRequestConditionFailureClass); c != nil {
		return fault.Class(c.Reason)
	}
	return ""
}

// backoff returns how long a failed issuance still forbids another one. A request
// that does not match the spec any more says that the user has changed something, and
// so does an issuer that is not the one that it was made for: then there is no wait
// (spec §2.1, 4).
func (d *decision) backoff() time.Duration {
	failed, attempts := d.crt.Status.LastFailureTime, d.attempts()
	if failed == nil {
		return 0
	}
	wait := d.Backoff.After(attempts)
	if r, ok := d.ofRevision(d.nextRevision()); ok {
		if !d.fulfils(r) || d.issuerChanged(r) {
			return 0
		}
		if d.permanently(r) {
			wait = d.afterPermanent(failed.Time)
		} else if byClass, ok := d.Backoff.afterClass(r.failureClass(), attempts); ok {
			wait = byClass
		}
	}
	left := failed.Add(wait).Sub(d.now)
	if left > 2*wait {
		return 0 // written down by a clock that was put right since
	}
	return max(left, 0)
}

// DefaultBackoff is how long a Certificate waits after a failed issuance where the user has set nothing.
func DefaultBackoff() Backoff { return Backoff{Min: time.Hour, Max: 32 * time.Hour, ByClass: true} }

// NextTry returns when a failed issuance is tried again by itself; zero if none has failed, or nothing is waited for.
// The requests are those of the Certificate.
func NextTry(crt *certmanagerv1.Certificate, requests []*certmanagerv1.CertificateRequest, b Backoff, now time.Time) time.Time {
	d := &decision{State: State{Certificate: crt, Backoff: b}, now: now, crt: crt}
	for _, r := range requests {
		d.Requests = append(d.Requests, RequestFactsOf(r))
	}
	wait := d.backoff()
	if wait == 0 {
		return time.Time{}
	}
	return now.Add(wait)
}

// attempts returns how many issuances in a row have failed; 1 if that is not known.
func (d *decision) attempts() int {
	if n := d.crt.Status.FailedIssuanceAttempts; n != nil && *n > 0 {
		return *n
	}
	return 1
}

// forced reports whether somebody does not want to wait after a failure, and has therefore deleted the Secret. The
// status says that the Secret was there, or, while only the budget forbids the issuance, that the budget is used up.
func (d *decision) forced() bool {
	was := certmanagerv1.FindCertificateCondition(d.Certificate.Status.Conditions, certmanagerv1.CertificateConditionReady)
	deleted := d.Secret == nil && was != nil && was.Reason != certmanagerv1.CertificateReasonDoesNotExist
	return d.Backoff.ByClass && (deleted || d.overdrawn() != nil)
}

// issuerChanged reports whether the issuer is another one, or has another spec, than
// when a request was made.
func (d *decision) issuerChanged(r RequestFacts) bool {
	was := r.Annotations[IssuerVersionAnnotation]
	return was != "" && d.Issuer != nil && d.Issuer.Version != was
}
