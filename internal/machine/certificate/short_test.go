package certificate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/golden"
)

func inLine(w *world)        { w.issuer = &IssuerFacts{Version: "a/1", InLine: true} }
func inLineWithKey(w *world) { w.issuer = &IssuerFacts{Version: "a/1", InLine: true, NeedsKey: true} }
func notReady(w *world)      { w.issuer = &IssuerFacts{Version: "a/1"} }

// asked is a Certificate that was just made, whose request is made, in the short way.
func asked(t *testing.T) *world {
	t.Helper()
	return after(newWorld, inLine, settled)(t)
}

// askedWithKey is the same by an issuer that reads the key from a Secret.
func askedWithKey(t *testing.T) *world {
	t.Helper()
	return after(newWorld, inLineWithKey, settled)(t)
}

// holdKeyOf has a key in memory that a request looks made with.
func (w *world) holdKeyOf(r *certmanagerv1.CertificateRequest) {
	w.held = &heldKey{key: newKey(w.t, facts.KeySpecOf(&w.crt.Spec)), HeldKey: facts.HeldKey{
		Public:  facts.OfRequest(r).Public,
		Issuing: certmanagerv1.CertificateCondition{Type: "Issuing", Status: "True", Reason: "Renewing", Message: "due"},
	}}
	if made, err := NewRequest(w.crt, Action{Name: r.Name, Revision: 2}, w.held.key, nil); err == nil {
		r.Spec.Request, w.held.Public = made.Spec.Request, pki.FactsOfKey(w.held.key.Public())
	}
}

// onShortWay has the key of the next request in memory alone.
func (w *world) onShortWay() {
	w.keys, w.crt.Status.NextPrivateKeySecretName = nil, nil
	w.holdKeyOf(w.next())
}

// crashed lets the process die, and another one begin.
func crashed(w *world) { w.held = nil }

// storedOnly lets the process die between the Secret and the status.
func storedOnly(w *world) { w.dies(Decide(w.state(), w.now), 1) }

func pendingNext(w *world) {
	w.conclude(w.next(), cmmeta.ConditionFalse, certmanagerv1.CertificateRequestReasonPending, "the CA is missing")
}

func approvedOnly(w *world) {
	w.say(w.next(), certmanagerv1.CertificateRequestConditionApproved, cmmeta.ConditionTrue, "Policy", "fine")
}

func apiServerAhead(by time.Duration) func(*world) {
	return func(w *world) { w.next().CreationTimestamp = metav1.NewTime(w.now.Add(by).Truncate(time.Second)) }
}

// shortSituations are what the short way meets.
func shortSituations() []situation {
	return []situation{
		{"just made", after(newWorld, inLine)},
		{"just made, and the password is gone", after(newWorld, inLine, spec(keystore), passwordGone)},
		{"just made, and a temporary certificate is wanted", after(newWorld, inLine, temporaryWanted)},
		{"due", after(issued, inLine, due)},
		{"asked for by hand", after(issued, inLine, triggered)},
		{"never rotated, due", after(issued, inLine, spec(never), due)},
		{"never rotated, the key is soup", after(issued, inLine, spec(never), data("tls.key", "soup"))},
		{"never rotated, the key does not match", after(issued, inLine, spec(never), otherSecretKey(384))},
		{"the request is made", asked},
		{"the request is made by an API server that is a second ahead", after(asked, apiServerAhead(time.Second))},
		{"the request is made by an API server that is an hour ahead", after(asked, apiServerAhead(time.Hour))},
		{"the request is made, and nobody looks at it for a minute", after(asked, later)},
		{"the request is made, and is pending", after(asked, pendingNext)},
		{"the request is made, and somebody else has approved it", after(asked, approvedOnly)},
		{"the request is made, and its issuer is not ready any more", after(asked, notReady)},
		{"the request is made, and a temporary certificate is wanted now", after(asked, temporaryWanted)},
		{"the request is made, and other names are wanted", after(asked, otherNames)},
		{"the request is made, and another key is wanted", after(asked, spec(p384))},
		{"the request is made, and the Secret is another's", after(asked, func(w *world) { w.owner = "older" })},
		{"the request is made, and what was wrong is right again", after(issued, inLine, otherSecretKey(256), settled, func(w *world) { w.secret = issued(w.t).secret })},
		{"the request is gone", after(asked, noRequests)},
		{"asked for by hand, and the request is pending", after(issued, inLine, triggered, settled, pendingNext)},
		{"signed", after(asked, signed)},
		{"signed, and the password is gone", after(newWorld, inLine, spec(keystore), settled, signed, passwordGone)},
		{"signed, and the issuer is not ready any more", after(asked, signed, notReady)},
		{"signed, and the issuer is gone", after(asked, signed, func(w *world) { w.issuer = nil })},
		{"signed for another key", after(asked, func(w *world) {
			w.signFor(w.next(), newKey(w.t, pki.KeySpec{Algorithm: pki.ECDSA}).Public(), w.now, w.now.Add(lifetime))
		})},
		{"failed", after(asked, failedRequest)},
		{"failed by an API server that is a minute ahead", after(asked, apiServerAhead(time.Minute), failedRequest)},
		{"failed a moment ago", after(asked, failedRequest, settled)},
		{"failed an hour ago", after(asked, failedRequest, settled, hour)},
		{"failed an hour ago, and the request is deleted", after(asked, failedRequest, settled, hour, noRequests)},
		{"failed a moment ago, and other names are wanted", after(asked, failedRequest, settled, otherNames)},
		{"failed, other names are wanted within the same second, and the request is made", after(asked, failedRequest, settled, otherNames, settled)},
		{"the key is lost, and the request is new", after(asked, crashed)},
		{"the key is lost, and the request is signed", after(asked, signed, crashed)},
		{"the key is lost, and the request failed", after(asked, failedRequest, crashed)},
		{"the key is lost, and the request failed, which was said", after(asked, failedRequest, settled, crashed)},
		{"the key is lost, and the request failed the second time", after(asked, failedRequest, settled, hour, settled, failedRequest, crashed)},
		{"the key is lost, of a request that a change of the spec has led to", after(asked, failedRequest, settled, later, otherNames, settled, crashed)},
		{"the key is lost, and nothing is wrong any more", after(issued, inLine, otherNames, settled, crashed, spec(func(s *certmanagerv1.CertificateSpec) {
			s.DNSNames = []string{"a.example.com", "b.example.com"}
		}))},
		{"the Secret is stored, and the process died", after(asked, signed, storedOnly)},
		{"the Secret of a renewal is stored, and the process died", after(issued, inLine, due, settled, signed, storedOnly)},
		{"the Secret is stored, the process died, and other names are wanted", after(asked, signed, storedOnly, otherNames)},
		{"the Secret is stored in the long way, and the process died", after(issuing, signed, storedOnly)},
	}
}

