package certificate

import (
	"strings"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/renewal"
)

// Backoff bounds how long a Certificate waits after a failed issuance.
type Backoff = renewal.Backoff

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// permanently reports whether a request has failed such that the same request would fail again. If it is not known
// which version of the issuer it was made for, a change of the issuer could not be told: the failure counts as one of
// no known class then.
func (d *decision) permanently(r facts.Request) bool {
	return d.Backoff.ByClass && r.FailureClass() == fault.ClassPermanent && r.Annotations[IssuerVersionAnnotation] != ""
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
		if !d.fulfils(r) || d.issuerChanged(r) || r.Error == nil && len(facts.KeySpecOf(&d.crt.Spec).ViolationsOf(r.Public)) > 0 {
			return 0
		}
		if d.permanently(r) {
			wait = d.afterPermanent(failed.Time)
		} else if byClass, ok := d.Backoff.AfterClass(r.FailureClass(), attempts); ok {
			wait = byClass
		}
	}
	left := failed.Add(wait).Sub(d.now)
	if left > 2*wait {
		return 0 // written down by a clock that was put right since
	}
	return max(left, 0)
}

// DefaultBackoff is how long a Certificate waits after a failed issuance if the user has set nothing.
func DefaultBackoff() Backoff { return Backoff{Min: time.Hour, Max: 32 * time.Hour, ByClass: true} }

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
	return d.Backoff.ByClass && (deleted || d.budgetExceeded() != nil)
}

// issuerChanged reports whether the issuer is another one, or has another spec or CA, than when a request was made. The
// CA, which a version ends with, may not be known at one of the two times: that is no change.
func (d *decision) issuerChanged(r facts.Request) bool {
	was := r.Annotations[IssuerVersionAnnotation]
	if was == "" || d.Issuer == nil {
		return false
	}
	now := d.Issuer.Version
	return now != was && !strings.HasPrefix(now, was+"/") && !strings.HasPrefix(was, now+"/")
}
