package certificates

import (
	"slices"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
)

// trace adds the first span of the trace of an issuance that an action has ended. The span begins when the condition
// Issuing became True, or when the request was made, if there is no such condition (the short way).
func (r *certificates) trace(crt *certmanagerv1.Certificate, v *view, a certificate.Action) {
	issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
	request, problem := a.Request, ""
	if a.Step != certificate.StepStore {
		if request, problem = failedNow(issuing, v, a); problem == "" {
			return
		}
	}
	start := request.CreationTimestamp.Time
	if issuing != nil && issuing.Status == cmmeta.ConditionTrue && issuing.LastTransitionTime != nil {
		start = issuing.LastTransitionTime.Time
	}
	r.Engine.Ended(crt, engine.Step{Issuance: request.UID, First: true, Start: start, Issuer: crt.Spec.IssuerRef.Name, Problem: problem})
}

// failedNow returns the latest request of an issuance that an action calls failed, and what is said of the failure.
func failedNow(issuing *certmanagerv1.CertificateCondition, v *view, a certificate.Action) (*certmanagerv1.CertificateRequest, string) {
	if a.Status == nil || len(v.Requests) == 0 || issuing != nil && issuing.Status == cmmeta.ConditionFalse {
		return nil, ""
	}
	now := certmanagerv1.FindCertificateCondition(a.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
	if now == nil || now.Status != cmmeta.ConditionFalse {
		return nil, ""
	}
	latest := slices.MaxFunc(v.Requests, func(a, b facts.Request) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return latest.CertificateRequest, now.Message
}
