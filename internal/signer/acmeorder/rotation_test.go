package acmeorder_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/pebble"
)

// ask puts the annotation on an issuer.
func ask(is *certmanagerv1.Issuer, value string) {
	is.Annotations = map[string]string{acmev1.RotateAccountKeyAnnotation: value}
}

// cheap makes account keys of a kind that takes no time.
func cheap(b *bench) *bench {
	b.signer.AccountKeyAlgorithm = pki.ECDSA
	return b
}

// step sets an issuer up once, and waits for what it waits for; false if it is at rest.
func (b *bench) step(t *testing.T, is *certmanagerv1.Issuer) bool {
	t.Helper()
	again, err := b.probe(t, is)
	if !again.IsZero() {
		b.now = again
	}
	return err != nil || !again.IsZero()
}

// rest sets issuers up by turns until all are at rest.
func (b *bench) rest(t *testing.T, issuers ...*certmanagerv1.Issuer) {
	t.Helper()
	b.issuers = issuers
	for range 100 {
		busy := false
		for _, is := range issuers {
			busy = b.step(t, is) || busy
		}
		if !busy {
			return
		}
	}
	t.Fatalf("they do not come to rest: %+v", issuers[0].Status)
}

func (b *bench) account(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := b.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "account"}, secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// wantRegistered checks that an issuer is ready, with nothing left of a replacement.
func wantRegistered(t *testing.T, is *certmanagerv1.Issuer) {
	t.Helper()
	ready := certmanagerv1.FindIssuerCondition(is.Status.Conditions, certmanagerv1.IssuerConditionReady)
	if ready == nil || ready.Status != cmmeta.ConditionTrue || ready.Reason != certmanagerv1.IssuerReasonACMEAccountRegistered ||
		ready.Message != "The ACME account was registered with the ACME server" {
		t.Errorf("issuer %s: %+v", is.Name, ready)
	}
}

// TestRotation: one value, one replacement, in a form that cert-manager reads.
func TestRotation(t *testing.T) {
	ca, b := startCA(t, pebble.Options{}), newBench(t)
	is := ca.issuer("i", "a@example.com")
	b.rest(t, is)
	before, was := b.account(t), is.Status.ACME
	for _, step := range []struct {
		what, value, want string
	}{
		{"nobody asks", "", ""},
		{"asked for", "2026-11-21", "newAccount keyChange"},
		{"asked for already", "2026-11-21", ""},
		{"not asked for any more", "", ""},
		{"the same as before", "2026-11-21", ""},
		{"asked for again", "2027", "newAccount keyChange"},
	} {
		ca.questions()
		ask(is, step.value)
		b.rest(t, is)
		if got := ca.questions(); got != step.want {
			t.Errorf("%s: asked %q, want %q", step.what, got, step.want)
		}
		wantRegistered(t, is)
	}
	after := b.account(t)
	if len(after.Data) != 1 || !strings.HasPrefix(string(after.Data["tls.key"]), "-----BEGIN RSA PRIVATE KEY-----") || string(after.Data["tls.key"]) == string(before.Data["tls.key"]) {
		t.Errorf("the Secret has %d entries", len(after.Data))
	}
	if now := is.Status.ACME; now.URI != was.URI || now.LastPrivateKeyHash == was.LastPrivateKeyHash || now.LastKeyRotation != "2027" || ca.accounts() != 1 {
		t.Errorf("was %+v, is %+v, %d accounts", was, now, ca.accounts())
	}
	if len(b.said) != 4 || !strings.Contains(b.said[0], "i false ReplacingACMEAccountKey") || !strings.Contains(b.said[1], "i false ACMEAccountKeyReplaced") {
		t.Errorf("events %q", b.said)
	}
	next := b.restarted(t)
	next.rest(t, is)
	if got := ca.questions(); got != "" || len(next.said) > 0 {
		t.Errorf("a new process asks %q, says %q", got, next.said)
	}
}

// TestRotationOfANewAccount: a key that is made for an issuer with the annotation is new enough.
func TestRotationOfANewAccount(t *testing.T) {
	ca, b := startCA(t, pebble.Options{}), cheap(newBench(t))
	is := ca.issuer("i", "")
	ask(is, "1")
	b.rest(t, is)
	if got := ca.questions(); got != "newAccount" || is.Status.ACME.LastKeyRotation != "1" {
		t.Errorf("asked %q, %+v", got, is.Status.ACME)
	}
}

