package accounts_test

import (
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/pki"
)

func newKey(t *testing.T, algorithm string) crypto.Signer {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: algorithm})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// open returns the account of the key in a new process.
func (w *world) open(t *testing.T, key crypto.Signer) (*accounts.Registry, *accounts.Account) {
	t.Helper()
	r := w.registry()
	a, err := r.Open("issuer", w.server(), key)
	if err != nil {
		t.Fatal(err)
	}
	return r, a
}

// paths counts what is asked for from now on.
func (w *world) paths() func(part string) int {
	var mu sync.Mutex
	seen := map[string]int{}
	watch := func(path string) {
		mu.Lock()
		defer mu.Unlock()
		seen[path]++
	}
	w.watch.Store(&watch)
	return func(part string) int {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, path := range slices.Collect(maps.Keys(seen)) {
			if strings.Contains(path, part) {
				n += seen[path]
			}
		}
		return n
	}
}

// refusal checks an error, and returns when to try again.
func refusal(t *testing.T, err error, class fault.Class, text string) time.Duration {
	t.Helper()
	r := fault.Of(err)
	if r == nil || r.Class != class || !strings.Contains(r.Error(), text) {
		t.Fatalf("got %+v, want %s with %q", err, class, text)
	}
	return r.Delay
}

// order makes an Order for a name of its own: a valid authorization of another Order may serve the same name.
func (w *world) order(t *testing.T, a *accounts.Account) *acme.Order {
	t.Helper()
	w.names++
	name := acme.Identifier{Type: "dns", Value: fmt.Sprintf("a%d.example.com", w.names)}
	out := order1(t, a, order.Action{Step: order.Create, NewOrder: ordering([]acme.Identifier{name})})
	if out.Failure != nil {
		t.Fatal(out.Failure.Error())
	}
	return out.Order
}

// TestReplaceKey: the account stays, goes on under the new key with what it has begun, and is
// found by whoever has read the old key a moment ago.
func TestReplaceKey(t *testing.T) {
	w := newWorld(t)
	old, next := newKey(t, pki.RSA), newKey(t, pki.ECDSA)
	r, a := w.open(t, old)
	if err := a.Register(t.Context(), accounts.Registration{Email: "a@example.com"}); err != nil {
		t.Fatal(err)
	}
	r.Bind(accounts.Issuer{UID: "1", Name: "one"}, a)
	r.Bind(accounts.Issuer{UID: "2", Name: "two"}, a)
	o, was, url := w.order(t, a), a.Thumbprint(), a.URL()
	w.changes = nil
	asked := w.paths()
	for range 2 { // the second time it is done already
		if err := a.Replace(t.Context(), next, ""); err != nil {
			t.Fatal(err)
		}
	}
	if asked("rollover") != 1 || a.URL() != url || a.Thumbprint() == was || !a.Uses(next) || !a.Registered("a@example.com") {
		t.Errorf("%d requests, account %s", asked("rollover"), a.URL())
	}
	if len(w.changes) != 2 {
		t.Errorf("who uses the account is told %v", w.changes)
	}
	if out := order1(t, a, order.Action{Step: order.Fetch, URL: o.URL}); out.Failure != nil {
		t.Error(out.Failure.Error())
	}
	for _, key := range []crypto.Signer{old, next} {
		if same, err := r.Open("issuer", w.server(), key); err != nil || same != a {
			t.Errorf("another account: %v", err)
		}
	}
	r.Release(accounts.Issuer{UID: "1"})
	r.Release(accounts.Issuer{UID: "2"})
	r.Release(accounts.Issuer{UID: "issuer"})
	if other, err := r.Open("issuer", w.server(), old); err != nil || other == a {
		t.Errorf("the account outlives its users: %v", err)
	}
}

// TestReplaceKeyAfterACrash: a new process asks the CA which key it goes by; it registers
// nothing, and does not replace again what is replaced.
func TestReplaceKeyAfterACrash(t *testing.T) {
	for name, replaced := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			old, next := newKey(t, pki.ECDSA), newKey(t, pki.ECDSA)
			_, first := w.open(t, old)
			if err := first.Register(t.Context(), accounts.Registration{}); err != nil {
				t.Fatal(err)
			}
			url := first.URL()
			if replaced {
				if err := first.Replace(t.Context(), next, url); err != nil {
					t.Fatal(err)
				}
			}
			asked := w.paths()
			_, a := w.open(t, old)
			if err := a.Replace(t.Context(), next, url); err != nil {
				t.Fatal(err)
			}
			if a.Uses(next) != replaced || a.IsUnknownKey(next) == replaced || (a.URL() == url) != replaced || asked("rollover") != 0 {
				t.Fatalf("account %q, %d requests", a.URL(), asked("rollover"))
			}
			if replaced {
				w.order(t, a)
				return
			}
			if err := a.Adopt(url, ""); err != nil {
				t.Fatal(err)
			}
			// What the process before asked the CA to validate is to be over first.
			wait := refusal(t, a.Replace(t.Context(), next, url), fault.ClassNotProcessed, "when this controller started")
			if a.Changing() {
				t.Error("validations are held up long before")
			}
			w.order(t, a)
			w.now = w.now.Add(wait)
			if err := a.Replace(t.Context(), next, url); err != nil || !a.Uses(next) || a.URL() != url {
				t.Errorf("%v, account %q", err, a.URL())
			}
		})
	}
}

