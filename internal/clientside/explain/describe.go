// Package explain describes the state of a certificate in words: each object from the Certificate down to its
// Challenges, and at the end the cause, the next try, and what helps.
//
// The package reads only the objects that its caller passes, and calls nobody. It decides by typed fields: conditions,
// reasons, states, classes of failures, and the problem types of ACME. It shows messages, and never judges messages.
// internal/cause has the words for each cause and what helps.
package explain

import (
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cli/terminal"
)

// Outcome says how far an object has come.
type Outcome int

// The outcomes.
const (
	// Waiting means that the work has not ended.
	Waiting Outcome = iota
	// Issued means that all is as asked for: an issuer is ready, a proof accepted, a certificate issued.
	Issued
	// Failed means that the work has ended without success.
	Failed
)

// String names the outcome.
func (o Outcome) String() string { return [...]string{"waiting", "issued", "failed"}[o] }

// Description is what an object says of itself.
type Description struct {
	// Name is kind and name, for people.
	Name string
	// Outcome says how far the object has come.
	Outcome Outcome
	// State says the same in a few words.
	State string
	// Reason says why; often empty.
	Reason string
}

// Words are the state and the reason.
func (d Description) Words() string {
	if d.Reason == "" {
		return d.State
	}
	return d.State + ": " + d.Reason
}

// String is the whole description on one line.
func (d Description) String() string { return d.Name + ": " + d.Words() }

