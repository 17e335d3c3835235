package certificate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/golden"
)

// revoke does what a user does that wants the certificate revoked; an empty reason calls that off.
func revoke(reason revocation.Reason) func(*world) {
	return func(w *world) {
		w.crt = w.crt.DeepCopy()
		delete(w.crt.Annotations, revocation.Annotation)
		if reason != "" {
			metav1.SetMetaDataAnnotation(&w.crt.ObjectMeta, revocation.Annotation, string(reason))
		}
	}
}

// pinned asks to revoke the certificate that the Secret holds, and pins it already.
func pinned(reason revocation.Reason) func(*world) {
	return func(w *world) {
		w.act(Action{Step: StepPin, Keep: true}, 9)
		revoke(reason)(w)
	}
}

// replaced pins another certificate than the Secret holds.
func replaced(reason revocation.Reason) func(*world) {
	return func(w *world) {
		pinned(reason)(w)
		w.pinned.ID[0]++
		w.pinned.Key = pki.FactsOfKey(newKey(w.t, pki.KeySpec{Algorithm: pki.ECDSA}).Public())
	}
}

// caSays makes the CA answer for the pinned certificate.
func caSays(err error) func(*world) {
	return func(w *world) {
		pin := w.state().Pin
		w.revocation = &revocation.Answer{ID: pin.ID, Reason: pin.Reason, Err: err, Refused: fault.IsTerminal(err)}
	}
}

// thrifty has a Certificate in order that keeps its key.
func thrifty(t *testing.T) *world {
	t.Helper()
	w := issued(t)
	w.amend(func(s *certmanagerv1.CertificateSpec) {
		s.PrivateKey.RotationPolicy = certmanagerv1.RotationPolicyNever
	})
	w.settle()
	return w
}

// TestCompromisedKeyIsNotKept: not by rotationPolicy, and not by a renewal that was under way with it.
func TestCompromisedKeyIsNotKept(t *testing.T) {
	for _, renewing := range []bool{false, true} {
		w := thrifty(t)
		if renewing {
			w.trigger(certmanagerv1.CertificateReasonManuallyTriggered)
			w.settle()
		}
		old := facts.OfSecret(w.secret).Leaf
		revoke(revocation.KeyCompromise)(w)
		w.settle()
		w.sign(w.next())
		w.settle()
		if facts := facts.OfSecret(w.secret); w.stores != 1 || facts.Leaf.Key.Same(old.Key) || facts.Leaf.ID == old.ID {
			t.Errorf("renewing %v: stored %d times, same key %v", renewing, w.stores, facts.Leaf.Key.Same(old.Key))
		}
		if *w.crt.Status.Revision != 2 {
			t.Errorf("renewing %v: revision %d", renewing, *w.crt.Status.Revision)
		}
		w.settle()
		if w.stores != 1 {
			t.Error("the replacement is replaced")
		}
	}
}

// TestRevokedIsReplaced: for any other reason the key stays if it is to, and what fails is tried again.
func TestRevokedIsReplaced(t *testing.T) {
	w := thrifty(t)
	old := facts.OfSecret(w.secret).Leaf
	revoke(revocation.Superseded)(w)
	w.settle()
	w.fail(w.next())
	w.settle()
	w.now = w.now.Add(61 * time.Minute)
	w.settle()
	if w.revocations != 0 {
		t.Error("the CA is asked before there is a replacement")
	}
	w.sign(w.next())
	w.settle()
	if facts := facts.OfSecret(w.secret); w.stores != 1 || !facts.Leaf.Key.Same(old.Key) || facts.Leaf.ID == old.ID {
		t.Errorf("stored %d times, same key %v", w.stores, facts.Leaf.Key.Same(old.Key))
	}
	if w.revocations == 0 || w.pinned.ID != old.ID {
		t.Error("the CA is not asked to revoke the certificate of before")
	}
}

// TestWritesOfARevocation walks one request to revoke from the annotation to its end, in the long way and in the short
// way of an issuance: what is said of the revocation is said together with what the issuance says.
func TestWritesOfARevocation(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) *world{"long": issued, "short": after(issued, inLine)} {
		w := begin(t)
		old := facts.OfSecret(w.secret).Leaf.ID
		revoke(revocation.Superseded)(w)
		w.settle()
		w.sign(w.next())
		w.settle()
		caSays(nil)(w)
		w.settle()
		c := w.condition(certmanagerv1.CertificateConditionRevoking)
		record, ok := revocation.ParseRecord(w.crt.Annotations[revocation.RecordAnnotation])
		if c.Status != cmmeta.ConditionFalse || c.Reason != string(revocation.Revoked) || !ok || record.Outcome != revocation.Revoked || w.pinned != nil {
			t.Errorf("%s: %+v, %+v", name, c, record)
		}
		if facts.OfSecret(w.secret).Leaf.ID == old || w.stores != 1 || w.requestsMade != 1 {
			t.Errorf("%s: %d stores, %d requests", name, w.stores, w.requestsMade)
		}
		if w.statusWrites != 4 { // to be revoked; pinned, and being issued; issued; revoked
			t.Errorf("%s: %d status writes, steps %v", name, w.statusWrites, w.steps)
		}
		var said []string
		for _, e := range w.events {
			said = append(said, e.Reason)
		}
		if got := strings.Join(said, " "); got != "Issuing Revoked" {
			t.Errorf("%s: events %s", name, got)
		}
	}
}