// TestRotationByCrash: whatever the last thing is that a process does, the next one ends with
// one account, one key, and a key that the CA goes by.
func TestRotationByCrash(t *testing.T) {
	for _, at := range []string{"next key", "keyChange", "main key"} {
		for _, before := range []bool{true, false} {
			for _, withdrawn := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, before %t, withdrawn %t", at, before, withdrawn), func(t *testing.T) {
					crash(t, at, before, withdrawn)
				})
			}
		}
	}
}

var errDied = errors.New("the process has died")

func crash(t *testing.T, at string, before, withdrawn bool) {
	t.Helper()
	ca, b := startCA(t, pebble.Options{}), cheap(newBench(t))
	is := ca.issuer("i", "a@example.com")
	b.rest(t, is)
	old, uri := b.account(t).Data["tls.key"], is.Status.ACME.URI
	dead, writes := false, 0
	die := func(act func() error) error {
		if dead {
			return errDied
		}
		dead = true
		if !before {
			if err := act(); err != nil {
				t.Error(err)
			}
		}
		return errDied
	}
	b.patch = func(write func() error) error {
		if writes++; dead || at == "next key" && writes == 1 || at == "main key" && writes == 2 {
			return die(write)
		}
		return write()
	}
	ca.set(func() {
		ca.rollover = func(w http.ResponseWriter, act func(http.ResponseWriter)) {
			if at != "keyChange" || dead {
				act(w)
				return
			}
			_ = die(func() error { act(httptest.NewRecorder()); return nil })
			ca.set(func() { ca.silent = true }) // what it asks then is not answered
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	ask(is, "1")
	known := is.Status
	for i := 0; !dead; i++ {
		if b.step(t, is); i > 20 {
			t.Fatalf("the crash at the %s does not come", at)
		}
	}
	is.Status = known // what it knew last is not written
	ca.set(func() { ca.silent, ca.rollover = false, nil })
	ca.questions()
	if withdrawn {
		is.Annotations = nil
	}
	b = cheap(b.restarted(t))
	b.now = b.now.Add(time.Hour)
	b.rest(t, is)
	wantRegistered(t, is)
	secret, nothing := b.account(t), at == "next key" && before && withdrawn
	if len(secret.Data) != 1 || (string(secret.Data["tls.key"]) == string(old)) != nothing || is.Status.ACME.URI != uri || ca.accounts() != 1 {
		t.Errorf("%d entries, account %s, was %s, %d accounts", len(secret.Data), is.Status.ACME.URI, uri, ca.accounts())
	}
	if n := strings.Count(ca.questions(), "keyChange"); n > 1 || n == 1 && at != "next key" && !before {
		t.Errorf("%d more requests to replace the key", n)
	}
	key, err := pki.DecodePrivateKey(secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	alone, err := accounts.New(accounts.Options{Now: func() time.Time { return b.now }}).
		Open("alone", accounts.Server{URL: ca.DirectoryURL, CABundle: ca.TLSBundle}, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.Register(t.Context(), accounts.Registration{Email: "a@example.com"}); err != nil || alone.URL() != uri {
		t.Errorf("the CA knows the key as that of %q: %v", alone.URL(), err)
	}
}

// TestRotationWhileTheCAIsAway: a process that starts with two keys uses neither before the CA
// has said which one it goes by, and says so.
func TestRotationWhileTheCAIsAway(t *testing.T) {
	ca, b := startCA(t, pebble.Options{}), cheap(newBench(t))
	is := ca.issuer("i", "")
	b.rest(t, is)
	b.patch = func(write func() error) error { err := write(); ca.set(func() { ca.silent = true }); return err }
	ask(is, "1")
	for b.account(t).Data["tls.key.next"] == nil {
		b.step(t, is)
	}
	b = cheap(b.restarted(t))
	b.step(t, is)
	b.step(t, is)
	ready := certmanagerv1.FindIssuerCondition(is.Status.Conditions, certmanagerv1.IssuerConditionReady)
	if _, bound := b.accounts.Of(is.UID); bound || ready.Status != cmmeta.ConditionTrue || ready.Reason != "ErrReplaceACMEAccountKey" || !strings.Contains(ready.Message, "two keys") {
		t.Errorf("bound %t, %+v", bound, ready)
	}
	ca.set(func() { ca.silent = false })
	b.rest(t, is)
	wantRegistered(t, is)
	if ca.accounts() != 1 || len(b.account(t).Data) != 1 {
		t.Errorf("%d accounts", ca.accounts())
	}
}

// TestRotationIsShared: all issuers with the Secret end with the new key, at each of their CAs,
// with the account that they have had; values that differ do not chase each other.
func TestRotationIsShared(t *testing.T) {
	ca, other, b := startCA(t, pebble.Options{}), startCA(t, pebble.Options{}), cheap(newBench(t))
	one, two, three, far := ca.issuer("one", "a@example.com"), ca.issuer("two", "b@example.com"), ca.issuer("three", "a@example.com"), other.issuer("far", "")
	b.rest(t, one, two, three, far)
	uris := []string{one.Status.ACME.URI, far.Status.ACME.URI}
	old := b.account(t).Data["tls.key"]
	ca.questions()
	other.questions()
	ask(one, "1")
	ask(three, "1")
	b.rest(t, one, two, three, far)
	if got := ca.questions() + ", " + other.questions(); got != "newAccount keyChange, newAccount keyChange" {
		t.Errorf("asked %s", got)
	}
	for _, is := range []*certmanagerv1.Issuer{one, two, three, far} {
		wantRegistered(t, is)
		if !slices.Contains(uris, is.Status.ACME.URI) || is.Status.ACME.LastPrivateKeyHash != one.Status.ACME.LastPrivateKeyHash {
			t.Errorf("%s: %+v", is.Name, is.Status.ACME)
		}
	}
	if secret := b.account(t); len(secret.Data) != 1 || string(secret.Data["tls.key"]) == string(old) || ca.accounts() != 1 || other.accounts() != 1 {
		t.Errorf("%d entries, %d and %d accounts", len(secret.Data), ca.accounts(), other.accounts())
	}
	ask(one, "2")
	ask(two, "3")
	b.rest(t, one, two, three, far)
	if n := strings.Count(ca.questions(), "keyChange"); n != 2 || ca.accounts() != 1 || other.accounts() != 1 {
		t.Errorf("%d replacements for 2 values", n)
	}
	other.questions()
	b = cheap(b.restarted(t))
	b.rest(t, one, two, three, far)
	if got := ca.questions() + other.questions(); got != "" {
		t.Errorf("a new process asks %q", got)
	}
}

// TestRotationIsNotPossible: what speaks against it is said once, with what to do; the account
// works, and the CA is left alone.
func TestRotationIsNotPossible(t *testing.T) {
	for name, c := range map[string]struct {
		// change makes it impossible.
		change func(b *bench, ca *watchedCA, is *certmanagerv1.Issuer, secret *corev1.Secret)
		want   string
	}{
		"the CA has no keyChange": {func(_ *bench, ca *watchedCA, _ *certmanagerv1.Issuer, _ *corev1.Secret) { ca.without = "keyChange" }, "no keyChange: the account key cannot be replaced. The account keeps its key, and works"},
		"the CA refuses": {func(_ *bench, ca *watchedCA, _ *certmanagerv1.Issuer, _ *corev1.Secret) {
			ca.rollover = func(w http.ResponseWriter, _ func(http.ResponseWriter)) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusForbidden)
				_, _ = w.Write([]byte(`{"type":"urn:ietf:params:acme:error:unauthorized","detail":"ask your operator"}`))
			}
		}, "ask your operator. The account keeps its key, and works. This is tried again every hour"},
		"keys are not generated": {func(_ *bench, _ *watchedCA, is *certmanagerv1.Issuer, _ *corev1.Secret) {
			is.Spec.ACME.DisableAccountKeyGeneration = true
		}, "disableAccountKeyGeneration"},
		"the Secret is immutable": {func(_ *bench, _ *watchedCA, _ *certmanagerv1.Issuer, s *corev1.Secret) {
			yes := true
			s.Immutable = &yes
		}, "is immutable"},
		"the Secret is somebody else's": {func(_ *bench, _ *watchedCA, _ *certmanagerv1.Issuer, s *corev1.Secret) {
			yes := true
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "ExternalSecret", Name: "x", UID: "x", Controller: &yes}}
		}, `belongs to the ExternalSecret "x"`},
		"the entry is in use": {func(_ *bench, _ *watchedCA, _ *certmanagerv1.Issuer, s *corev1.Secret) {
			s.Data["tls.key.next"] = []byte("x")
		}, `an entry "tls.key.next" of somebody else`},
		"another issuer has a copy": {func(b *bench, _ *watchedCA, is *certmanagerv1.Issuer, _ *corev1.Secret) {
			copied := is.DeepCopy()
			copied.Name, copied.UID, copied.Spec.ACME.PrivateKey.Name = "copied", "copied", "copy"
			b.issuers = append(b.issuers, copied)
		}, `Issuer "copied" in namespace "ns" has a copy of the key in Secret ns/copy`},
		"another issuer trusts otherwise": {func(b *bench, _ *watchedCA, is *certmanagerv1.Issuer, _ *corev1.Secret) {
			other := is.DeepCopy()
			other.Name, other.UID, other.Spec.ACME.CABundle, other.Spec.ACME.SkipTLSVerify = "other", "other", nil, true
			b.issuers = append(b.issuers, other)
		}, "another caBundle or skipTLSVerify"},
		"the Secret cannot be written": {func(b *bench, _ *watchedCA, _ *certmanagerv1.Issuer, _ *corev1.Secret) {
			b.patch = func(func() error) error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "account", errors.New("no right to patch"))
			}
		}, "no right to patch"},
	} {
		t.Run(name, func(t *testing.T) {
			ca, b := startCA(t, pebble.Options{}), cheap(newBench(t))
			is := ca.issuer("i", "")
			b.rest(t, is)
			secret := b.account(t)
			ca.set(func() { c.change(b, ca, is, secret) })
			if err := b.api.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			if ca.without != "" { // the directory is read again now and then
				b = cheap(b.restarted(t))
				b.rest(t, is)
			}
			ask(is, "1")
			ca.questions()
			for range 8 {
				b.step(t, is)
			}
			ready := certmanagerv1.FindIssuerCondition(is.Status.Conditions, certmanagerv1.IssuerConditionReady)
			if ready.Status != cmmeta.ConditionTrue || ready.Reason != "ErrReplaceACMEAccountKey" || !strings.Contains(ready.Message, c.want) {
				t.Errorf("%+v", ready)
			}
			warnings := slices.DeleteFunc(b.said, func(said string) bool { return !strings.Contains(said, " true ") })
			if len(warnings) != 1 || !strings.Contains(warnings[0], c.want) {
				t.Errorf("warnings %q", warnings)
			}
			if account, bound := b.accounts.Of(is.UID); !bound || account.URL() == "" {
				t.Error("the account is not used any more")
			}
			if n := strings.Count(ca.questions(), "keyChange"); n > 8 || n > 0 && name != "the CA refuses" {
				t.Errorf("%d requests to replace the key", n)
			}
		})
	}
}

