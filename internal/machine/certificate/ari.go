package certificate

import (
	"fmt"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/renewal"
	"chancery.dev/internal/when"
)

// How often an ACME server is asked when to renew (RFC 9773 §4.3; spec §2.5).
const (
	askDefault = 6 * time.Hour
	askSoonest = time.Hour
	askLatest  = 7 * 24 * time.Hour
	// askAgain is how soon a server is asked again that does not offer such information.
	askAgain = 24 * time.Hour
	// settling is how long after the issuance it is asked first, and firstAsk the time
	// over which that is spread; both are cut down for certificates that do not last.
	settling = 10 * time.Minute
	firstAsk = 6 * time.Hour
	askPart  = 20
)

// RenewalAnswer is what an issuer said when it was asked when to renew.
type RenewalAnswer struct {
	// Certificate is the certificate that it was asked about.
	Certificate facts.Digest
	// At is when it was asked.
	At time.Time
	// None says that it does not offer such information.
	None bool
	// Start and End are the suggested window, and ExplanationURL says why; see RFC 9773
	// §4.2. They are not set if Error is.
	Start, End     time.Time
	ExplanationURL string
	// RetryAfter is how long to wait before asking again; zero if it did not say.
	RetryAfter time.Duration
	// Error says why there was no answer.
	Error error
}

// learn takes what the issuer said into the status (spec §2.5).
func (d *decision) learn(leaf *facts.Leaf) {
	status := &d.crt.Status
	if d.Issuer != nil && !d.Issuer.Informs {
		status.ACME = nil
		return
	}
	a := d.Answer
	if a == nil || a.Certificate != leaf.ID {
		return
	}
	if a.None {
		status.ACME = nil
		return
	}
	if status.ACME == nil || status.ACME.ARI == nil {
		status.ACME = &certmanagerv1.CertificateACMEStatus{ARI: &certmanagerv1.CertificateARIStatus{}}
	}
	ari := status.ACME.ARI
	asked := a.At.Truncate(time.Second)
	if !d.lastChecked(ari).Before(asked) {
		return // long known
	}
	ari.LastChecked, ari.LastError = at(asked), ""
	switch {
	case a.Error != nil:
		ari.LastError = a.Error.Error()
	case !a.Start.Before(a.End):
		ari.LastError = fmt.Sprintf("the suggested window ends at %s, before it begins at %s", a.End.UTC().Format(time.RFC3339), a.Start.UTC().Format(time.RFC3339))
	default:
		ari.SuggestedWindow = &certmanagerv1.ARIWindow{Start: *at(a.Start.Truncate(time.Second)), End: *at(a.End.Truncate(time.Second))}
		ari.ExplanationURL = a.ExplanationURL
	}
	wait := a.RetryAfter
	if wait <= 0 {
		wait = askDefault
	}
	wait = min(max(wait, askSoonest), askLatest)
	wait += renewal.Part(wait/5, d.crt.UID, asked.String()) - wait/10
	ari.NextCheck = at(asked.Add(wait).Truncate(time.Second))
}

// lastChecked returns when the issuer was last asked; zero if it was not, or if that was
// written down by a clock that was put right since.
func (d *decision) lastChecked(ari *certmanagerv1.CertificateARIStatus) time.Time {
	if ari.LastChecked == nil || ari.LastChecked.After(d.now) {
		return time.Time{}
	}
	return ari.LastChecked.Time
}

// applyRenewalInfo lets the issuer's suggestion decide. Where the spec says when to renew, it decides only if it is
// earlier.
func (d *decision) applyRenewalInfo(rule *renewal.Time, leaf *facts.Leaf) {
	said, err := d.suggested(leaf, rule.At)
	switch explicit := rule.Source != certmanagerv1.RenewalTimeByDefault; {
	case said.IsZero(), explicit && !said.Before(rule.At):
	case err != nil:
		rule.Problem = err.Error()
	default:
		rule.At, rule.Source = said, certmanagerv1.RenewalTimeByARI
	}
}