func keystore(s *certmanagerv1.CertificateSpec) {
	s.Keystores = &certmanagerv1.CertificateKeystores{PKCS12: &certmanagerv1.PKCS12Keystore{Create: true}}
}

// shortSituationsWithKey are what the short way meets where the issuer reads the key from a Secret.
func shortSituationsWithKey() []situation {
	return []situation{
		{"just made", after(newWorld, inLineWithKey)},
		{"the key is made", after(newWorld, inLineWithKey, func(w *world) { w.act(Decide(w.state(), w.now), 9) })},
		{"the key is made, and nothing is wrong any more", after(issued, inLineWithKey, otherNames, settled, crashed, spec(func(s *certmanagerv1.CertificateSpec) {
			s.DNSNames = []string{"a.example.com", "b.example.com"}
		}))},
		{"the request is made", askedWithKey},
		{"the request is made, and the process died", after(askedWithKey, crashed)},
		{"the request is made, and nobody looks at it for a minute", after(askedWithKey, later)},
		{"the request is made, and is pending", after(askedWithKey, pendingNext)},
		{"the request is made, and its issuer is not ready any more", after(askedWithKey, notReady)},
		{"the request is made, and the key is gone", after(askedWithKey, func(w *world) { w.keys = nil })},
		{"signed", after(askedWithKey, signed)},
		{"signed, and the process died", after(askedWithKey, signed, crashed)},
		{"failed", after(askedWithKey, failedRequest)},
		{"failed, and the process died", after(askedWithKey, failedRequest, crashed)},
		{"failed a moment ago, and the key is left", after(askedWithKey, failedRequest, func(w *world) { w.act(Decide(w.state(), w.now), 9) })},
		{"failed an hour ago, and the key is left", after(askedWithKey, failedRequest, func(w *world) { w.act(Decide(w.state(), w.now), 9) }, hour)},
		{"failed an hour ago", after(askedWithKey, failedRequest, settled, hour)},
		{"failed an hour ago, and another key is made", after(askedWithKey, failedRequest, settled, hour, func(w *world) { w.act(Decide(w.state(), w.now), 9) })},
		{"the Secret is stored, and the process died", after(askedWithKey, signed, storedOnly)},
	}
}

func TestShortWayTable(t *testing.T) {
	for file, situations := range map[string][]situation{"short.txt": shortSituations(), "short-with-key.txt": shortSituationsWithKey()} {
		out := ""
		for _, s := range situations {
			w := s.world(t)
			out += fmt.Sprintf("%s\n%s\n", s.name, describe(w, Decide(w.state(), w.now)))
		}
		golden.Check(t, file, out)
	}
}

// shortWay is a Certificate on the short way, an issuer that answers at once, and a process that may die after any
// number of writes, its own and those to the request.
type shortWay struct {
	*world

	issue  func(*world, *certmanagerv1.CertificateRequest)
	left   int // writes before the process dies
	died   bool
	writes int
}

