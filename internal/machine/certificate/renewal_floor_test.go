package certificate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// A certificate that is due the moment it is issued (here renewBefore is a second
// less than the lifetime) is not issued again and again.
func TestDueAtOnceIsNotIssuedForEver(t *testing.T) {
	w := issued(t)
	request := w.requests[0]
	request.CreationTimestamp = metav1.NewTime(w.now)
	lifetime := w.crt.Status.NotAfter.Sub(w.crt.Status.NotBefore.Time)
	w.amend(func(s *certmanagerv1.CertificateSpec) {
		s.RenewBefore = &metav1.Duration{Duration: lifetime - time.Second}
	})
	w.now = w.now.Add(2 * time.Second)
	wake := w.settle()
	if w.condition(certmanagerv1.CertificateConditionIssuing).Status == "True" {
		t.Fatalf("issued again after two seconds: %+v", w.crt.Status.Conditions)
	}
	if want := request.CreationTimestamp.Add(renewalFloor); !wake.Equal(want) {
		t.Fatalf("woken at %s, want %s", wake, want)
	}
	w.now = wake
	w.settle()
	if c := w.condition(certmanagerv1.CertificateConditionIssuing); c.Reason != certmanagerv1.CertificateReasonRenewing {
		t.Errorf("not renewed after the floor: %+v", c)
	}
}

// A renewal that is forced on a Certificate whose Secret belongs to another one does
// not take the Secret away from it.
func TestForcedRenewalRespectsTheOwner(t *testing.T) {
	w := issued(t)
	w.trigger(certmanagerv1.CertificateReasonManuallyTriggered)
	s := w.state()
	s.SecretOwner = "another"
	a := Decide(s, w.now)
	if a.Step != StepRest || a.Status == nil {
		t.Fatalf("%+v", a)
	}
	if c := certmanagerv1.FindCertificateCondition(a.Status.Conditions, certmanagerv1.CertificateConditionIssuing); c != nil {
		t.Errorf("it is still to be issued: %+v", c)
	}
}