// TestRevocationWhileTheSecretIsRefused: what has to be said of a revocation is said, though the replacement cannot be
// stored.
func TestRevocationWhileTheSecretIsRefused(t *testing.T) {
	w := after(issued, pinned(revocation.KeyCompromise), settled, signed)(t)
	w.now = w.now.Add(time.Hour)
	caSays(nil)(w)
	w.refusal = &Refusal{Step: StepStore, Message: "The API server refuses to store: immutable", Err: fault.After(time.Minute, "x", "immutable")}
	a := Decide(w.state(), w.now)
	w.act(a, 9)
	revoking, issuing := w.condition(certmanagerv1.CertificateConditionRevoking), w.condition(certmanagerv1.CertificateConditionIssuing)
	if revoking.Reason != revocation.ReasonRevoked || issuing.Message != w.refusal.Message || a.Failure == nil || len(w.events) != 2 {
		t.Errorf("%+v, %+v, %v, events %v", revoking, issuing, a.Failure, w.events)
	}
}

// TestPinThatIsRefused: the issuance that a revocation has begun waits until the certificate is pinned, so that this
// one is revoked and no other, and any other issuance goes on. What is wrong is said once.
func TestPinThatIsRefused(t *testing.T) {
	refuse := func(w *world) {
		w.postponed = []Postponed{{Step: StepPin, Until: w.now.Add(5 * time.Minute), News: "quota"}}
	}
	w := after(issued, revoke(revocation.KeyCompromise), func(w *world) { w.act(Decide(w.state(), w.now), 9) }, refuse)(t)
	if a := Decide(w.state(), w.now); len(a.Events) != 1 || a.Events[0].Message != "quota" || !a.Wake.Equal(w.postponed[0].Until) {
		t.Errorf("says %v, wakes at %s", a.Events, a.Wake)
	}
	w.postponed[0].News = ""
	if w.settle(); w.requestsMade != 0 || len(w.keys) != 0 || len(w.events) != 0 {
		t.Errorf("%d requests, %d keys, events %v", w.requestsMade, len(w.keys), w.events)
	}
	w.now = w.postponed[0].Until
	old := facts.OfSecret(w.secret).Leaf.ID
	if w.settle(); w.pinned == nil || w.pinned.ID != old || w.requestsMade != 1 {
		t.Errorf("after it is tried again: pinned %+v, %d requests", w.pinned, w.requestsMade)
	}
}

// TestUnpinThatIsRefused: what has come of the revocation is said, though the certificate stays pinned.
func TestUnpinThatIsRefused(t *testing.T) {
	w := after(issued, revoke(revocation.Superseded), settled, signed, settled, caSays(nil), func(w *world) { w.act(Decide(w.state(), w.now), 9) })(t)
	w.postponed = []Postponed{{Step: StepUnpin, Until: w.now.Add(5 * time.Minute)}}
	w.settle()
	if c := w.condition(certmanagerv1.CertificateConditionRevoking); c.Reason != string(revocation.Revoked) || w.pinned == nil {
		t.Errorf("%+v", c)
	}
	w.now = w.postponed[0].Until
	if w.settle(); w.pinned != nil {
		t.Error("it is not tried again")
	}
}

// TestNoPlaceForThePin: the Certificate says what is in the way, nothing is replaced, and a renewal that is due begins.
func TestNoPlaceForThePin(t *testing.T) {
	w := after(issued, revoke(revocation.KeyCompromise))(t)
	w.cannotRevoke = "Secret x is in the way"
	wake := w.settle()
	c := w.condition(certmanagerv1.CertificateConditionRevoking)
	if !strings.Contains(c.Message, w.cannotRevoke) || c.Reason != revocation.ReasonRetrying || len(w.events) != 1 || w.requestsMade != 0 || wake.Sub(w.now) > time.Minute {
		t.Errorf("%+v, events %v, %d requests, wakes at %s", c, w.events, w.requestsMade, wake)
	}
	later := w.clone()
	if due(later); later.settle().IsZero() || later.requestsMade != 1 {
		t.Errorf("the renewal does not begin: %v", later.steps)
	}
	w.cannotRevoke = ""
	if w.settle(); w.pinned == nil || w.requestsMade != 1 {
		t.Errorf("it is not pinned: %v", w.steps)
	}
}

