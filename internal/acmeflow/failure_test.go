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
)

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		status          int
		problem, detail string
		want            ErrorClass
	}{
		{0, "", "connection reset", ErrorUnavailable},
		{200, "", "truncated body", ErrorUnavailable},
		{500, problemNamespace + "serverInternal", "", ErrorUnavailable},
		{503, "", "", ErrorUnavailable},
		{503, problemNamespace + "rateLimited", "", ErrorRateLimited},
		{429, "", "", ErrorRateLimited},
		{400, problemNamespace + "badNonce", "", ErrorBadNonce},
		{400, problemNamespace + "malformed", "no such order", ErrorMalformed},
		{400, problemNamespace + "malformed", "could not parse replaces", ErrorReplaces},
		{409, problemNamespace + "alreadyReplaced", "", ErrorReplaces},
		{403, problemNamespace + "orderNotReady", "", ErrorNotReady},
		{403, problemNamespace + "unauthorized", "", ErrorPermanent},
		{404, problemNamespace + "malformed", "", ErrorNotFound},
		{408, "", "", ErrorUnavailable},
		{400, problemNamespace + "rejectedIdentifier", "", ErrorPermanent},
		{400, problemNamespace + "badCSR", "", ErrorPermanent},
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
}

func TestPollDelay(t *testing.T) {
	equal(t, PollDelay(0, time.Hour), firstPoll) // the first look comes fast
	equal(t, PollDelay(1, 3*time.Second), 3*time.Second)
	equal(t, PollDelay(1, 24*time.Hour), maxPollRetryAfter)
	equal(t, PollDelay(3, 0), 200*time.Millisecond)
	equal(t, PollDelay(30, 0), maxPoll)
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
