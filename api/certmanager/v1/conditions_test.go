package v1_test

import (
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

func TestSetCertificateCondition(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 123, time.UTC)
	crt := &certmanagerv1.Certificate{}
	crt.Generation = 1
	set := func(status cmmeta.ConditionStatus, reason string, now time.Time) certmanagerv1.CertificateCondition {
		certmanagerv1.SetCertificateCondition(crt, certmanagerv1.CertificateCondition{
			Type: certmanagerv1.CertificateConditionReady, Status: status, Reason: reason, Message: reason + "!",
		}, now)
		if n := len(crt.Status.Conditions); n != 1 {
			t.Fatalf("%d conditions, want 1", n)
		}
		return crt.Status.Conditions[0]
	}

	if c := set(cmmeta.ConditionFalse, "DoesNotExist", start); !c.LastTransitionTime.Time.Equal(start.Truncate(time.Second)) || c.ObservedGeneration != 1 {
		t.Errorf("new: %+v", c)
	}
	crt.Generation = 2
	c := set(cmmeta.ConditionFalse, "MissingData", start.Add(time.Hour))
	if !c.LastTransitionTime.Time.Equal(start.Truncate(time.Second)) {
		t.Errorf("same status: lastTransitionTime moved to %s", c.LastTransitionTime)
	}
	if c.Reason != "MissingData" || c.Message != "MissingData!" || c.ObservedGeneration != 2 {
		t.Errorf("same status: the rest is not overwritten: %+v", c)
	}
	if c := set(cmmeta.ConditionTrue, "Ready", start.Add(2*time.Hour)); !c.LastTransitionTime.Time.Equal(start.Add(2 * time.Hour).Truncate(time.Second)) {
		t.Errorf("new status: lastTransitionTime stayed at %s", c.LastTransitionTime)
	}
	if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
		t.Error("Ready=True is not found")
	}
	certmanagerv1.RemoveCertificateCondition(crt, certmanagerv1.CertificateConditionReady)
	if certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady) != nil {
		t.Error("a removed condition is found")
	}
}

func TestSetCertificateRequestCondition(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	cr := &certmanagerv1.CertificateRequest{}
	pending := certmanagerv1.CertificateRequestCondition{
		Type: certmanagerv1.CertificateRequestConditionReady, Status: cmmeta.ConditionFalse, Reason: "Pending",
	}
	certmanagerv1.SetCertificateRequestCondition(cr, pending, start)
	certmanagerv1.SetCertificateRequestCondition(cr, pending, start.Add(time.Hour))
	c := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, pending.Type)
	if c == nil || !c.LastTransitionTime.Time.Equal(start) {
		t.Fatalf("same status: %+v", c)
	}
	issued := pending
	issued.Status, issued.Reason = cmmeta.ConditionTrue, "Issued"
	certmanagerv1.SetCertificateRequestCondition(cr, issued, start.Add(time.Hour))
	if len(cr.Status.Conditions) != 1 || !c.LastTransitionTime.Time.Equal(start.Add(time.Hour)) || c.Reason != "Issued" {
		t.Errorf("new status: %+v", cr.Status.Conditions)
	}
	if certmanagerv1.HasCertificateRequestCondition(cr.Status.Conditions, pending.Type, cmmeta.ConditionFalse) {
		t.Error("Ready=False is still found")
	}
}

func TestSetIssuerCondition(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, issuer := range []certmanagerv1.GenericIssuer{&certmanagerv1.Issuer{}, &certmanagerv1.ClusterIssuer{}} {
		issuer.SetGeneration(3)
		ready := certmanagerv1.IssuerCondition{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionFalse, Reason: "ErrGetKeyPair"}
		certmanagerv1.SetIssuerCondition(issuer, ready, start)
		ready.Status, ready.Reason = cmmeta.ConditionTrue, "KeyPairVerified"
		certmanagerv1.SetIssuerCondition(issuer, ready, start.Add(time.Minute))
		certmanagerv1.SetIssuerCondition(issuer, ready, start.Add(time.Hour))
		cs := issuer.GetStatus().Conditions
		if len(cs) != 1 || !cs[0].LastTransitionTime.Time.Equal(start.Add(time.Minute)) || cs[0].ObservedGeneration != 3 {
			t.Errorf("%T: %+v", issuer, cs)
		}
		if !certmanagerv1.HasIssuerCondition(cs, certmanagerv1.IssuerConditionReady, cmmeta.ConditionTrue) {
			t.Errorf("%T: Ready=True is not found", issuer)
		}
	}
}
