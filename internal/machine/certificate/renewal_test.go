package certificate

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/renewal"
)

func openAt(windows ...certmanagerv1.CertificateRenewalWindow) func(*certmanagerv1.CertificateSpec) {
	return func(s *certmanagerv1.CertificateSpec) {
		s.RenewBefore = &metav1.Duration{Duration: 30 * 24 * time.Hour}
		s.Renewal = &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyRenewBefore, Windows: windows}
	}
}

func opens(cron string, length time.Duration, zone string) certmanagerv1.CertificateRenewalWindow {
	return certmanagerv1.CertificateRenewalWindow{Cron: cron, WindowDuration: metav1.Duration{Duration: length}, Timezone: zone}
}

// Windows that cannot be kept are said on Ready and in one event, and renewal comes
// all the same (spec §2.1, §2.5).
func TestWindowErrorIsSaidOnceAndRenews(t *testing.T) {
	w := issued(t)
	w.amend(openAt(opens("0 0 30 2 *", time.Hour, "")))
	for range 3 {
		w.settle()
	}
	ready := w.condition(certmanagerv1.CertificateConditionReady)
	if ready.Status != "False" || ready.Reason != "WindowError" || !strings.Contains(ready.Message, "spec.renewal.windows") {
		t.Errorf("Ready is %+v", ready)
	}
	if len(w.events) != 1 || !w.events[0].Warning || w.events[0].Reason != "WindowError" {
		t.Errorf("events %v", w.events)
	}
	if due := w.crt.Status.NotAfter.Add(-30 * 24 * time.Hour); w.crt.Status.RenewalTime == nil || !w.crt.Status.RenewalTime.Time.Equal(due) {
		t.Errorf("renewal at %v, want %s", w.crt.Status.RenewalTime, due)
	}
	w.now = w.crt.Status.RenewalTime.Time
	w.settle()
	if c := w.condition(certmanagerv1.CertificateConditionIssuing); c.Reason != "Renewing" {
		t.Errorf("Issuing is %+v", c)
	}
}

// TestBadWindowsAreSaidBeforeTheFirstCertificate: nothing else would say so while the issuer is slow. The certificate
// is issued all the same, and a failure is waited out as ever.
func TestBadWindowsAreSaidBeforeTheFirstCertificate(t *testing.T) {
	w := newWorld(t)
	byClass(w)
	w.amend(openAt(opens("0 2 * * *", time.Hour, "Mars/Olympus")))
	w.settle()
	ready := w.condition(certmanagerv1.CertificateConditionReady)
	if ready.Reason != certmanagerv1.CertificateReasonDoesNotExist || !strings.Contains(ready.Message, `spec.renewal.windows[0]: timezone: "Mars/Olympus"`) {
		t.Errorf("Ready is %+v", ready)
	}
	if w.requestsMade != 1 || w.statusWrites != 1 {
		t.Fatalf("%d requests, %d status writes", w.requestsMade, w.statusWrites)
	}
	w.failAs(fault.ClassPermanent)
	w.settle()
	w.now = w.now.Add(time.Minute)
	if w.settle(); w.requestsMade != 1 {
		t.Errorf("tried again a minute after a failure")
	}
}

// What cert-manager has said stays: a Certificate in order costs no write when it is
// taken over. After its next renewal our own rule holds.
func TestRenewalTimeIsTakenOver(t *testing.T) {
	w := issued(t)
	plain := renewal.Of(w.crt, w.crt.Status.NotBefore.Time, w.crt.Status.NotAfter.Time, time.Time{}).Plain
	if w.crt.Status.RenewalTime.Time.Equal(plain) {
		t.Fatal("our own rule is the same as cert-manager's: the test shows nothing")
	}
	w.crt.Status.RenewalTime = &metav1.Time{Time: plain}
	if wake := w.settle(); w.statusWrites != 0 || !wake.Equal(plain) {
		t.Errorf("%d writes, woken at %s, want none and %s", w.statusWrites, wake, plain)
	}
	w.amend(func(s *certmanagerv1.CertificateSpec) { s.RenewBeforePercentage = new(int32(50)) })
	w.settle()
	if w.crt.Status.RenewalTime.Time.Equal(plain) {
		t.Error("stays although the spec says otherwise now")
	}
}

// The UID spreads renewals, and is another one after a move or from a backup: what was said under the old one stays,
// or certificates would be renewed by the move. A time that no UID leads to does not stay.
func TestRenewalTimeOfAnotherUID(t *testing.T) {
	w := issued(t)
	said := *w.crt.Status.RenewalTime
	w.crt.UID = "another"
	if own := renewal.Of(w.crt, w.crt.Status.NotBefore.Time, w.crt.Status.NotAfter.Time, time.Time{}).At; own.Equal(said.Time) {
		t.Fatal("the UID has no say: the test shows nothing")
	}
	if wake := w.settle(); w.statusWrites != 0 || !wake.Equal(said.Time) {
		t.Errorf("%d writes, woken at %s, want none and %s", w.statusWrites, wake, said)
	}
	w.crt.Status.RenewalTime = &metav1.Time{Time: said.Add(10 * 24 * time.Hour)}
	if w.settle(); w.crt.Status.RenewalTime.After(said.Add(5 * 24 * time.Hour)) {
		t.Errorf("a time that is too late stays: %s", w.crt.Status.RenewalTime)
	}
	w.crt.Status.RenewalTime = &metav1.Time{Time: said.Add(-20 * 24 * time.Hour)}
	if w.settle(); w.crt.Status.RenewalTime.Time.Before(said.Add(-5 * 24 * time.Hour)) {
		t.Errorf("a time that is too early stays: %s", w.crt.Status.RenewalTime)
	}
	said = *w.crt.Status.RenewalTime
	w.amend(func(s *certmanagerv1.CertificateSpec) {
		s.Renewal = &certmanagerv1.CertificateRenewal{Windows: []certmanagerv1.CertificateRenewalWindow{opens("0 3 * * *", time.Hour, "")}}
	})
	if w.settle(); w.crt.Status.RenewalTime.UTC().Hour() != 3 {
		t.Errorf("a time outside of the windows stays: %s, said %s", w.crt.Status.RenewalTime.UTC(), said)
	}
}