// revokingSituations are the one decision on a Certificate of which a certificate is to be revoked.
func revokingSituations() []situation {
	compromised, superseded := revocation.KeyCompromise, revocation.Superseded
	refusal, trouble := fault.Terminal("X", "not yours"), errors.New("connection reset")
	return []situation{
		{"asked for", after(issued, revoke(superseded))},
		{"asked for, which was said", after(issued, revoke(superseded), func(w *world) { w.act(Decide(w.state(), w.now), 9) })},
		{"asked for, for no reason that there is", after(issued, revoke("X"))},
		{"asked for, without a certificate", after(newWorld, revoke(superseded))},
		{"asked for, and another Certificate has the Secret", after(issued, revoke(superseded), func(w *world) { w.owner = "older" })},
		{"asked for, on the short way", after(issued, inLine, due, settled, revoke(superseded))},
		{"asked for, while a failure is waited out", after(issued, noSecret, settled, failedRequest, settled, func(w *world) { w.secret = issued(w.t).secret }, revoke(superseded))},
		{"pinned", after(issued, pinned(superseded))},
		{"pinned, by an issuer that signs at once", after(issued, inLine, pinned(superseded))},
		{"pinned, and the key is compromised", after(thrifty, pinned(compromised))},
		{"pinned, and a renewal with the compromised key is under way", after(thrifty, triggered, settled, pinned(compromised))},
		{"pinned, and being replaced", after(issued, pinned(superseded), settled)},
		{"pinned, and the replacement is signed", after(issued, pinned(superseded), settled, signed)},
		{"pinned, and the replacement failed", after(issued, pinned(superseded), settled, failedRequest)},
		{"pinned, and an hour has passed", after(issued, pinned(compromised), settled, hour)},
		{"pinned, an hour has passed, and it is revoked", after(issued, pinned(compromised), settled, hour, caSays(nil))},
		{"pinned, and the issuer cannot revoke", after(issued, pinned(superseded), func(w *world) { w.cannotRevoke = "issuers of its type cannot" })},
		{"pinned, and called off", after(issued, pinned(superseded), revoke(""))},
		{"pinned, and ended", after(issued, pinned(superseded), ended)},
		{"replaced", after(issued, replaced(superseded), settled)},
		{"replaced, and renewal is due", after(issued, replaced(superseded), settled, due)},
		{"replaced, and the CA is away", after(issued, replaced(superseded), settled, caSays(trouble))},
		{"replaced, and the CA is away, which was said", after(issued, replaced(superseded), settled, caSays(trouble), settled)},
		{"replaced, and the CA refuses", after(issued, replaced(superseded), settled, caSays(refusal))},
		{"replaced, and the issuer cannot revoke", after(issued, replaced(superseded), settled, func(w *world) { w.cannotRevoke = "issuers of its type cannot" })},
		{"replaced and revoked", after(issued, replaced(superseded), settled, caSays(nil))},
		{"replaced and revoked, while a label was taken", after(rich, replaced(superseded), settled, caSays(nil), labelTaken)},
		{"recorded", after(issued, replaced(superseded), settled, caSays(nil), func(w *world) { w.act(Decide(w.state(), w.now), 9) })},
		{"over", after(issued, replaced(superseded), settled, caSays(nil), func(w *world) {
			w.act(Decide(w.state(), w.now), 9)
			w.act(Decide(w.state(), w.now), 9)
		})},
	}
}

// refused refuses the step that is decided on now.
func refused(cause error) func(*world) {
	return func(w *world) {
		w.refusal = nil
		a := Decide(w.state(), w.now)
		w.refusal = &Refusal{Step: a.Step, Message: fmt.Sprintf("The API server refuses to %s: %v", a.Step, cause), Err: cause}
	}
}

// refusedSituations are steps that could not be taken.
func refusedSituations() []situation {
	no := fault.After(time.Minute, "x", "no")
	said := func(w *world) {
		w.act(Decide(w.state(), w.now), 9)
		refused(no)(w)
	}
	return []situation{
		{"a key, the first time", after(newWorld, refused(no))},
		{"a key, the first time, which was said", after(newWorld, refused(no), said)},
		{"a key, which was said of the spec of before", after(newWorld, refused(no), said, otherNames)},
		{"a key, asked for by hand", after(issued, triggered, refused(no))},
		{"a request", after(newWorld, func(w *world) { w.act(Decide(w.state(), w.now), 9) }, refused(no))},
		{"a request, for good", after(newWorld, inLine, refused(fault.Terminal("x", "no such name")))},
		{"a request, on the short way", after(issued, inLine, due, refused(no))},
		{"a Secret", after(issuing, signed, refused(no))},
		{"a Secret, with an error that says nothing", after(issuing, signed, refused(errors.New("no")))},
		{"a temporary certificate", after(newWorld, temporaryWanted, settled, pendingRequestOf, refused(no))},
		{"a step that is not the next one any more", after(issuing, signed, refused(no), noRequests)},
	}
}

func TestRevokingTable(t *testing.T) {
	for file, situations := range map[string][]situation{"revoking.txt": revokingSituations(), "refused.txt": refusedSituations()} {
		var out strings.Builder
		for _, s := range situations {
			w := s.world(t)
			fmt.Fprintf(&out, "%s\n%s\n", s.name, describe(w, Decide(w.state(), w.now)))
		}
		golden.Check(t, file, out.String())
	}
}