// suggested returns a time in the window that the issuer has suggested for this certificate, moved into the user's
// windows; zero if there is no such suggestion, or if it would let the certificate end. A time that was chosen by a
// suggestion before stays while it is in the window.
func (d *decision) suggested(leaf *facts.Leaf, rule time.Time) (time.Time, error) {
	acme := d.crt.Status.ACME
	if rule.IsZero() || acme == nil || acme.ARI == nil || acme.ARI.SuggestedWindow == nil {
		return time.Time{}, nil
	}
	start, end := acme.ARI.SuggestedWindow.Start.Time, acme.ARI.SuggestedWindow.End.Time
	reserve := leaf.NotAfter.Sub(leaf.NotBefore) / askPart
	if !start.After(leaf.NotBefore) || leaf.NotAfter.Sub(start) < reserve {
		return time.Time{}, nil // said of the certificate before this one, or of no use
	}
	last := leaf.NotAfter.Add(-reserve)
	if s := &d.Certificate.Status; s.RenewalTimeSource == certmanagerv1.RenewalTimeByARI && s.RenewalTime != nil &&
		!s.RenewalTime.Time.Before(start) && s.RenewalTime.Time.Before(end) && !s.RenewalTime.After(last) {
		return s.RenewalTime.Time, nil
	}
	chosen := start.Add(renewal.Part(end.Sub(start), d.crt.UID, start.String())).Truncate(time.Second)
	if chosen.After(last) {
		chosen = last.Truncate(time.Second)
	}
	return renewal.Place(d.crt.Spec.Renewal, chosen, leaf.NotAfter)
}

// askDue returns when the issuer is to be asked when to renew; zero for never.
func (d *decision) askDue() time.Time {
	if d.Issuer == nil || !d.Issuer.Informs || d.crt.Status.RenewalTime == nil {
		return time.Time{}
	}
	leaf := d.Secret.Leaf
	if d.Answer != nil && d.Answer.Certificate == leaf.ID && d.Answer.None {
		return d.Answer.At.Add(askAgain)
	}
	if acme := d.crt.Status.ACME; acme != nil && acme.ARI != nil && acme.ARI.NextCheck != nil && !d.lastChecked(acme.ARI).Before(leaf.NotBefore) {
		return acme.ARI.NextCheck.Time
	}
	issued := leaf.NotBefore
	if r, ok := d.current(); ok && r.CreationTimestamp.After(issued) {
		issued = r.CreationTimestamp.Time
	}
	bound := leaf.NotAfter.Sub(leaf.NotBefore) / askPart
	return issued.Add(min(settling, bound) + renewal.Part(min(firstAsk, bound), d.crt.UID, "ask"))
}

// ask asks the issuer if that is due, and otherwise wakes the Certificate
// when it is due.
func (d *decision) ask(a *Action) {
	due := d.askDue()
	switch {
	case due.IsZero():
	case d.now.Before(due):
		a.Wake = when.Earliest(a.Wake, due)
	default:
		a.Step, a.Certificate = StepAskRenewalInfo, d.Secret.Leaf.ID
	}
}

// warnOfRenewalInfo says in an event that the issuer could not be asked.
func (d *decision) warnOfRenewalInfo(a *Action) {
	ari := func(s *certmanagerv1.CertificateStatus) *certmanagerv1.CertificateARIStatus {
		if s.ACME == nil || s.ACME.ARI == nil {
			return &certmanagerv1.CertificateARIStatus{}
		}
		return s.ACME.ARI
	}
	was, is := ari(&d.Certificate.Status), ari(&d.crt.Status)
	if is.LastError != "" && !is.LastChecked.Equal(was.LastChecked) {
		a.warn(certmanagerv1.CertificateEventARIError, "The issuer could not be asked when to renew: "+is.LastError)
	}
}
