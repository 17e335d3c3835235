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
	"chancery.dev/internal/fault"
)

func TestBackoff(t *testing.T) {
	for _, f := range failures() {
		class, last := f.Class, time.Duration(-1)
		for n := 1; n < 20; n++ {
			low, high := Backoff(f, n, 0), Backoff(f, n, 0.999)
			if low < last || high < low || high > 2*time.Hour+5*time.Minute {
				t.Errorf("%s after %d: between %s and %s, before %s", class, n, low, high, last)
			}
			last = low
			if got := Backoff(after(90*time.Second, class), n, 0); got < 90*time.Second && !(class == fault.ClassNotProcessed && n <= fault.Orders.With(class).Free) {
				t.Errorf("%s after %d: %s undercuts Retry-After", class, n, got)
			}
		}
	}
	equal(t, Backoff(failure(fault.ClassUnavailable, ""), 0, 0.5), time.Second)
	equal(t, Backoff(failure(fault.ClassRateLimited, ""), 2, 0.5), 10*time.Minute)
	// A year is no answer: a person would have to notice.
	equal(t, Backoff(after(366*24*time.Hour, fault.ClassUnavailable), 1, 0), 7*24*time.Hour)
}

func TestPollDelay(t *testing.T) {
	equal(t, PollDelay(0, time.Hour), fault.Polls.With("").First) // the first look comes fast
	equal(t, PollDelay(1, 3*time.Second), 3*time.Second)
	equal(t, PollDelay(1, 24*time.Hour), fault.Polls.With("").Obeyed)
	equal(t, PollDelay(3, 0), 200*time.Millisecond)
	equal(t, PollDelay(30, 0), fault.Polls.With("").Most)
	equal(t, PollDelay(longPolls, 0), fault.SlowPolls.With("").First)
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
	for text, f := range map[string]*fault.Fault{
		"retried every 3.217s":             {Class: fault.ClassSolver, Delay: 3217 * time.Millisecond},
		"retried every 1h0m0s":             {Class: fault.ClassCredential, Delay: time.Hour},
		"retrying at 2026-01-02T03:04:05Z": {Class: fault.ClassSolver, Delay: 5 * time.Second, Exact: true},
		"retrying with back-off":           {Class: fault.ClassSolver},
	} {
		equal(t, retrying(f, at), text)
	}
	equal(t, retrying(failure(fault.ClassRateLimited, ""), at), "retrying at 2026-01-02T03:04:05Z")
	equal(t, retrying(after(5*time.Second, fault.ClassUnavailable), at), "retrying at 2026-01-02T03:04:05Z")
}

// TestUnsentIsNoAttempt: an order that was not sent, because its answer is known, waits for as long as that says, and
// the first that the CA refuses by itself is the first.
func TestUnsentIsNoAttempt(t *testing.T) {
	t.Parallel()
	m := OrderMemory{}
	for range 5 {
		m = m.After(OrderOutcome{Step: OrderCreate, At: start, Failure: unsent(time.Hour)})
		if wait := Backoff(m.Failure, m.Failures, m.Jitter); wait != time.Hour {
			t.Errorf("it waits %s", wait)
		}
	}
	if said := retrying(m.Failure, start); said != "retrying at "+instant(start) {
		t.Errorf("it says %q", said)
	}
	if one, other := retrying(unsent(time.Minute), start), retrying(unsent(time.Minute), start.Add(time.Minute)); one != other {
		t.Errorf("it says %q, and then %q: a write each time", one, other)
	}
	m = m.After(OrderOutcome{Step: OrderCreate, At: start, Failure: failure(fault.ClassRateLimited, "too many")})
	if wait := Backoff(m.Failure, m.Failures, m.Jitter); m.Failures != 1 || wait > time.Minute {
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

// unsent is that of an order which was not sent.
func unsent(wait time.Duration) *fault.Fault {
	f := after(wait, fault.ClassRateLimited)
	f.Unsent = true
	return f
}

// TestSaid: how a reason ends can be cut off again, by what is stored of it, and nothing else is.
func TestSaid(t *testing.T) {
	const what = "no such zone; really"
	equal(t, Said(ending(what, WithBackOff), WithBackOff), what)
	equal(t, Said(ending(what, ""), ""), what)
	s := newChallengeState().processing().read("pending", "pending")
	s.Memory = s.Memory.After(ChallengeOutcome{Step: ChallengePresent, At: start, Failure: after(time.Hour, fault.ClassSolver)})
	status := DecideChallenge(s, start).Status
	equal(t, Said(status.Reason, status.ReasonEnd), "Error presenting challenge: detail")
	equal(t, status.Reason, "Error presenting challenge: detail; retrying at 2026-01-01T01:00:00Z")
	equal(t, about(&acmev1.Challenge{Status: *status}).cause("").Message, "Error presenting challenge: detail")
}