// Name returns the name of an object for people: its kind, and its name with the namespace.
func Name(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// Describe puts an object's status into words.
func Describe(object metav1.Object) Description {
	d := Description{Name: Name(KindOf(object), object.GetNamespace(), object.GetName())}
	switch o := object.(type) {
	case certmanagerv1.GenericIssuer:
		d.Outcome, d.State, d.Reason = describeIssuer(o)
	case *certmanagerv1.Certificate:
		d.Outcome, d.State, d.Reason = describeCertificate(o)
	case *certmanagerv1.CertificateRequest:
		d.Outcome, d.State, d.Reason = describeRequest(o)
	case *certificatesv1.CertificateSigningRequest:
		d.Outcome, d.State, d.Reason = describeSigningRequest(o)
	case *certificatesv1.PodCertificateRequest:
		d.Outcome, d.State, d.Reason = describePodRequest(o)
	case *corev1.Pod:
		d.Outcome, d.State = describePod(o)
	case *acmev1.Order:
		d.Outcome, d.State, d.Reason = byState(o.Status.State), stateName(o.Status.State), o.Status.Reason
	case *acmev1.Challenge:
		d.Name = challengeName(o)
		d.Outcome, d.State, d.Reason = byState(o.Status.State), challengeState(o), o.Status.Reason
	}
	d.Name, d.State, d.Reason = terminal.Line(d.Name), terminal.Line(d.State), terminal.Line(d.Reason)
	return d
}

// challengeName says what is proved and how: a Challenge's own name tells nobody anything.
func challengeName(o *acmev1.Challenge) string {
	name := o.Spec.DNSName
	if o.Spec.Wildcard {
		name = "*." + name
	}
	return "Challenge " + name + " by " + string(o.Spec.Type)
}

// Place is the place in the schedule of a Challenge that has not ended.
type Place int

// The places, in the order in which they are shown.
const (
	// InFlight has a slot.
	InFlight Place = iota
	// Parked has given its slot to others, and is looked at again later.
	Parked
	// Queued was not started.
	Queued
)

// PlaceOf returns the place of a Challenge that has not ended.
func PlaceOf(o *acmev1.Challenge) Place {
	switch {
	case o.Status.Processing:
		return InFlight
	case o.Status.Presented:
		return Parked
	default:
		return Queued
	}
}

// challengeState is the state with what the scheduler and the solver have done.
func challengeState(o *acmev1.Challenge) string {
	words := []string{stateName(o.Status.State)}
	if !o.Status.State.IsFinal() {
		words = append(words, [...]string{InFlight: "processing", Parked: "postponed", Queued: "queued"}[PlaceOf(o)])
		if o.Status.Presented {
			words = append(words, "presented")
		}
	}
	return strings.Join(words, ", ")
}

func stateName(s acmev1.State) string {
	if s == acmev1.Unknown {
		return "new"
	}
	return string(s)
}

func byState(s acmev1.State) Outcome {
	switch {
	case s == acmev1.Valid:
		return Issued
	case s.IsFailure():
		return Failed
	default:
		return Waiting
	}
}

func describeIssuer(o certmanagerv1.GenericIssuer) (outcome Outcome, state, reason string) {
	ready := certmanagerv1.FindIssuerCondition(o.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	switch {
	case ready == nil:
		return Waiting, "new", ""
	case ready.Status == cmmeta.ConditionTrue:
		return Issued, "ready", ready.Message
	default:
		return Waiting, "not ready", ready.Reason + ": " + ready.Message
	}
}

func describeCertificate(o *certmanagerv1.Certificate) (outcome Outcome, state, reason string) {
	ready := certmanagerv1.FindCertificateCondition(o.Status.Conditions, certmanagerv1.CertificateConditionReady)
	issuing := certmanagerv1.FindCertificateCondition(o.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
	switch {
	case ready != nil && ready.Status == cmmeta.ConditionTrue && ready.ObservedGeneration == o.Generation:
		return renewing(o, issuing)
	case issuing != nil && issuing.Status == cmmeta.ConditionTrue:
		return Waiting, "issuing", issuing.Message
	case issuing != nil && o.Status.LastFailureTime != nil:
		return Failed, "failed", issuing.Reason + ": " + issuing.Message
	case ready != nil:
		return Waiting, "not ready", ready.Message
	default:
		return Waiting, "new", ""
	}
}

// renewing is a Certificate that is good, and may be renewed just now.
func renewing(o *certmanagerv1.Certificate, issuing *certmanagerv1.CertificateCondition) (outcome Outcome, state, reason string) {
	switch {
	case issuing != nil && issuing.Status == cmmeta.ConditionTrue:
		return Issued, "ready, being renewed", issuing.Message
	case issuing != nil && o.Status.LastFailureTime != nil:
		return Issued, "ready, renewal failed", issuing.Message
	default:
		return Issued, "ready", ""
	}
}

func describeRequest(o *certmanagerv1.CertificateRequest) (outcome Outcome, state, reason string) {
	find := func(t certmanagerv1.CertificateRequestConditionType) *certmanagerv1.CertificateRequestCondition {
		return certmanagerv1.FindCertificateRequestCondition(o.Status.Conditions, t)
	}
	ready, denied, invalid := find(certmanagerv1.CertificateRequestConditionReady),
		find(certmanagerv1.CertificateRequestConditionDenied), find(certmanagerv1.CertificateRequestConditionInvalidRequest)
	switch {
	case ready != nil && ready.Status == cmmeta.ConditionTrue:
		return Issued, "issued", ""
	case denied != nil:
		return Failed, "denied", denied.Message
	case invalid != nil && invalid.Status == cmmeta.ConditionTrue:
		return Failed, "invalid", invalid.Message
	case ready != nil && ready.Reason == certmanagerv1.CertificateRequestReasonFailed:
		return Failed, "failed", ready.Message
	case ready != nil:
		return Waiting, strings.ToLower(ready.Reason), ready.Message
	case find(certmanagerv1.CertificateRequestConditionApproved) != nil:
		return Waiting, "approved", ""
	default:
		return Waiting, "new", ""
	}
}

func describeSigningRequest(o *certificatesv1.CertificateSigningRequest) (outcome Outcome, state, reason string) {
	words := "new"
	for _, c := range o.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			continue
		}
		switch c.Type {
		case certificatesv1.CertificateFailed:
			return Failed, "failed", c.Reason + ": " + c.Message
		case certificatesv1.CertificateDenied:
			return Failed, "denied", c.Reason + ": " + c.Message
		case certificatesv1.CertificateApproved:
			words = "approved"
		}
	}
	if len(o.Status.Certificate) != 0 {
		return Issued, "issued", ""
	}
	return Waiting, words, ""
}

// KindOf returns the kind of an object by its Go type: clients leave the type meta empty.
func KindOf(o metav1.Object) string {
	switch o.(type) {
	case *certmanagerv1.ClusterIssuer:
		return cmmeta.ClusterIssuerKind
	case *certmanagerv1.Issuer:
		return cmmeta.DefaultIssuerKind
	case *certmanagerv1.Certificate:
		return certmanagerv1.CertificateKind
	case *certmanagerv1.CertificateRequest:
		return "CertificateRequest"
	case *acmev1.Order:
		return "Order"
	case *acmev1.Challenge:
		return "Challenge"
	case *certificatesv1.CertificateSigningRequest:
		return "CertificateSigningRequest"
	case *certificatesv1.PodCertificateRequest:
		return "PodCertificateRequest"
	case *corev1.Pod:
		return "Pod"
	default:
		return ""
	}
}

// SignerOf returns the issuer that a signer name names, in one of its three forms.
func SignerOf(signerName string) (kind, namespace, name string) {
	domain, path, _ := strings.Cut(signerName, "/")
	if domain == "issuers."+certmanagerv1.GroupName {
		namespace, rest, _ := strings.Cut(path, ".")
		return cmmeta.DefaultIssuerKind, namespace, rest
	}
	return cmmeta.ClusterIssuerKind, "", path
}
