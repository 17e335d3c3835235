package certificates

import (
	"fmt"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/certificate"
)

// stepEvents are the events about steps that cert-manager emits (spec §2.2, §2.3), and that nobody gets without the
// setting: an issuance begins, the private key is there, and the request is made.
func stepEvents(crt *certmanagerv1.Certificate, a certificate.Action) (events []engine.Event) {
	say := func(reason, format string, args ...any) {
		events = append(events, engine.Event{Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	issuing := func(status certmanagerv1.CertificateStatus) *certmanagerv1.CertificateCondition {
		c := certmanagerv1.FindCertificateCondition(status.Conditions, certmanagerv1.CertificateConditionIssuing)
		if c == nil || c.Status != cmmeta.ConditionTrue {
			return nil
		}
		return c
	}
	before, makesKey := issuing(crt.Status), a.Step == certificate.StepCreateKey
	if a.Status != nil && before == nil {
		if now := issuing(*a.Status); now != nil {
			say(certmanagerv1.CertificateEventIssuing, "%s", now.Message)
		}
	}
	if a.Step == certificate.StepCreateRequest && a.Key == "" && !a.Held { // the short way, which makes the key too
		makesKey = true
		if a.Unsaid != nil {
			say(certmanagerv1.CertificateEventIssuing, "%s", a.Unsaid.Message)
		}
	}
	switch {
	case makesKey && a.ReuseKey:
		say(certmanagerv1.CertificateEventReused, "Reusing private key stored in existing Secret resource %q", crt.Spec.SecretName)
	case makesKey:
		say(certmanagerv1.CertificateEventGenerated, "Generated a new private key")
	case a.Step == certificate.StepDeleteKeys:
		say(certmanagerv1.CertificateEventDeleted, "Deleted next private key Secrets that do not match the spec: %q", a.Names)
	default:
	}
	if a.Step == certificate.StepCreateRequest {
		say(certmanagerv1.CertificateEventRequested, "Created new CertificateRequest resource %q", a.Name)
	}
	return events
}
