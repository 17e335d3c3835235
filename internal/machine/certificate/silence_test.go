package certificate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
)

// A person whose clock is ahead asks for a renewal that fails: that is one failure, not
// one after the other until our clock has caught up.
func TestTriggerByAClockThatIsAhead(t *testing.T) {
	w := issued(t)
	w.trigger(certmanagerv1.CertificateReasonManuallyTriggered)
	ahead := metav1.NewTime(w.now.Add(time.Hour))
	w.crt.Status.Conditions[1].LastTransitionTime = &ahead
	w.settle()
	for range 3 {
		w.now = w.now.Add(2 * time.Second)
		if r := w.next(); r.Status.FailureTime == nil {
			w.fail(r)
		}
		w.settle()
	}
	if w.requestsMade != 1 || *w.crt.Status.FailedIssuanceAttempts != 1 {
		t.Errorf("%d requests, status %+v", w.requestsMade, w.crt.Status)
	}
}

// A time that was written down while a clock was a year ahead does not keep a
// certificate from being renewed for a year.
func TestTimesFromTheFutureAreNotWaitedFor(t *testing.T) {
	for name, arrange := range map[string]func(*world, metav1.Time){
		"the last failure": func(w *world, ahead metav1.Time) {
			w.crt.Status.LastFailureTime = &ahead
		},
		"the last request": func(w *world, ahead metav1.Time) {
			w.requests[0].CreationTimestamp = ahead
		},
	} {
		w := issued(t)
		arrange(w, metav1.NewTime(w.now.Add(365*24*time.Hour)))
		w.now = w.crt.Status.RenewalTime.Time
		w.settle()
		if c := w.condition(certmanagerv1.CertificateConditionIssuing); c.Status != cmmeta.ConditionTrue {
			t.Errorf("%s: not renewed: %+v", name, w.crt.Status.Conditions)
		}
	}
}

// A Certificate that was applied before its issuer may have failed for good by the
// first version of that: whether it has changed since is not known.
func TestPermanentFailureWithoutAnIssuerVersion(t *testing.T) {
	w := newWorld(t)
	w.backoff.ByClass = true
	w.settle()
	w.issuer = &IssuerFacts{Version: "a/1"}
	w.failAs(fault.ClassPermanent)
	failed := w.now.Truncate(time.Second)
	wake := w.settle()
	if got := wake.Sub(failed); got != time.Hour {
		t.Fatalf("waits %s, want the hour of failures of no known class", got)
	}
	w.now = wake
	w.settle()
	w.failAs(fault.ClassPermanent)
	if got := w.settle().Sub(w.now); got < day*4/5-time.Second || got > day*6/5 {
		t.Errorf("waits %s though nothing can have changed unseen", got)
	}
}

// Of two Certificates with one Secret, which does not say whose it is, the one that has
// to wait says so once.
func TestForeignSecretWithoutNameIsSaidOnce(t *testing.T) {
	w := issued(t)
	delete(w.secret.Annotations, certmanagerv1.CertificateNameAnnotation)
	w.owner = "another"
	w.settle()
	was := w.statusWrites
	for range 3 {
		w.now = w.now.Add(duplicateRecheck)
		w.settle()
	}
	if w.statusWrites != was || w.condition(certmanagerv1.CertificateConditionReady).Reason != certmanagerv1.CertificateReasonIncorrectCertificate {
		t.Errorf("written %d times more: %+v", w.statusWrites-was, w.crt.Status.Conditions)
	}
}

// For those who wait after a failure the Secret is repaired all the same, a pause after the last time.
func TestRepairIsNotForgottenWhileWaiting(t *testing.T) {
	w := issued(t)
	w.backoff.ByClass, w.issuer = true, &IssuerFacts{Version: "a/1"}
	w.trigger(certmanagerv1.CertificateReasonManuallyTriggered)
	w.settle()
	w.failAs(fault.ClassPermanent)
	w.settle()
	w.amend(func(s *certmanagerv1.CertificateSpec) {
		s.RenewBefore = &metav1.Duration{Duration: lifetime - time.Second}
	})
	w.now = w.now.Add(time.Hour)
	w.repairedAt = w.now
	w.secret.Labels[certmanagerv1.ManagedSecretLabel] = "no"
	w.versions++
	wake := w.settle()
	if want := w.now.Add(repairPause); !wake.Equal(want) {
		t.Fatalf("woken at %s, want %s: %v %+v", wake, want, w.steps, w.crt.Status)
	}
	w.now = wake
	if w.settle(); w.repairs != 1 {
		t.Errorf("repaired %d times", w.repairs)
	}
}

// A template cannot make the Secret pass for a next private key, which we would delete.
func TestTemplateDoesNotMakeANextPrivateKey(t *testing.T) {
	w := newWorld(t)
	w.crt.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{
		certmanagerv1.NextPrivateKeyLabel: "true", certmanagerv1.ManagedSecretLabel: "false", "team": "web",
	}}
	w.settle()
	w.sign(w.requests[0])
	w.settle()
	if _, ok := w.secret.Labels[certmanagerv1.NextPrivateKeyLabel]; ok || w.secret.Labels["team"] != "web" || w.secret.Labels[certmanagerv1.ManagedSecretLabel] != "true" {
		t.Errorf("labels %v", w.secret.Labels)
	}
	if w.repairs != 0 {
		t.Errorf("repaired %d times", w.repairs)
	}
}

// A time that somebody has chosen in a window which reaches past the certificate's end
// is no time to renew at.
func TestRenewalTimeOfOthersIsBeforeTheEnd(t *testing.T) {
	w := issued(t)
	end := w.crt.Status.NotAfter.Time
	w.issuer = &IssuerFacts{Version: "a/1", Informs: true}
	w.crt.Status.ACME = &certmanagerv1.CertificateACMEStatus{ARI: &certmanagerv1.CertificateARIStatus{
		LastChecked: at(w.now), NextCheck: at(end.Add(time.Hour)),
		SuggestedWindow: &certmanagerv1.ARIWindow{Start: *at(end.Add(-20 * 24 * time.Hour)), End: *at(end.Add(24 * time.Hour))},
	}}
	w.crt.Status.RenewalTime = at(end.Add(time.Hour))
	w.settle()
	if due := w.crt.Status.RenewalTime; !due.Time.Before(end) {
		t.Errorf("renewed at %s, and it ends at %s", due, end)
	}
}
