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
		status          int
		problem, detail string
		want            ErrorClass
	}{
		{0, "", "connection reset", ErrorUnavailable},
		{200, "", "truncated body", ErrorUnavailable},
		{500, acme.ProblemNamespace + "serverInternal", "", ErrorUnavailable},
		{503, "", "", ErrorUnavailable},
		{503, acme.ProblemNamespace + "rateLimited", "", ErrorRateLimited},
		{429, "", "", ErrorRateLimited},
		{400, acme.ProblemNamespace + "badNonce", "", ErrorBadNonce},
		{400, acme.ProblemNamespace + "malformed", "no such order", ErrorMalformed},
		{400, acme.ProblemNamespace + "malformed", "could not parse replaces", ErrorReplaces},
		{409, acme.ProblemNamespace + "alreadyReplaced", "", ErrorReplaces},
		{403, acme.ProblemNamespace + "orderNotReady", "", ErrorNotReady},
		{403, acme.ProblemNamespace + "unauthorized", "", ErrorPermanent},
		{404, acme.ProblemNamespace + "malformed", "", ErrorNotFound},
		{408, "", "", ErrorUnavailable},
		{400, acme.ProblemNamespace + "rejectedIdentifier", "", ErrorPermanent},
		{400, acme.ProblemNamespace + "badCSR", "", ErrorPermanent},
	} {
		if got := Classify(test.status, test.problem, test.detail); got != test.want {
			t.Errorf("%d %s %q: %s, want %s", test.status, test.problem, test.detail, got, test.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	for _, class := range failureClasses {
		last := time.Duration(-1)
		for n := 1; n < 20; n++ {
			low, high := Backoff(Failure{Class: class}, n, 0), Backoff(Failure{Class: class}, n, 0.999)
			if low < last || high < low || high > 2*time.Hour+5*time.Minute {
				t.Errorf("%s after %d: between %s and %s, before %s", class, n, low, high, last)
			}
			last = low
			asked := Failure{Class: class, RetryAfter: 90 * time.Second}
			if got := Backoff(asked, n, 0); got < 90*time.Second && !(class == ErrorBadNonce && n <= freeNonceRetries) {
				t.Errorf("%s after %d: %s undercuts Retry-After", class, n, got)
			}
		}
	}
	equal(t, Backoff(Failure{Class: ErrorUnavailable}, 0, 0.5), time.Second)
	equal(t, Backoff(Failure{Class: ErrorRateLimited}, 2, 0.5), 10*time.Minute)
	// A year is no answer: a person would have to notice.
	equal(t, Backoff(Failure{Class: ErrorUnavailable, RetryAfter: 366 * 24 * time.Hour}, 1, 0), 7*24*time.Hour)
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

func TestSelectChain(t *testing.T) {
	first, second := chainFrom(t, "Old Root"), append(chainFrom(t, "Old Root"), chainFrom(t, "New Root")...)
	chains := [][]byte{first, second}
	equal(t, string(SelectChain("", chains)), string(first))
	equal(t, string(SelectChain("New Root", chains)), string(second))
	equal(t, string(SelectChain("No Root", chains)), string(first))
	equal(t, SelectChain("New Root", nil) == nil, true)
	equal(t, ChainMatches("New Root", []byte("not PEM")), false)
}

func TestNamesOfStepsAndClasses(t *testing.T) {
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
	equal(t, ErrorPermanent, "Permanent")
	equal(t, OrderStep(99), "OrderStep(99)")
	equal(t, ChallengeStep(99), "ChallengeStep(99)")
	equal(t, ErrorClass(99), "ErrorClass(99)")
}

// TestFailureClass reads the class of a failure from what people read of it.
func TestFailureClass(t *testing.T) {
	const urn = acme.ProblemNamespace
	for reason, c := range map[string]struct {
		state acmev1.State
		want  fault.Class
	}{
		"": {acmev1.Pending, ""},
		"Challenge c for domain \"a\" (DNS-01) is invalid: Error accepting authorization: 403 " + urn + "unauthorized: wrong TXT":     {acmev1.Invalid, fault.ClassValidation},
		"Challenge c for domain \"a\" (DNS-01) is expired: The authorization expired before it was validated":                         {acmev1.Expired, fault.ClassValidation},
		"Challenge c for domain \"a\" (DNS-01) is errored: The authorization was deactivated at the ACME server":                      {acmev1.Errored, fault.ClassUnavailable},
		"The ACME server shows the order as invalid: 500 " + urn + "serverInternal: sorry":                                            {acmev1.Invalid, fault.ClassUnavailable},
		"The ACME server shows the order as invalid: 429 " + urn + "rateLimited: too many certificates":                               {acmev1.Invalid, fault.ClassRateLimited},
		"The ACME server shows the order as invalid: 400 " + urn + "badCSR: weak key":                                                 {acmev1.Invalid, fault.ClassPermanent},
		"The ACME server shows the order as invalid: " + urn + "compound: several; a.example.com: " + urn + "rejectedIdentifier: no":  {acmev1.Invalid, fault.ClassPermanent},
		"Failed to create Order: 400 " + urn + "rejectedIdentifier: no":                                                               {acmev1.Errored, fault.ClassPermanent},
		"Failed to create Order: 403 " + urn + "userActionRequired: new terms: visit https://ca.example/terms":                        {acmev1.Errored, fault.ClassUnavailable},
		"Failed to create Order: 403 " + urn + "unauthorized: the account is closed":                                                  {acmev1.Errored, fault.ClassUnavailable},
		"Failed to create Order: 400 " + urn + "malformed: no":                                                                        {acmev1.Errored, fault.ClassPermanent},
		"Failed to create Order: acme: certificate authority does not advertise a profile with name x":                                {acmev1.Errored, fault.ClassPermanent},
		"Failed to create Order: acme: POST https://ca/new-order: the server answered 404 Not Found without an ACME problem document": {acmev1.Errored, fault.ClassUnavailable},
		"Failed to finalize Order: " + noRequest:                                                                                      {acmev1.Errored, fault.ClassPermanent},
		"Failed to finalize Order: 403 " + urn + "orderNotReady: not yet":                                                             {acmev1.Errored, fault.ClassUnavailable},
		"Failed to retrieve Order resource: 404 " + urn + "malformed: no such order":                                                  {acmev1.Errored, fault.ClassUnavailable},
		"Failed to download certificate: the ACME server sent an empty chain":                                                         {acmev1.Errored, fault.ClassUnavailable},
	} {
		if got := FailureClass(acmev1.OrderStatus{State: c.state, Reason: reason}); got != c.want {
			t.Errorf("%q is a %q failure, want %q", reason, got, c.want)
		}
	}
}

// TestRetrying writes no time where a solver asks for the same short wait each time: a
// reason that changed would be a write for each try.
func TestRetrying(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	equal(t, Failure{Class: ErrorSolver, RetryAfter: 5 * time.Second}.retrying(at), "; retried every 5s")
	equal(t, Failure{Class: ErrorSolver, RetryAfter: 3217 * time.Millisecond}.retrying(at), "; retrying at 2026-01-02T03:04:05Z")
	equal(t, Failure{Class: ErrorSolver, RetryAfter: time.Hour}.retrying(at), "; retrying at 2026-01-02T03:04:05Z")
	equal(t, Failure{Class: ErrorUnavailable, RetryAfter: 5 * time.Second}.retrying(at), "; retrying at 2026-01-02T03:04:05Z")
	equal(t, Failure{Class: ErrorSolver}.retrying(at), "; retrying with back-off")
}

// TestUnsentIsNoAttempt: an order that was not sent, because its answer is known, waits for as long as that says, and
// the first that the CA refuses by itself is the first.
func TestUnsentIsNoAttempt(t *testing.T) {
	t.Parallel()
	m := OrderMemory{}
	for range 5 {
		m = m.After(OrderOutcome{Step: OrderCreate, At: start, Failure: &Failure{
			Class: ErrorRateLimited, Detail: "not sent", RetryAfter: time.Hour, Unsent: true,
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
	m = m.After(OrderOutcome{Step: OrderCreate, At: start, Failure: &Failure{Class: ErrorRateLimited, Detail: "too many"}})
	if wait := Backoff(*m.Failure, m.Failures, m.Jitter); m.Failures != 1 || wait > time.Minute {
		t.Errorf("after %d failures it waits %s", m.Failures, wait)
	}
}
