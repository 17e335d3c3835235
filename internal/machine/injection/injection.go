// Package injection decides which CA bundles an injectable must have. An injectable is a
// ValidatingWebhookConfiguration, a MutatingWebhookConfiguration, an APIService or a CustomResourceDefinition whose
// annotations name a source (spec §7).
//
// A server's certificate and the bundle of its clients never change at the same moment. So a bundle keeps its CAs: a
// new CA is added after the old CAs, and an old CA leaves the bundle when it has expired. Only certificates get into a
// bundle: anybody may read an injectable, so nothing else of a Secret may appear in it. The package is pure: it writes
// nothing.
package injection

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// Grace is how long a source may be incomplete before an event says so: a Certificate that was just made has no Secret.
const Grace = time.Minute

// CAFileInterval is how often the CA of the API server is compared with what was injected: its file makes no event.
const CAFileInterval = 10 * time.Minute

// The reasons of events.
const (
	ReasonMalformed  = "InvalidCASource"       // an annotation is malformed
	ReasonIgnored    = "CASourceIgnored"       // the source is in a namespace that is left out
	ReasonNotAllowed = "CAInjectionNotAllowed" // the source may not be used
	ReasonNoCA       = "CANotAvailable"        // the source has no CA
	ReasonPartly     = "CAPartlyUsable"        // some of the source is left out
	ReasonNewKey     = "CAKeyMayBeUnknown"     // older API servers do not know the kind of the key
	ReasonNowhere    = "CAInjectionImpossible" // the injectable has no place for a CA
	ReasonTooLarge   = "CABundleTooLarge"      // a bundle cannot be merged, or old CAs were taken out of it
	ReasonDropped    = "OldCADropped"          // CAs were dropped that have left the source
	ReasonRefused    = "CAInjectionRefused"    // the API server refuses
)

// State is what is known of an injectable and of its source.
type State struct {
	// Annotations of the injectable.
	Annotations map[string]string
	// Deleting says that the injectable is being deleted.
	Deleting bool
	// Given is what the source has. It counts only where the annotations name a source.
	Given Given
	// Settled says that the injectable has all that Given has, and has not changed since.
	Settled bool
	// Target is what is read of the injectable; nil if it has not been read.
	Target *Target
	// Since is when the last decision has found that the source is incomplete; zero if it was not.
	Since time.Time
}

// Given is what a source has.
type Given struct {
	// Ignored says that the namespace of the source is left out by the user's flags.
	Ignored bool
	// CA is the text of the CA certificates; empty if there is none.
	CA []byte
	// Missing says what is incomplete, and what helps: the source is expected to change.
	Missing string
	// Forbidden says why the source may not be used, and what helps.
	Forbidden string
}

// Event is said of an injectable.
type Event struct {
	Reason, Message string
	// Notice says that nothing is wrong: a Normal event.
	Notice bool
}

// Action is what to do for an injectable.
type Action struct {
	// Read reads the injectable, and decides again.
	Read bool
	// Write is the slots to write; empty if nothing changes.
	Write []Slot
	// Old is the new value of the annotation about old CAs, empty for none; nil if it stays.
	Old *string
	// Say is an event to emit, unless it was the last one; nil for none.
	Say *Event
	// Waits says what the injectable waits for; empty for nothing.
	Waits string
	// Since is to be remembered for the next decision.
	Since time.Time
	// Wake is when to decide again without an event; zero for never.
	Wake time.Time
}

// GivenBySecret returns what a Secret gives for a source. The source names the Secret, or a Certificate whose Secret
// has that name. The Secret is nil if there is none.
func GivenBySecret(source Source, name string, secret *corev1.Secret) Given {
	of := source.Name.Namespace + "/" + name
	switch {
	case secret == nil && source.IsCertificate():
		return Given{Missing: fmt.Sprintf("%s has no Secret %s yet: see the conditions of the Certificate", source, name)}
	case secret == nil:
		return Given{Missing: fmt.Sprintf("%s does not exist: create it, or name another", source)}
	case source.IsCertificate() && secret.Annotations[certmanagerv1.CertificateNameAnnotation] != source.Name.Name:
		return Given{Missing: fmt.Sprintf("the Secret %s does not belong to %s: its annotation %s is %.300q. Wait until the Certificate is issued, "+
			"or give the Certificate a Secret of its own", of, source, certmanagerv1.CertificateNameAnnotation,
			secret.Annotations[certmanagerv1.CertificateNameAnnotation])}
	case !source.IsCertificate() && secret.Annotations[certmanagerv1.AllowDirectInjectionAnnotation] != "true":
		return Given{Forbidden: fmt.Sprintf("%s must have the annotation %s: \"true\": add it to the Secret, or to spec.secretTemplate of its Certificate",
			source, certmanagerv1.AllowDirectInjectionAnnotation)}
	case len(bytes.TrimSpace(secret.Data[cmmeta.TLSCAKey])) == 0:
		return Given{Missing: fmt.Sprintf("the Secret %s has no %s: issuers that do not tell their CA, such as ACME ones, cannot be a source", of, cmmeta.TLSCAKey)}
	}
	return Given{CA: secret.Data[cmmeta.TLSCAKey]}
}

