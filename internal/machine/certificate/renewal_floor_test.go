package certificate

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/renewal"
)

// A certificate that is due the moment it is issued (here renewBefore is a second less than the lifetime, or less than
// that of a certificate that began an hour before it was issued) is not renewed again and again: the default decides,
// and the condition Ready, which is True, names the field.
func TestDueAtOnceIsNotIssuedForEver(t *testing.T) {
	for name, tc := range map[string]struct{ began, leaves time.Duration }{
		"a second less": {0, time.Second}, "an hour less, of one that began an hour ago": {time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.amend(func(s *certmanagerv1.CertificateSpec) {
				s.RenewBefore = &metav1.Duration{Duration: lifetime - tc.leaves}
			})
			w.settle()
			r := w.next()
			w.signFor(r, csrOf(t, r).PublicKey, w.now.Add(-tc.began), w.now.Add(lifetime-tc.began))
			wake := w.settle()
			ready := w.condition(certmanagerv1.CertificateConditionReady)
			if ready.Status != "True" || !strings.Contains(ready.Message, "spec.renewBefore (") {
				t.Errorf("Ready is %+v", ready)
			}
			if left := w.crt.Status.NotAfter.Sub(wake); left > lifetime/2 || left < lifetime/4 {
				t.Errorf("renewed %s before the end of a certificate that lasts %s", left, lifetime)
			}
			w.now = w.now.Add(time.Hour)
			if writes := w.statusWrites; !w.settle().Equal(wake) || w.statusWrites > writes || w.requestsMade > 1 {
				t.Errorf("an hour later: %d requests, %d further writes", w.requestsMade, w.statusWrites-writes)
			}
			w.now = wake
			w.settle()
			if c := w.condition(certmanagerv1.CertificateConditionIssuing); c.Reason != certmanagerv1.CertificateReasonRenewing {
				t.Errorf("not renewed when it is due: %+v", c)
			}
		})
	}
}

// TestFloorOfADefault: a certificate that lasts some minutes, or was backdated by most of its lifetime, is due by the
// default as soon as it is issued. It is issued again after five minutes.
func TestFloorOfADefault(t *testing.T) {
	w := newWorld(t)
	w.settle()
	r := w.next()
	r.CreationTimestamp = metav1.NewTime(w.now)
	w.signFor(r, csrOf(t, r).PublicKey, w.now.Add(-lifetime*9/10), w.now.Add(lifetime/10))
	if wake := w.settle(); !wake.Equal(r.CreationTimestamp.Add(renewal.Floor)) {
		t.Fatalf("woken at %s, want %s", wake, r.CreationTimestamp.Add(renewal.Floor))
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