// TestReplaceKeyOfWhichNoAnswerComes: while it is not known which key the CA goes by, nothing
// is signed, and the CA is asked again soon, however often it was; then the right one is used.
func TestReplaceKeyOfWhichNoAnswerComes(t *testing.T) {
	for name, acts := range map[string]bool{"the CA has acted": true, "the CA has not acted": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			next := newKey(t, pki.ECDSA)
			_, a := w.open(t, newKey(t, pki.ECDSA))
			if err := a.Register(t.Context(), accounts.Registration{}); err != nil {
				t.Fatal(err)
			}
			w.answer.Store(&answer{at: "rollover", status: 502, body: "<html>", acts: acts, hold: func() {
				w.answer.Store(&answer{at: "", status: 502, body: "<html>"})
			}})
			for range 3 {
				err := a.Replace(t.Context(), next, "")
				refusal(t, err, fault.ClassUnavailable, "502")
				if f := fault.Of(err); f == nil || f.Delay != 30*time.Second {
					t.Errorf("asks again after %+v", f)
				}
			}
			out := order1(t, a, order.Action{Step: order.Create})
			if until, _ := a.Parked(); out.Failure == nil || out.Failure.Class != fault.ClassNotProcessed || !until.After(w.now) {
				t.Errorf("failure %+v", out.Failure)
			}
			w.answer.Store(nil)
			if err := a.Replace(t.Context(), next, ""); err != nil || !a.Uses(next) {
				t.Fatal(err)
			}
			w.order(t, a)
		})
	}
}

// TestReplaceKeyThatIsLate: where the CA says that it has not replaced the key although the
// request may still be under way, nothing is signed for as long as it may be, and no longer.
func TestReplaceKeyThatIsLate(t *testing.T) {
	w := newWorld(t)
	_, a := w.open(t, newKey(t, pki.ECDSA))
	if err := a.Register(t.Context(), accounts.Registration{}); err != nil {
		t.Fatal(err)
	}
	w.answer.Store(&answer{at: "rollover", status: 504, body: "<html>"})
	refusal(t, a.Replace(t.Context(), newKey(t, pki.ECDSA), ""), fault.ClassUnavailable, "504")
	if until, _ := a.Parked(); !until.After(w.now) {
		t.Error("the old key is used")
	}
	w.now = w.now.Add(10 * time.Second)
	w.order(t, a)
}