// TestRotationOfALimitedAccount: a limit on replacements is kept, and holds up nothing else.
func TestRotationOfALimitedAccount(t *testing.T) {
	ca, b := startCA(t, pebble.Options{}), cheap(newBench(t))
	is := ca.issuer("i", "")
	b.rest(t, is)
	ca.set(func() {
		ca.rollover = func(w http.ResponseWriter, _ func(http.ResponseWriter)) {
			w.Header().Set("Retry-After", "600")
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many replacements"}`))
		}
	})
	ask(is, "1")
	began := b.now
	for ca.questions(); !strings.Contains(ca.questions(), "keyChange"); {
		b.step(t, is)
	}
	b.step(t, is)
	account, _ := b.accounts.Of(is.UID)
	if until, _ := account.Parked(); until.After(b.now) || b.now.Sub(began) < 10*time.Minute {
		t.Errorf("parked until %s; the next try after %s", until, b.now.Sub(began))
	}
	ready := certmanagerv1.FindIssuerCondition(is.Status.Conditions, certmanagerv1.IssuerConditionReady)
	if !strings.Contains(ready.Message, "too many replacements") || !strings.Contains(ready.Message, "retrying with back-off") {
		t.Errorf("%+v", ready)
	}
	ca.set(func() { ca.rollover = nil })
	b.rest(t, is)
	wantRegistered(t, is)
}

// TestRotationKeepsTheSecretOfOthers: what somebody writes into the Secret meanwhile stays.
func TestRotationKeepsTheSecretOfOthers(t *testing.T) {
	ca, b := startCA(t, pebble.Options{}), cheap(newBench(t))
	is := ca.issuer("i", "")
	b.rest(t, is)
	writes := 0
	b.patch = func(write func() error) error {
		if writes++; writes%2 == 1 { // somebody is faster, each time
			secret := b.account(t)
			secret.Data[fmt.Sprintf("other-%d", writes)] = []byte("x")
			if err := b.api.Update(context.Background(), secret); err != nil {
				t.Error(err)
			}
		}
		return write()
	}
	ask(is, "1")
	b.rest(t, is)
	wantRegistered(t, is)
	if secret := b.account(t); len(secret.Data) != 3 || secret.Data["tls.key.next"] != nil {
		t.Errorf("%d entries", len(secret.Data))
	}
}
