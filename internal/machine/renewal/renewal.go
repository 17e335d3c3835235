// Package renewal computes when to renew a certificate by the rules of its Certificate: how long before the certificate
// expires, and in which renewal windows. The package spreads the times, so that certificates that were issued at the
// same time are not renewed at the same time.
//
// The package also computes the back-off after failed issuances. The package is pure. internal/machine/certificate
// handles the CA's suggestion (ARI), budgets, and the steps of a renewal.
package renewal

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/when"
)

const (
	// shortLived is the lifetime below which half of it, not a third, is kept in
	// reserve: a CA that is out of order for a day must not cost a certificate.
	shortLived = 10 * 24 * time.Hour
	// spread is the part of the reserve over which renewals of certificates that were
	// made at once are spread.
	spread = 10
)

// Floor is the least time between an issuance and the renewal of what was issued.
const Floor = 5 * time.Minute

// slack is how much sooner than Floor a certificate may be due all the same, and is renewed after Floor: the clocks of
// CAs and API servers differ.
const slack = 30 * time.Second

// Time is when a certificate is to be renewed.
type Time struct {
	// At is when, in whole seconds; zero for never.
	At time.Time
	// Plain is the same by the letter of spec §2.1, without our reserve and spread.
	Plain time.Time
	// Source says who has decided.
	Source certmanagerv1.RenewalTimeSource
	// Ignored says why what the spec says does not count; empty if it does, or says nothing.
	Ignored string
	// Problem says why the windows could not be kept; empty if they were, or there
	// are none.
	Problem string

	// earliest and latest bound what At may be for any UID; zero where the UID has no say.
	earliest, latest time.Time
}

// Serves reports whether the time in the status of the Certificate is as good as At. Cert-manager may have written that
// time, or it may be for the same certificate when the Certificate had another UID: before it came here from a backup
// or from another cluster.
func (r Time) Serves(said time.Time, crt *certmanagerv1.Certificate) bool {
	if said.Equal(r.Plain) {
		return true
	}
	if said.Before(r.earliest) || said.After(r.latest) {
		return false
	}
	placed, err := Place(crt.Spec.Renewal, said, said.Add(time.Second))
	return err == nil && placed.Equal(said)
}

// Of returns when a certificate of that validity is due, which was asked for at issued (zero if that is not known). An
// explicit renewBefore or renewBeforePercentage is kept to the second. It is compared with what was issued, which may
// last less than was asked for, or have begun before: a value that makes the certificate due within Floor of its
// issuance does not count, or it would be renewed for ever. By default the last third of the lifetime is kept in
// reserve (the last half of a short one), less a part of it that differs from Certificate to Certificate.
func Of(crt *certmanagerv1.Certificate, notBefore, notAfter, issued time.Time) Time {
	spec := &crt.Spec
	if spec.Renewal != nil && spec.Renewal.Policy == certmanagerv1.RenewalPolicyDisabled {
		return Time{}
	}
	lifetime := max(notAfter.Sub(notBefore), 0) // one that ends before it begins is due at its end
	due := func(lead time.Duration) time.Time { return notAfter.Add(-lead).Truncate(time.Second) }
	r := Time{Plain: due(lifetime / 3), Source: certmanagerv1.RenewalTimeByDefault}
	for _, l := range leads(spec, lifetime) {
		at := due(l.lead)
		if at.Before(when.Latest(notBefore, issued).Add(Floor - slack)) {
			r.Ignored = fmt.Sprintf("spec.%s (%s) does not count: the certificate lasts %s, and would be renewed within %s of its issuance; set a smaller one",
				l.field, l.value, lifetime, Floor)
			continue
		}
		r.Plain, r.At, r.Source = at, at, l.source
		break
	}
	if r.At.IsZero() {
		reserve := lifetime / 3
		if lifetime < shortLived {
			reserve = lifetime / 2
		}
		r.At = due(reserve - Part(reserve/spread, crt.UID, "renewal"))
		r.earliest, r.latest = due(reserve), due(reserve-reserve/spread)
	}
	plain, _ := Place(spec.Renewal, r.Plain, notAfter)
	at, err := Place(spec.Renewal, r.At, notAfter)
	r.Plain, r.At = plain, at
	if err != nil {
		r.Problem = err.Error()
	}
	return r
}

// lead is how long before its end a certificate is to be renewed, and the field that says so.
type lead struct {
	lead         time.Duration
	field, value string
	source       certmanagerv1.RenewalTimeSource
}

// leads are what the spec says, the field that wins first: one formula for both.
func leads(spec *certmanagerv1.CertificateSpec, lifetime time.Duration) (all []lead) {
	if before := spec.RenewBefore; before != nil && before.Duration > 0 {
		all = append(all, lead{before.Duration, "renewBefore", before.Duration.String(), certmanagerv1.RenewalTimeByRenewBefore})
	}
	if percent := spec.RenewBeforePercentage; percent != nil && *percent > 0 && *percent < 100 {
		before := lifetime / 100 * time.Duration(*percent)
		all = append(all, lead{before, "renewBeforePercentage", fmt.Sprint(*percent), certmanagerv1.RenewalTimeByPercentage})
	}
	return all
}

// Part returns a part of whole, from nothing to almost all: always the same for a
// Certificate and a purpose, and evenly distributed over Certificates.
func Part(whole time.Duration, certificate types.UID, purpose string) time.Duration {
	const grain = 1 << 20
	sum := sha256.Sum256([]byte(string(certificate) + "/" + purpose))
	n := int64(binary.BigEndian.Uint32(sum[:]) % grain)
	return time.Duration(int64(whole)/grain*n + int64(whole)%grain*n/grain)
}

// Place returns the first time from due on that is in one of the windows. It returns due itself without windows, and
// with an error if a window cannot be read, or none opens before the certificate ends: renewing at another time than
// wanted is better than not renewing.
func Place(renewal *certmanagerv1.CertificateRenewal, due, notAfter time.Time) (time.Time, error) {
	if renewal == nil || len(renewal.Windows) == 0 {
		return due, nil
	}
	var best time.Time
	for i := range renewal.Windows {
		opens, err := parseWindow(&renewal.Windows[i])
		if err != nil {
			return due, fmt.Errorf("spec.renewal.windows[%d]: %w: renewing at %s, outside of any window", i, err, due.UTC().Format(time.RFC3339))
		}
		if at := opens.firstFrom(due); best.IsZero() || !at.IsZero() && at.Before(best) {
			best = at
		}
	}
	if best.IsZero() || !best.Before(notAfter) {
		return due, fmt.Errorf("no window of spec.renewal.windows opens between %s, when renewal is due, and %s, when the certificate expires: "+
			"renewing when it is due; add a window, or renew earlier", due.UTC().Format(time.RFC3339), notAfter.UTC().Format(time.RFC3339))
	}
	return best, nil
}
