package lifecycle

import (
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// RenewalTime returns when a certificate of that validity is due for renewal
// (spec §2.1), in whole seconds; false if it is never renewed.
func RenewalTime(spec *certmanagerv1.CertificateSpec, notBefore, notAfter time.Time) (time.Time, bool) {
	if spec.Renewal != nil && spec.Renewal.Policy == certmanagerv1.RenewalPolicyDisabled {
		return time.Time{}, false
	}
	lifetime := max(notAfter.Sub(notBefore), 0) // one that ends before it begins is due at its end
	lead := lifetime / 3
	switch {
	case spec.RenewBefore != nil && spec.RenewBefore.Duration > 0 && spec.RenewBefore.Duration < lifetime:
		lead = spec.RenewBefore.Duration
	case spec.RenewBeforePercentage != nil && *spec.RenewBeforePercentage > 0 && *spec.RenewBeforePercentage < 100:
		lead = lifetime / 100 * time.Duration(*spec.RenewBeforePercentage)
	}
	return notAfter.Add(-lead).Truncate(time.Second), true
}

// Backoff bounds how long a Certificate waits after a failed issuance. A Min of
// zero or less means not at all.
type Backoff struct {
	Min, Max time.Duration
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
