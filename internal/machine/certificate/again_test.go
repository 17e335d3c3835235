package certificate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/golden"
)

// failing has a Certificate whose next request has just failed in a class, with the Secret of the one before in place.
func failing(t *testing.T, class fault.Class) *world {
	t.Helper()
	w := issued(t)
	byClass(w)
	triggered(w)
	w.settle()
	w.failAs(class)
	w.settle()
	return w
}

// restart starts a process that knows nothing but what the objects say.
func (w *world) restart() {
	w.t.Helper()
	text, err := json.Marshal(w.crt)
	if err != nil {
		w.t.Fatal(err)
	}
	w.crt = &certmanagerv1.Certificate{}
	if err := json.Unmarshal(text, w.crt); err != nil {
		w.t.Fatal(err)
	}
	w.held = nil
}

// tries lives until a time, or for 30 tries, with an issuer that fails each request in a class, and returns when
// requests were made.
func (w *world) tries(class fault.Class, until time.Time, restarts bool) []time.Time {
	w.t.Helper()
	var at []time.Time
	for {
		wake := w.settle()
		if _, ok := pendingRequest(w); ok {
			at = append(at, w.now)
			w.failAs(class)
			continue
		}
		if restarts {
			w.restart()
			w.settle()
		}
		if wake.IsZero() || wake.After(until) || len(at) == 30 {
			return at
		}
		w.now = wake
	}
}

// allClasses are those that a request may have failed in; empty if nothing is known.
func allClasses() []fault.Class {
	return []fault.Class{
		"", fault.ClassPermanent, fault.ClassPolicy, fault.ClassRefused, fault.ClassValidation, fault.ClassSelfCheck, fault.ClassSolver,
		fault.ClassRateLimited, fault.ClassPaused, fault.ClassUnavailable, fault.ClassCredential, fault.ClassConfiguration,
	}
}

// TestEveryClassIsTriedAgain holds when: for three weeks, of a first issuance and of a renewal, and the same where the
// process is started anew after each try.
func TestEveryClassIsTriedAgain(t *testing.T) {
	out := ""
	for _, class := range allClasses() {
		for _, c := range []struct {
			name string
			make func(*testing.T) *world
		}{{"the first certificate", newWorld}, {"a renewal", after(issued, due)}} {
			var texts []string
			for _, restarts := range []bool{false, true} {
				w := after(c.make, byClass)(t)
				begin := w.now
				var waits []string
				last := begin
				for _, at := range w.tries(class, begin.Add(3*week), restarts) {
					waits = append(waits, at.Sub(last).Round(time.Minute).String())
					last = at
				}
				if len(waits) == 30 {
					waits = append(waits[:12], "and so on")
				}
				if w.now.Sub(last) > week*6/5 {
					t.Errorf("%q, %s: not tried again since %s", class, c.name, last)
				}
				texts = append(texts, strings.Join(waits, " "))
			}
			if texts[0] != texts[1] {
				t.Errorf("%q, %s: with restarts %s, without %s", class, c.name, texts[1], texts[0])
			}
			out += fmt.Sprintf("%q, %s\n    %s\n\n", class, c.name, texts[0])
		}
	}
	golden.Check(t, "again.txt", out)
}

// Of many Certificates that a CA refuses, not all are tried again at once.
func TestPermanentFailuresAreSpread(t *testing.T) {
	hours := map[int]int{}
	for i := range 200 {
		w := newWorld(t)
		byClass(w)
		w.crt.UID = types.UID(fmt.Sprint(i))
		w.settle()
		w.failAs(fault.ClassPermanent)
		failed := w.now
		hours[int(w.settle().Sub(failed).Hours())]++
	}
	all := slices.Sorted(maps.Keys(hours))
	if len(all) < 9 || all[0] < 19 || all[len(all)-1] > 28 || slices.Max(slices.Collect(maps.Values(hours))) > 50 {
		t.Errorf("tried again after hours %v", hours)
	}
}

// TestForcedTriesAreMadeAtOnce: to delete the Secret, or to ask by hand, ends the wait after a failure of any class,
// once; the process may have been away meanwhile, or end in the midst.
func TestForcedTriesAreMadeAtOnce(t *testing.T) {
	for _, class := range append(allClasses(), "SomethingNew") {
		for name, force := range map[string]func(*world){"the Secret is deleted": noSecret, "cmctl renew": triggered} {
			for writes := range 3 {
				w := failing(t, class)
				w.now = w.now.Add(time.Second)
				if w.settle(); w.requestsMade != 1 {
					t.Fatalf("%q: tried again at once", class)
				}
				force(w)
				w.restart()
				w.dies(Decide(w.state(), w.now), writes)
				if w.settle(); w.requestsMade != 2 {
					t.Errorf("%q, %s, %d writes: %d requests: %+v", class, name, writes, w.requestsMade, w.crt.Status)
					continue
				}
				w.now = w.now.Add(time.Second)
				w.failAs(class)
				w.settle()
				w.now = w.now.Add(time.Second)
				if w.settle(); w.requestsMade != 2 {
					t.Errorf("%q, %s: tried again without another wish", class, name)
				}
			}
		}
	}
}

