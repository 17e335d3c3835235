package demo

import (
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// description is what an object says of itself.
type description struct {
	name    string // kind and name, for people
	outcome outcome
	words   string // where it stands, and why
}

// full is the whole description on one line.
func (d description) full() string { return d.name + ": " + d.words }

// describe puts an object's status into words.
func describe(object client.Object) description {
	d := description{name: target{kind: kindOf(object), NamespacedName: client.ObjectKeyFromObject(object)}.String()}
	switch o := object.(type) {
	case certmanagerv1.GenericIssuer:
		d.outcome, d.words = describeIssuer(o)
	case *certmanagerv1.Certificate:
		d.outcome, d.words = describeCertificate(o)
	case *certmanagerv1.CertificateRequest:
		d.outcome, d.words = describeRequest(o)
	case *certificatesv1.CertificateSigningRequest:
		d.outcome, d.words = describeSigningRequest(o)
	case *acmev1.Order:
		d.outcome, d.words = byState(o.Status.State), withReason(stateName(o.Status.State), o.Status.Reason)
	case *acmev1.Challenge:
		d.name = challengeName(o)
		d.outcome, d.words = byState(o.Status.State), withReason(challengeState(o), o.Status.Reason)
	}
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

// challengeState is the state with what the scheduler and the solver have done.
func challengeState(o *acmev1.Challenge) string {
	words := []string{stateName(o.Status.State)}
	if !o.Status.State.IsFinal() {
		switch {
		case o.Status.Processing:
			words = append(words, "processing")
		case o.Status.Presented:
			words = append(words, "parked")
		default:
			words = append(words, "queued")
		}
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

func byState(s acmev1.State) outcome {
	switch {
	case s == acmev1.Valid:
		return issued
	case s.IsFailure():
		return failed
	default:
		return waiting
	}
}

func withReason(words, reason string) string {
	if reason = oneLine(reason); reason != "" {
		return words + ": " + reason
	}
	return words
}

func describeIssuer(o certmanagerv1.GenericIssuer) (outcome, string) {
	ready := certmanagerv1.FindIssuerCondition(o.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	switch {
	case ready == nil:
		return waiting, "new"
	case ready.Status == cmmeta.ConditionTrue:
		return issued, withReason("ready", ready.Message)
	default:
		return waiting, withReason("not ready", ready.Reason+": "+ready.Message)
	}
}

func describeCertificate(o *certmanagerv1.Certificate) (outcome, string) {
	ready := certmanagerv1.FindCertificateCondition(o.Status.Conditions, certmanagerv1.CertificateConditionReady)
	issuing := certmanagerv1.FindCertificateCondition(o.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
	switch {
	case ready != nil && ready.Status == cmmeta.ConditionTrue && ready.ObservedGeneration == o.Generation:
		return issued, "ready"
	case issuing != nil && issuing.Status == cmmeta.ConditionTrue:
		return waiting, withReason("issuing", issuing.Message)
	case issuing != nil && o.Status.LastFailureTime != nil:
		return failed, withReason("failed", issuing.Reason+": "+issuing.Message)
	case ready != nil:
		return waiting, withReason("not ready", ready.Message)
	default:
		return waiting, "new"
	}
}

func describeRequest(o *certmanagerv1.CertificateRequest) (outcome, string) {
	find := func(t certmanagerv1.CertificateRequestConditionType) *certmanagerv1.CertificateRequestCondition {
		return certmanagerv1.FindCertificateRequestCondition(o.Status.Conditions, t)
	}
	ready, denied, invalid := find(certmanagerv1.CertificateRequestConditionReady),
		find(certmanagerv1.CertificateRequestConditionDenied), find(certmanagerv1.CertificateRequestConditionInvalidRequest)
	switch {
	case ready != nil && ready.Status == cmmeta.ConditionTrue:
		return issued, "issued"
	case denied != nil:
		return failed, withReason("denied", denied.Message)
	case invalid != nil && invalid.Status == cmmeta.ConditionTrue:
		return failed, withReason("invalid", invalid.Message)
	case ready != nil && ready.Reason == certmanagerv1.CertificateRequestReasonFailed:
		return failed, withReason("failed", ready.Message)
	case ready != nil:
		return waiting, withReason(strings.ToLower(ready.Reason), ready.Message)
	case find(certmanagerv1.CertificateRequestConditionApproved) != nil:
		return waiting, "approved"
	default:
		return waiting, "new"
	}
}

func describeSigningRequest(o *certificatesv1.CertificateSigningRequest) (outcome, string) {
	words := "new"
	for _, c := range o.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			continue
		}
		switch c.Type {
		case certificatesv1.CertificateFailed:
			return failed, withReason("failed", c.Reason+": "+c.Message)
		case certificatesv1.CertificateDenied:
			return failed, withReason("denied", c.Reason+": "+c.Message)
		case certificatesv1.CertificateApproved:
			words = "approved"
		}
	}
	if len(o.Status.Certificate) != 0 {
		return issued, "issued"
	}
	return waiting, words
}