// TestReplaceKeyRefused: the account goes on with its key.
func TestReplaceKeyRefused(t *testing.T) {
	w := newWorld(t)
	_, a := w.open(t, newKey(t, pki.ECDSA))
	if err := a.Register(t.Context(), accounts.Registration{}); err != nil {
		t.Fatal(err)
	}
	taken := newKey(t, pki.ECDSA)
	_, other := w.open(t, taken)
	if err := other.Register(t.Context(), accounts.Registration{}); err != nil {
		t.Fatal(err)
	}
	refusal(t, a.Replace(t.Context(), taken, ""), fault.ClassRefused, other.URL())
	w.order(t, a)

	w.answer.Store(&answer{at: "rollover", status: 429, retryAfter: "60", body: `{"type":"urn:ietf:params:acme:error:rateLimited"}`})
	if r := refusal(t, a.Replace(t.Context(), newKey(t, pki.ECDSA), ""), fault.ClassRateLimited, "rateLimited"); r != time.Minute {
		t.Errorf("to be tried again after %s", r)
	}
	w.order(t, a)
	w.answer.Store(&answer{at: "rollover", status: 403, body: `{"type":"urn:ietf:params:acme:error:unauthorized"}`})
	refusal(t, a.Replace(t.Context(), newKey(t, pki.ECDSA), ""), fault.ClassRefused, "unauthorized")
	w.order(t, a)
	if err := a.CanReplace(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestNoKeyChange: a CA that cannot replace keys is not asked to.
func TestNoKeyChange(t *testing.T) {
	w := newWorld(t)
	w.answer.Store(&answer{at: "/dir", status: 200, body: w.directoryWithout(t, "keyChange")})
	_, a := w.open(t, newKey(t, pki.ECDSA))
	if err := a.Register(t.Context(), accounts.Registration{}); err != nil {
		t.Fatal(err)
	}
	refusal(t, a.CanReplace(t.Context()), fault.ClassRefused, "no keyChange")
	refusal(t, a.Replace(t.Context(), newKey(t, pki.ECDSA), ""), fault.ClassRefused, "no keyChange")
	w.order(t, a)
}

func (w *world) directoryWithout(t *testing.T, resource string) string {
	t.Helper()
	response, err := w.ca.HTTPClient().Get(w.ca.DirectoryURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	directory := map[string]any{}
	if err = errors.Join(err, json.Unmarshal(body, &directory)); err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(err)
	}
	delete(directory, resource)
	if body, err = json.Marshal(directory); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestReplaceKeyWaitsForValidations: an answer contains the thumbprint of the key, so none is
// looked for by the CA while the key is replaced, and none is that contains the old one.
func TestReplaceKeyWaitsForValidations(t *testing.T) {
	w := newWorld(t)
	next := newKey(t, pki.ECDSA)
	_, a := w.open(t, newKey(t, pki.ECDSA))
	if err := a.Register(t.Context(), accounts.Registration{}); err != nil {
		t.Fatal(err)
	}
	newChallenge := func() acmev1.ChallengeSpec {
		o := w.order(t, a)
		read := order1(t, a, order.Action{Step: order.FetchAuthorizations, URLs: o.Authorizations})
		for _, c := range read.Authorizations[0].Challenges {
			if c.Type == "dns-01" {
				return acmev1.ChallengeSpec{
					URL: c.URL, AuthorizationURL: o.Authorizations[0], Type: acmev1.ChallengeTypeDNS01, Token: c.Token,
					Key: acmeflow.KeyToPresent(acmev1.ChallengeTypeDNS01, c.Token, a.Thumbprint()),
				}
			}
		}
		t.Fatal("no challenge")
		return acmev1.ChallengeSpec{}
	}
	under, late := newChallenge(), newChallenge()
	if out := challenge1(t, a, challenge.Accept, under); out.Failure != nil {
		t.Fatal(out.Failure.Error())
	}
	refusal(t, a.Replace(t.Context(), next, ""), fault.ClassNotProcessed, "is validating")
	if out := challenge1(t, a, challenge.Accept, late); !a.Changing() || out.Failure == nil || out.Failure.Class != fault.ClassNotProcessed {
		t.Errorf("a validation begins: %+v", out.Failure)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // a real server
		out := challenge1(t, a, challenge.Fetch, under)
		if out.Failure == nil && out.Authorization.Status == "valid" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not validated: %+v", out)
		}
	}
	if err := a.Replace(t.Context(), next, ""); err != nil || a.Changing() {
		t.Fatal(err)
	}
	if out := challenge1(t, a, challenge.Accept, late); out.Failure == nil || out.Failure.Class != fault.ClassNotProcessed {
		t.Errorf("the old answer is validated: %+v", out.Failure)
	}
	now := newChallenge()
	if out := challenge1(t, a, challenge.Accept, now); out.Failure != nil {
		t.Error(out.Failure.Error())
	}
	// Nobody looks any more.
	refusal(t, a.Replace(t.Context(), newKey(t, pki.ECDSA), ""), fault.ClassNotProcessed, "is validating")
	w.now = w.now.Add(5 * time.Second)
	replaced := errors.New("not tried")
	for deadline := time.Now().Add(2 * time.Minute); replaced != nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // a real server
		replaced = a.Replace(t.Context(), newKey(t, pki.ECDSA), "")
	}
	if replaced != nil {
		t.Error(replaced)
	}
	// One that the CA never finishes holds the next replacement up for a while only.
	if out := challenge1(t, a, challenge.Accept, newChallenge()); out.Failure != nil {
		t.Error(out.Failure.Error())
	}
	w.answer.Store(&answer{at: "/authZ/", status: 503, body: `{"type":"about:blank"}`})
	w.now = w.now.Add(time.Minute)
	refusal(t, a.Replace(t.Context(), newKey(t, pki.ECDSA), ""), fault.ClassNotProcessed, "is validating")
	w.now = w.now.Add(9 * time.Minute)
	if err := a.Replace(t.Context(), newKey(t, pki.ECDSA), ""); err != nil {
		t.Error(err)
	}
}
