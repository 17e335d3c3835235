package lifecycle

import (
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
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

// forever is the wait for something to change.
const forever = time.Duration(-1)

// afterClass returns how long to wait after that many failures in a row, of which the
// last is of that class: forever if only a change helps; false if the class says
// nothing. The waits for a CA that did not find what it looked for are those of Let's
// Encrypt's integration guide.
func (b Backoff) afterClass(class fault.Class, attempts int) (time.Duration, bool) {
	if !b.ByClass {
		return 0, false
	}
	switch class {
	case fault.ClassPermanent:
		return forever, true
	case fault.ClassValidation:
		steps := []time.Duration{time.Minute, 10 * time.Minute, 100 * time.Minute, 24 * time.Hour}
		return steps[min(max(attempts, 1), len(steps))-1], true
	case fault.ClassRateLimited:
		return Backoff{Min: 30 * time.Minute, Max: 12 * time.Hour}.After(attempts), true
	case fault.ClassUnavailable, fault.ClassRefused, fault.ClassConfiguration:
		return Backoff{Min: time.Minute, Max: time.Hour}.After(attempts), true
	default:
		return 0, false
	}
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
	failed := d.crt.Status.LastFailureTime
	if failed == nil {
		return 0
	}
	attempts := 1
	if n := d.crt.Status.FailedIssuanceAttempts; n != nil && *n > 0 {
		attempts = *n
	}
	wait := d.Backoff.After(attempts)
	if r, ok := d.ofRevision(d.nextRevision()); ok {
		if !d.fulfils(r) || d.issuerChanged(r) {
			return 0
		}
		byClass, ok := d.Backoff.afterClass(r.failureClass(), attempts)
		unseen := byClass == forever && r.Annotations[IssuerVersionAnnotation] == "" // a change of the issuer could not be told
		if ok && !unseen {
			wait = byClass
		}
	}
	if wait == forever {
		return forever
	}
	left := failed.Add(wait).Sub(d.now)
	if left > 2*wait {
		return 0 // written down by a clock that was put right since
	}
	return max(left, 0)
}

// issuerChanged reports whether the issuer is another one, or has another spec, than
// when a request was made.
func (d *decision) issuerChanged(r RequestFacts) bool {
	was := r.Annotations[IssuerVersionAnnotation]
	return was != "" && d.Issuer != nil && d.Issuer.Version != was
}