// The next private key of the try before may still be there when the Secret is deleted.
func TestForcedTryWithAKeyLeft(t *testing.T) {
	for _, attempts := range []int{1, 9} {
		w := issued(t)
		byClass(w)
		triggered(w)
		w.settle()
		w.failAs(fault.ClassPermanent)
		w.crt.Status.FailedIssuanceAttempts = new(attempts - 1)
		w.act(Decide(w.state(), w.now), 9)
		noSecret(w)
		w.now = w.settle()
		if w.settle(); w.requestsMade != 2 {
			t.Errorf("%d failures: %d requests: %+v", attempts, w.requestsMade, w.crt.Status)
		}
	}
}

// TestForcedTryAfterARestart: a process that ended before it deleted the key of the request that has failed leaves it
// to the next one, which does not take the verdict on that request for the answer to the wish, and asks with another
// key.
func TestForcedTryAfterARestart(t *testing.T) {
	w := issued(t)
	byClass(w)
	triggered(w)
	w.settle()
	w.failAs(fault.ClassPermanent)
	w.act(Decide(w.state(), w.now), 9)
	if len(w.keys) != 1 {
		t.Fatalf("%d keys are left, want the one of the failed request", len(w.keys))
	}
	w.restart()
	noSecret(w)
	w.now = w.now.Add(10 * time.Hour)
	w.settle()
	if w.requestsMade != 2 || w.keysMade != 2 {
		t.Errorf("%d requests with %d keys, want another one with another key: %+v", w.requestsMade, w.keysMade, w.crt.Status)
	}
}

// Where the user has bounds for the wait, it is cert-manager's, which a deleted Secret does not end.
func TestBoundsOfTheUserAreKept(t *testing.T) {
	w := failing(t, fault.ClassPermanent)
	w.backoff.ByClass = false
	noSecret(w)
	failed := w.crt.Status.LastFailureTime.Time
	if wake := w.settle(); w.requestsMade != 1 || wake.Sub(failed) != time.Hour {
		t.Errorf("%d requests, woken %s after the failure", w.requestsMade, wake.Sub(failed))
	}
}

// TestForcedTriesKeepToTheBudget lets a tool put a Secret there and delete it again, as fast as it can, while the CA
// refuses each request; and then a user who mends the spec.
func TestForcedTriesKeepToTheBudget(t *testing.T) {
	w := failing(t, fault.ClassPermanent)
	secret, begin := w.secret, w.now
	for w.now.Before(begin.Add(day)) {
		w.secret = secret
		w.settle()
		noSecret(w)
		wake := w.settle()
		if _, ok := pendingRequest(w); ok {
			w.now = w.now.Add(time.Second)
			w.failAs(fault.ClassPermanent)
			w.settle()
			continue
		}
		c := w.condition(certmanagerv1.CertificateConditionIssuing)
		if c.Status != cmmeta.ConditionFalse || c.Reason != ReasonOverBudget || !strings.Contains(c.Message, "failed too often in a row") ||
			!strings.Contains(c.Message, wake.UTC().Format(time.RFC3339)) {
			t.Fatalf("Issuing is %+v, woken at %s", c, wake)
		}
		w.now = w.now.Add(time.Minute)
	}
	if w.requestsMade < 5*24-10 || w.requestsMade > 5*24+5 {
		t.Errorf("tried %d times in a day, want five an hour", w.requestsMade)
	}
	w.secret = secret
	w.settle()
	noSecret(w)
	if w.settle(); w.condition(certmanagerv1.CertificateConditionIssuing).Reason != ReasonOverBudget {
		t.Fatalf("not over the budget: %+v", w.crt.Status)
	}
	made := w.requestsMade
	otherNames(w)
	if w.settle(); w.requestsMade != made+1 {
		t.Errorf("a change of the spec has to wait: %+v", w.crt.Status)
	}
}

// TestAForcedRenewalThatFailed: the certificate is good, so nothing is tried again before the renewal is due. Until
// then the Certificate says what has failed, and names that time.
func TestAForcedRenewalThatFailed(t *testing.T) {
	w := issued(t)
	triggered(w)
	w.settle()
	w.failAs(fault.ClassPolicy)
	for range 3 {
		w.settle()
		c, next := w.crt.Status.Cause, w.crt.Status.NextTry
		if c == nil || c.Class != string(fault.ClassPolicy) || !next.Equal(w.crt.Status.RenewalTime) {
			t.Fatalf("at %s: the cause is %+v, the next try %s, the renewal %s", w.now, c, next, w.crt.Status.RenewalTime)
		}
		w.now = w.now.Add(time.Minute)
	}
	if ready := w.condition(certmanagerv1.CertificateConditionReady); ready.Status != cmmeta.ConditionTrue || !strings.Contains(ready.Message, "a policy of the CA forbids it") {
		t.Errorf("Ready says %+v", ready)
	}
	triggered(w)
	w.settle()
	w.sign(w.next())
	if w.settle(); w.crt.Status.Cause != nil || w.crt.Status.NextTry != nil {
		t.Errorf("after a renewal: %+v", w.crt.Status)
	}
}
