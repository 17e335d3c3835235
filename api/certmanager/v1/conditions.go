package v1

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmmeta "chancery.dev/api/meta/v1"
)

// SetCertificateCondition sets a condition (spec §1.1). Its lastTransitionTime becomes now if its status
// is new, and stays otherwise; its observedGeneration becomes the Certificate's generation; the rest is
// overwritten.
func SetCertificateCondition(crt *Certificate, c CertificateCondition, now time.Time) {
	c.ObservedGeneration = crt.Generation
	old := FindCertificateCondition(crt.Status.Conditions, c.Type)
	if old == nil {
		c.LastTransitionTime = transition(now)
		crt.Status.Conditions = append(crt.Status.Conditions, c)
		return
	}
	c.LastTransitionTime = old.LastTransitionTime
	if old.Status != c.Status || c.LastTransitionTime == nil {
		c.LastTransitionTime = transition(now)
	}
	*old = c
}

// FindCertificateCondition returns the condition of a type, in place, or nil.
func FindCertificateCondition(cs []CertificateCondition, t CertificateConditionType) *CertificateCondition {
	i := slices.IndexFunc(cs, func(c CertificateCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &cs[i]
}

// HasCertificateCondition reports whether the condition of a type has a status.
func HasCertificateCondition(cs []CertificateCondition, t CertificateConditionType, s cmmeta.ConditionStatus) bool {
	c := FindCertificateCondition(cs, t)
	return c != nil && c.Status == s
}

// RemoveCertificateCondition removes the condition of a type, if there is one.
func RemoveCertificateCondition(crt *Certificate, t CertificateConditionType) {
	crt.Status.Conditions = slices.DeleteFunc(crt.Status.Conditions,
		func(c CertificateCondition) bool { return c.Type == t })
}

// SetCertificateRequestCondition sets a condition (spec §1.1). Its lastTransitionTime becomes now if its
// status is new, and stays otherwise; the rest is overwritten.
func SetCertificateRequestCondition(cr *CertificateRequest, c CertificateRequestCondition, now time.Time) {
	old := FindCertificateRequestCondition(cr.Status.Conditions, c.Type)
	if old == nil {
		c.LastTransitionTime = transition(now)
		cr.Status.Conditions = append(cr.Status.Conditions, c)
		return
	}
	c.LastTransitionTime = old.LastTransitionTime
	if old.Status != c.Status || c.LastTransitionTime == nil {
		c.LastTransitionTime = transition(now)
	}
	*old = c
}

// FindCertificateRequestCondition returns the condition of a type, in place, or nil.
func FindCertificateRequestCondition(cs []CertificateRequestCondition, t CertificateRequestConditionType) *CertificateRequestCondition {
	i := slices.IndexFunc(cs, func(c CertificateRequestCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &cs[i]
}

// HasCertificateRequestCondition reports whether the condition of a type has a status.
func HasCertificateRequestCondition(cs []CertificateRequestCondition, t CertificateRequestConditionType, s cmmeta.ConditionStatus) bool {
	c := FindCertificateRequestCondition(cs, t)
	return c != nil && c.Status == s
}

// SetIssuerCondition sets a condition (spec §1.1). Its lastTransitionTime becomes now if its status is
// new, and stays otherwise; its observedGeneration becomes the issuer's generation; the rest is
// overwritten.
func SetIssuerCondition(issuer GenericIssuer, c IssuerCondition, now time.Time) {
	c.ObservedGeneration = issuer.GetGeneration()
	status := issuer.GetStatus()
	old := FindIssuerCondition(status.Conditions, c.Type)
	if old == nil {
		c.LastTransitionTime = transition(now)
		status.Conditions = append(status.Conditions, c)
		return
	}
	c.LastTransitionTime = old.LastTransitionTime
	if old.Status != c.Status || c.LastTransitionTime == nil {
		c.LastTransitionTime = transition(now)
	}
	*old = c
}

// FindIssuerCondition returns the condition of a type, in place, or nil.
func FindIssuerCondition(cs []IssuerCondition, t IssuerConditionType) *IssuerCondition {
	i := slices.IndexFunc(cs, func(c IssuerCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &cs[i]
}

// HasIssuerCondition reports whether the condition of a type has a status.
func HasIssuerCondition(cs []IssuerCondition, t IssuerConditionType, s cmmeta.ConditionStatus) bool {
	c := FindIssuerCondition(cs, t)
	return c != nil && c.Status == s
}

// transition cuts the time to whole seconds, as it is stored, so that a status read back compares equal.
func transition(now time.Time) *metav1.Time {
	t := metav1.NewTime(now.Truncate(time.Second))
	return &t
}
