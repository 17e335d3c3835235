package acmeflow

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		status int
		code   acme.Code
		want   fault.Class
	}{
		{0, "", fault.ClassUnavailable},
		{200, "", fault.ClassUnavailable},
		{500, acme.CodeServerInternal, fault.ClassUnavailable},
		{503, "", fault.ClassUnavailable},
		{503, acme.CodeRateLimited, fault.ClassRateLimited},
		{429, "", fault.ClassRateLimited},
		{400, acme.CodeBadNonce, fault.ClassNotProcessed},
		{400, acme.CodeMalformed, fault.ClassRefused},
		{409, acme.CodeAlreadyReplaced, fault.ClassRefused},
		{403, acme.CodeOrderNotReady, fault.ClassNotReady},
		{403, acme.CodeUnauthorized, fault.ClassRefused},
		{404, acme.CodeMalformed, fault.ClassNotFound},
		{408, "", fault.ClassUnavailable},
		{400, acme.CodeRejectedIdentifier, fault.ClassPermanent},
		{400, acme.CodeBadCSR, fault.ClassPermanent},
	} {
		if got := Classify(test.status, test.code); got != test.want {
			t.Errorf("%d %s: %s, want %s", test.status, test.code, got, test.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	for _, f := range failures() {
		class, last := f.Class, time.Duration(-1)
		for n := 1; n < 20; n++ {
			low, high := Backoff(f, n, 0), Backoff(f, n, 0.999)
			if low < last || high < low || high > 2*time.Hour+5*time.Minute {
				t.Errorf("%s after %d: between %s and %s, before %s", class, n, low, high, last)
			}
			last = low
			asked := Failure{Class: class, RetryAfter: 90 * time.Second}
			if got := Backoff(asked, n, 0); got < 90*time.Second && !(class == fault.ClassNotProcessed && n <= freeNonceRetries) {
				t.Errorf("%s after %d: %s undercuts Retry-After", class, n, got)
			}
		}
	}
	equal(t, Backoff(Failure{Class: fault.ClassUnavailable}, 0, 0.5), time.Second)
	equal(t, Backoff(Failure{Class: fault.ClassRateLimited}, 2, 0.5), 10*time.Minute)
	// A year is no answer: a person would have to notice.
	equal(t, Backoff(Failure{Class: fault.ClassUnavailable, RetryAfter: 366 * 24 * time.Hour}, 1, 0), 7*24*time.Hour)
}

func TestPollDelay(t *testing.T) {
	equal(t, PollDelay(0, time.Hour), firstPoll) // the first look comes fast
	equal(t, PollDelay(1, 3*time.Second), 3*time.Second)
	equal(t, PollDelay(1, 24*time.Hour), maxPollRetryAfter)
	equal(t, PollDelay(3, 0), 200*time.Millisecond)
	equal(t, PollDelay(30, 0), maxPoll)
	equal(t, PollDelay(longPolls, 0), slowPoll)
	equal(t, PollDelay(longPolls, 3*time.Second), 3*time.Second)
}

// chainFrom is a self-made chain of one certificate with an issuer name.
func chainFrom(t *testing.T, issuer string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: issuer}}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, parent, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestChainMatches(t *testing.T) {
	first, second := chainFrom(t, "Old Root"), append(chainFrom(t, "Old Root"), chainFrom(t, "New Root")...)
	equal(t, ChainMatches("Old Root", first), true)
	equal(t, ChainMatches("New Root", first), false)
	equal(t, ChainMatches("New Root", second), true)
	equal(t, ChainMatches("New Root", nil), false)
	equal(t, ChainMatches("New Root", []byte("not PEM")), false)
}

func TestNamesOfSteps(t *testing.T) {
	for s := OrderWait; s <= OrderDone; s++ {
		if name := s.String(); name == "" || name[len(name)-1] == ')' {
			t.Errorf("step %d is called %q", int(s), name)
		}
	}
	for s := ChallengeWait; s <= ChallengeDone; s++ {
		if name := s.String(); name == "" || name[len(name)-1] == ')' {
			t.Errorf("step %d is called %q", int(s), name)
		}
	}
}

// TestRetrying writes no time where a solver asks for the same wait each time: a reason that changed would be a
// write for each try. Whether the wait is the same each time is said, not guessed from its length.
func TestRetrying(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, f := range map[string]Failure{
		"; retried every 3.217s":             {Class: fault.ClassSolver, RetryAfter: 3217 * time.Millisecond, Period: true},
		"; retried every 1h0m0s":             {Class: fault.ClassCredential, RetryAfter: time.Hour, Period: true},
		"; retrying at 2026-01-02T03:04:05Z": {Class: fault.ClassSolver, RetryAfter: 5 * time.Second},
		"; retrying with back-off":           {Class: fault.ClassSolver, Period: true},
	} {
		equal(t, f.retrying(at), text)
	}
	limited, asked := Failure{Class: fault.ClassRateLimited}, Failure{Class: fault.ClassUnavailable, RetryAfter: 5 * time.Second}
	equal(t, limited.retrying(at), "; retrying at 2026-01-02T03:04:05Z")
	equal(t, asked.retrying(at), "; retrying at 2026-01-02T03:04:05Z")
}

// TestUnsentIsNoAttempt: an order that was not sent, because its answer is known, waits for as long as that says, and
// the first that the CA refuses by itself is the first.
func TestUnsentIsNoAttempt(t *testing.T) {
	t.Parallel()
	m := OrderMemory{}
	for range 5 {
		m = m.After(OrderOutcome{Step: OrderCreate, At: start, Failure: &Failure{
			Class: fault.ClassRateLimited, Detail: "not sent", RetryAfter: time.Hour, Unsent: true,
		}})
		if wait := Backoff(*m.Failure, m.Failures, m.Jitter); wait != time.Hour {
			t.Errorf("it waits %s", wait)
		}
	}
	if said := m.Failure.retrying(start); said != "; retrying at "+instant(start) {
		t.Errorf("it says %q", said)
	}
	m.Failure.RetryAfter = time.Minute
	if one, other := m.Failure.retrying(start), m.Failure.retrying(start.Add(time.Minute)); one != other {
		t.Errorf("it says %q, and then %q: a write each time", one, other)
	}
	m = m.After(OrderOutcome{Step: OrderCreate, At: start, Failure: &Failure{Class: fault.ClassRateLimited, Detail: "too many"}})
	if wait := Backoff(*m.Failure, m.Failures, m.Jitter); m.Failures != 1 || wait > time.Minute {
		t.Errorf("after %d failures it waits %s", m.Failures, wait)
	}
}

// TestAnEmptyChainIsAFailure: a download without a certificate is tried again, with a back-off.
func TestAnEmptyChainIsAFailure(t *testing.T) {
	s := newOrderState().stored(acmev1.Valid, "valid").saw("valid")
	s.Memory = s.Memory.After(OrderOutcome{Step: OrderDownload, At: start})
	a := DecideOrder(s, start)
	equal(t, a.Step, OrderWait)
	equal(t, a.Status.Reason, "Failed to download certificate: the ACME server sent an empty chain; retrying with back-off")
	equal(t, a.Wake.After(start), true)
}

// TestNextTry: what retrying puts at the end of a reason can be cut off again, and nothing else is.
func TestNextTry(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, f := range map[string]Failure{
		"with back-off":           {Class: fault.ClassSolver},
		"every 30s":               {Period: true, RetryAfter: 30 * time.Second},
		"at 2026-01-02T03:04:05Z": {Class: fault.ClassRateLimited},
		sentLater:                 {Unsent: true},
	} {
		if what, next := NextTry("no such zone; really" + f.retrying(at)); what != "no such zone; really" || next != want {
			t.Errorf("%q and %q, want %q", what, next, want)
		}
	}
	if what, next := NextTry("no such zone; really"); what != "no such zone; really" || next != "" {
		t.Errorf("%q and %q", what, next)
	}
}
