package certificates

import (
	"errors"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/signer"
)

// TestRefusedRevocationIsRepeated: a CA that has refused is asked again every hour, however often it has refused, and
// any other failure is repeated as the engine repeats it.
func TestRefusedRevocationIsRepeated(t *testing.T) {
	for n := range 30 {
		if wait := engine.BackOff(hourly(fault.Terminal("X", "not yours")), n+1, 0.5); wait != time.Hour {
			t.Errorf("after %d refusals: %s", n+1, wait)
		}
	}
	trouble := fault.ClassRateLimited.After(10*time.Minute, revocation.ReasonRetrying, "one at a time")
	if err := hourly(trouble); !errors.Is(err, trouble) || engine.BackOff(err, 1, 0.5) != 10*time.Minute {
		t.Error(err)
	}
	if hourly(nil) != nil {
		t.Error("a success is repeated")
	}
}

// TestRevocationByNobody: while the issuer of the certificate that is to be revoked is gone, the issuer is looked for
// every hour. It need not be the one that the Certificate names now, so no event tells that it is there again.
func TestRevocationByNobody(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &certificates{Deps: &controller.Deps{Now: func() time.Time { return now }}}
	if at, err := r.askToRevoke(t.Context(), nil, &view{pinned: &pinned{}}); err != nil || at.Sub(now) != time.Hour {
		t.Errorf("looked for again at %s, %v", at, err)
	}
}

// TestAnswerOf: what an issuer says when to renew, and how it fails to.
func TestAnswerOf(t *testing.T) {
	about, now := facts.Digest{1}, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	info := &signer.RenewalInfo{Start: now.Add(time.Hour), End: now.Add(2 * time.Hour), ExplanationURL: "why", RetryAfter: time.Minute}
	failure := fault.After(6*time.Hour, "X", "no")
	for name, c := range map[string]struct {
		outcome engine.Outcome
		want    certificate.RenewalAnswer
	}{
		"a window": {engine.Outcome{Value: info}, certificate.RenewalAnswer{Start: info.Start, End: info.End, ExplanationURL: "why", RetryAfter: time.Minute}},
		"nothing":  {engine.Outcome{Value: (*signer.RenewalInfo)(nil)}, certificate.RenewalAnswer{None: true}},
		"failure":  {engine.Outcome{Err: failure}, certificate.RenewalAnswer{Error: failure, RetryAfter: 6 * time.Hour}},
	} {
		c.outcome.At, c.want.Certificate, c.want.At = now, about, now
		if got := answerOf(c.outcome, about); *got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestWaitFor: the list of waits says what a Certificate waits for, and leaves out those in order.
func TestWaitFor(t *testing.T) {
	type kind = certmanagerv1.CertificateConditionType
	says := func(kind kind, status cmmeta.ConditionStatus) certmanagerv1.CertificateCondition {
		return certmanagerv1.CertificateCondition{Type: kind, Status: status, Message: string(kind)}
	}
	ready, unready := says("Ready", "True"), says("Ready", "False")
	later := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		conditions []certmanagerv1.CertificateCondition
		wake       time.Time
		want       engine.For
	}{
		"in order":      {[]certmanagerv1.CertificateCondition{ready, says("Revoking", "False")}, later, engine.For{}},
		"being issued":  {[]certmanagerv1.CertificateCondition{ready, says("Issuing", "True")}, later, engine.For{What: engine.WaitEvent, Detail: "Issuing"}},
		"being revoked": {[]certmanagerv1.CertificateCondition{ready, says("Revoking", "True")}, later, engine.For{What: engine.WaitEvent, Detail: "Revoking"}},
		"backing off":   {[]certmanagerv1.CertificateCondition{unready, says("Issuing", "False")}, later, engine.For{What: engine.WaitTime, Detail: "Ready"}},
		"failed":        {[]certmanagerv1.CertificateCondition{unready}, time.Time{}, engine.For{What: engine.WaitEvent, Detail: "Ready"}},
	} {
		crt := &certmanagerv1.Certificate{}
		crt.Status.Conditions = c.conditions
		if got := waitFor(crt, certificate.Action{Wake: c.wake}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