// run decides, acts and answers until there is nothing to do.
func (s *shortWay) run() {
	s.t.Helper()
	for range 30 {
		a := Decide(s.state(), s.now)
		n := 0
		if !a.Rests() {
			n++
		}
		if a.Status != nil {
			n++
		}
		if s.left < n && !s.died {
			s.died = true
			s.dies(a, s.left)
			continue
		}
		s.act(a, 9)
		s.left, s.writes = s.left-n, s.writes+n
		if !a.Rests() || a.Status != nil {
			continue
		}
		next, ok := pendingRequest(s.world)
		if !ok {
			return
		}
		if s.left < 1 && !s.died {
			s.died, s.held = true, nil
			continue
		}
		s.issue(s.world, next)
		s.left, s.writes = s.left-1, s.writes+1
	}
	s.t.Fatalf("no rest: %v, %+v", s.steps, s.crt.Status)
}

// TestCrashOnTheShortWay lets the process die before and after each write of an issuance: what begins after it ends the
// issuance with at most one request more, the right revision, the certificate of the newest request, and the back-off
// of the failures that there were.
func TestCrashOnTheShortWay(t *testing.T) {
	signs := func(w *world, r *certmanagerv1.CertificateRequest) { w.sign(r) }
	fails := func(w *world, r *certmanagerv1.CertificateRequest) { w.fail(r) }
	for name, begin := range map[string]func(*testing.T) *world{
		"first": after(newWorld, inLine), "renewal": after(issued, inLine, due), "by hand": after(issued, inLine, triggered),
		"never rotated":  after(issued, inLine, spec(never), due),
		"first with key": after(newWorld, inLineWithKey), "renewal with key": after(issued, inLineWithKey, due),
		"after a failure": after(asked, failedRequest, settled, hour), "after a failure with key": after(askedWithKey, failedRequest, settled, hour),
	} {
		for how, issue := range map[string]func(*world, *certmanagerv1.CertificateRequest){"signed": signs, "failed": fails} {
			calm := &shortWay{world: begin(t), issue: issue, left: 99}
			before := calm.requestsMade
			calm.run()
			for at := range calm.writes + 1 {
				s := &shortWay{world: begin(t), issue: issue, left: at}
				s.run()
				what := fmt.Sprintf("%s, %s, died after %d writes, steps %v", name, how, at, s.steps)
				if more := s.requestsMade - calm.requestsMade; more > 1 || s.requestsMade == before {
					t.Errorf("%s: %d requests more", what, more)
				}
				if was, is := outcome(calm.world), outcome(s.world); was != is {
					t.Errorf("%s: %s, want %s", what, is, was)
				}
			}
		}
	}
}

// outcome says what an issuance has come to.
func outcome(w *world) string {
	out := []string{
		"revision " + value(w.crt.Status.Revision), "attempts " + value(w.crt.Status.FailedIssuanceAttempts),
		"failed " + instant(w, w.crt.Status.LastFailureTime), "wakes in " + Decide(w.state(), w.now).Wake.Sub(w.now).String(),
		fmt.Sprintf("%d keys, %d requests", len(w.keys), len(w.requests)),
	}
	for _, c := range w.crt.Status.Conditions {
		out = append(out, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
	}
	if w.secret != nil {
		leaf, err := facts.DecodeLeaf(w.next().Status.Certificate)
		out = append(out, fmt.Sprintf("newest stored %v", err == nil && facts.OfLeaf(leaf).ID == facts.OfSecret(w.secret).Leaf.ID))
	}
	return strings.Join(out, ", ")
}

// TestBudgetOfTheShortWay counts: request, Secret, status, and one event; a key Secret made and deleted besides where
// the issuer reads it. The request names no other key Secret.
func TestBudgetOfTheShortWay(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) *world{
		"first": after(newWorld, inLine), "renewal": after(issued, inLine, due),
		"first with key": after(newWorld, inLineWithKey), "renewal with key": after(issued, inLineWithKey, due),
	} {
		w := begin(t)
		keys := 0
		if w.issuer.NeedsKey {
			keys = 1
		}
		w.settle()
		if w.statusWrites != 0 || len(w.events) != 0 {
			t.Errorf("%s: %d status writes and %v before the request is signed", name, w.statusWrites, w.events)
		}
		if _, named := w.next().Annotations[certmanagerv1.PrivateKeySecretNameAnnotation]; named != w.issuer.NeedsKey {
			t.Errorf("%s: the request has the annotations %v", name, w.next().Annotations)
		}
		w.sign(w.next())
		w.settle()
		if w.statusWrites != 1 || w.requestsMade != 1 || w.keysMade != keys || w.stores != 1 || len(w.events) != 1 || len(w.keys) != 0 {
			t.Errorf("%s: %d status writes, %d requests, %d keys, %d stores, events %v", name, w.statusWrites, w.requestsMade, w.keysMade, w.stores, w.events)
		}
		if w.held != nil {
			t.Errorf("%s: the key is still in memory", name)
		}
	}
}
