package lifecycle

import (
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/revocation"
)

// pin has the certificate that the Secret holds revoked.
func (w *world) pin(reason revocation.Reason) pki.PublicKeyFacts {
	leaf := FactsOf(w.secret).Leaf
	w.revoking = &revocation.Pin{ID: leaf.ID, Serial: "0a", Key: leaf.Key, NotAfter: leaf.NotAfter, Since: w.now, Reason: reason}
	return leaf.Key
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
		old := w.pin(revocation.KeyCompromise)
		w.settle()
		w.sign(w.next())
		w.settle()
		if facts := FactsOf(w.secret); w.stores != 1 || facts.Leaf.Key.Same(old) || facts.Leaf.ID == w.revoking.ID {
			t.Errorf("renewing %v: stored %d times, same key %v", renewing, w.stores, facts.Leaf.Key.Same(old))
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
	key := w.pin(revocation.Superseded)
	w.settle()
	w.fail(w.next())
	w.settle()
	w.now = w.now.Add(61 * time.Minute)
	w.settle()
	w.sign(w.next())
	w.settle()
	if facts := FactsOf(w.secret); w.stores != 1 || !facts.Leaf.Key.Same(key) || facts.Leaf.ID == w.revoking.ID {
		t.Errorf("stored %d times, same key %v", w.stores, facts.Leaf.Key.Same(key))
	}
}