// Decide returns what to do for an injectable now.
func Decide(s State, now time.Time) Action {
	source, err := SourceOf(s.Annotations)
	old, malformed := overlapOf(s.Annotations)
	switch {
	case s.Deleting:
		return Action{}
	case err != nil:
		return refuse(ReasonMalformed, err.Error())
	case source == Source{}:
		return Action{}
	case s.Given.Ignored:
		return Action{
			Say:   &Event{Reason: ReasonIgnored, Message: fmt.Sprintf("%s is not used: flags of the CA injector leave its namespace out", source), Notice: true},
			Waits: "a source in a namespace that is not left out",
		}
	case s.Given.Forbidden != "":
		return refuse(ReasonNotAllowed, s.Given.Forbidden)
	case s.Given.Missing != "":
		return s.wait(now)
	case s.Settled && !old.due(now):
		return Action{Wake: wake(source, old, now)}
	}
	ca := bundle{}
	if len(s.Given.CA) <= pki.MaxBundlePEM {
		ca = parse(s.Given.CA)
	}
	usable := merge(now, ca.certs)
	switch {
	case len(usable) == 0:
		return refuse(ReasonNoCA, fmt.Sprintf("the CA of %s has no certificate that is valid: %s", source, flaw(s.Given.CA, ca)))
	case s.Target == nil:
		return Action{Read: true}
	case s.Target.Obstacle != "":
		return refuse(ReasonNowhere, fmt.Sprintf("no CA can be injected: %s", s.Target.Obstacle))
	}
	action := s.write(source, usable, old, now)
	if action.Say == nil && malformed != nil {
		action.Say = &Event{Reason: ReasonMalformed, Message: malformed.Error()}
	}
	if action.Say == nil && len(usable) < len(merge(time.Time{}, ca.certs))+ca.strange {
		action.Say = &Event{Reason: ReasonPartly, Message: fmt.Sprintf(
			"the CA of %s has parts that are left out: PEM blocks that are no certificates, or certificates that have expired", source)}
	}
	if action.Say == nil && slices.ContainsFunc(usable, func(c *x509.Certificate) bool { return pki.IsMLDSA(c.PublicKey) }) {
		action.Say = &Event{Reason: ReasonNewKey, Message: fmt.Sprintf("the CA of %s has an ML-DSA key: an API server that was built with Go before 1.27, "+
			"such as those of Kubernetes 1.36, does not know such keys, and does not call a server with a certificate of this CA", source)}
	}
	return action
}

// refuse says what is wrong, and leaves the bundles as they are.
func refuse(reason, message string) Action {
	return Action{Say: &Event{Reason: reason, Message: message + ". The caBundle stays as it is"}, Waits: message}
}

// wait gives an incomplete source some time before an event says so.
func (s *State) wait(now time.Time) Action {
	a := Action{Waits: s.Given.Missing, Since: s.Since}
	if a.Since.IsZero() || a.Since.After(now) { // the clock may have been put back
		a.Since = now
	}
	if end := a.Since.Add(Grace); now.Before(end) {
		a.Wake = end
	} else {
		a.Say = &Event{Reason: ReasonNoCA, Message: s.Given.Missing + ". The caBundle stays as it is"}
	}
	return a
}

// write adds a CA to the bundle of each slot that lacks it, and takes out old ones where it is told to.
func (s *State) write(source Source, ca []*x509.Certificate, old overlap, now time.Time) Action {
	var bundles [][]*x509.Certificate
	for _, slot := range s.Target.Slots {
		if len(slot.Bundle) > pki.MaxBundlePEM {
			return refuse(ReasonTooLarge, fmt.Sprintf("a caBundle has more than %d bytes: take out CAs that are not used any more", pki.MaxBundlePEM))
		}
		bundles = append(bundles, parse(slot.Bundle).certs)
	}
	kept, left, dropped := old.step(bundles, ca, now)
	a, most := Action{Wake: wake(source, left, now)}, 0
	for i, slot := range s.Target.Slots {
		certs, taken := fit(merge(now, kept[i], ca), ca)
		most = max(most, taken)
		wanted := pki.EncodeCertificates(certs...)
		if s.Target.Held || !bytes.Equal(slot.Bundle, wanted) {
			a.Write = append(a.Write, Slot{slot.Path, wanted})
		}
	}
	if text := left.text(); text != s.Annotations[certmanagerv1.OldCAsAnnotation] {
		a.Old = &text
	}
	switch {
	case most > 0:
		a.Say = &Event{Reason: ReasonTooLarge, Message: fmt.Sprintf("a caBundle has at most %d bytes, so that %d CAs that have left %s were taken out of it",
			pki.MaxBundlePEM, most, source)}
	case dropped > 0:
		a.Say = &Event{Reason: ReasonDropped, Notice: true, Message: fmt.Sprintf("%d CAs that left %s at least %s ago were dropped", dropped, source, old.after)}
	}
	return a
}

// flaw says why no certificate of a CA can be used.
func flaw(text []byte, ca bundle) string {
	switch {
	case len(text) > pki.MaxBundlePEM:
		return fmt.Sprintf("it has more bytes of PEM than the %d that are decoded", pki.MaxBundlePEM)
	case len(ca.certs) > 0:
		return "all of them have expired"
	default:
		return "it is no PEM of CERTIFICATE blocks"
	}
}

// wake is when to look at a source that makes no events, or to drop a CA.
func wake(source Source, old overlap, now time.Time) time.Time {
	at := old.next()
	if again := now.Add(CAFileInterval); source.IsAPIServer() && (at.IsZero() || again.Before(at)) {
		return again
	}
	return at
}
