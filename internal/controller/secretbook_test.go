package controller

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/lifecycle"
)

func labelledSecret(version string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "tls", UID: "1", ResourceVersion: version,
			Labels:        map[string]string{certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue},
			Annotations:   map[string]string{certmanagerv1.CertificateNameAnnotation: "crt"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "somebody"}},
		},
		Data: data,
	}
}

func stripThrough(t *testing.T, b *SecretBook, secret *corev1.Secret) *corev1.Secret {
	t.Helper()
	out, err := b.Transform(secret)
	if err != nil {
		t.Fatal(err)
	}
	kept, ok := out.(*corev1.Secret)
	if !ok || kept.Data != nil || kept.ManagedFields != nil {
		t.Fatalf("the cache is given %+v", out)
	}
	return kept
}

// TestSecretBookKeepsFactsOnly: bodies do not stay, a second pass of what was stripped
// loses nothing, and a Secret that is emptied is known to be empty.
func TestSecretBookKeepsFactsOnly(t *testing.T) {
	b := NewSecretBook()
	kept := stripThrough(t, b, labelledSecret("5", map[string][]byte{cmmeta.TLSPrivateKeyKey: []byte("x"), cmmeta.TLSCertKey: []byte("y")}))
	again := stripThrough(t, b, kept)
	facts := b.target(again)
	if facts == nil || !facts.HasKey || !facts.HasCertificate || facts.CertificateName != "crt" {
		t.Fatalf("facts %+v", facts)
	}
	// A newer version that was just written is known before the watch brings the older again.
	newer := labelledSecret("7", map[string][]byte{cmmeta.TLSCertKey: []byte("y")})
	if facts := b.target(newer); facts.HasKey {
		t.Errorf("facts of a write are those of the version before: %+v", facts)
	}
	if facts := b.target(stripThrough(t, b, again)); facts.HasKey || !facts.HasCertificate {
		t.Errorf("what was stripped before replaces newer facts: %+v", facts)
	}
	emptied := stripThrough(t, b, labelledSecret("8", nil))
	if facts := b.target(emptied); facts == nil || !facts.Empty {
		t.Errorf("an emptied Secret has facts %+v", facts)
	}
	b.forget(emptied)
	if b.has(types.NamespacedName{Namespace: "ns", Name: "tls"}) || b.target(emptied) != nil {
		t.Error("a Secret that is gone is known")
	}
}

// A certificate's Secret that somebody labels as a next private key is none: it would be
// found without a certificate, and deleted.
func TestSecretBookTellsKeysByTheirType(t *testing.T) {
	b := NewSecretBook()
	secret := labelledSecret("5", map[string][]byte{cmmeta.TLSPrivateKeyKey: []byte("x"), cmmeta.TLSCertKey: []byte("y")})
	secret.Type, secret.Labels[certmanagerv1.NextPrivateKeyLabel] = corev1.SecretTypeTLS, certmanagerv1.LabelTrue
	kept := stripThrough(t, b, secret)
	if facts := b.target(kept); facts == nil || !facts.HasCertificate || b.key(kept) != nil {
		t.Errorf("facts %+v, key %+v", facts, b.key(kept))
	}
}

// TestAPanicOverASecretIsContained: a Secret that its decoding panics over is one that does not decode. The
// watch, which decodes it, goes on.
func TestAPanicOverASecretIsContained(t *testing.T) {
	b := NewSecretBook()
	b.factsOf = func(*corev1.Secret) *lifecycle.SecretFacts { panic("out of range") }
	b.keyFactsOf = func(*corev1.Secret) lifecycle.KeyFacts { panic("out of range") }
	secret := labelledSecret("1", map[string][]byte{"tls.key": []byte("hostile")})
	facts := b.target(stripThrough(t, b, secret))
	if facts == nil || facts.CertificateError == nil || facts.KeyError == nil || !strings.Contains(facts.KeyError.Error(), "out of range") {
		t.Errorf("%+v", facts)
	}
	key := labelledSecret("2", nil)
	key.Labels[certmanagerv1.NextPrivateKeyLabel], key.Type = certmanagerv1.LabelTrue, corev1.SecretTypeOpaque
	if facts := b.key(stripThrough(t, b, key)); facts == nil || facts.Error == nil {
		t.Errorf("%+v", facts)
	}
}

// TestRequestBookPutsBack: the two ends of an issued request are there until they are
// forgotten, and those of a request of nobody's Certificate are not kept at all.
func TestRequestBookPutsBack(t *testing.T) {
	b := NewRequestBook()
	made := func(owner string) *certmanagerv1.CertificateRequest {
		yes := true
		r := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{
			Name: "r", UID: "u", OwnerReferences: []metav1.OwnerReference{{APIVersion: "g/v1", Kind: owner, Name: "crt", Controller: &yes}},
		}}
		r.Spec.Request, r.Status.Certificate, r.Status.CA = []byte("csr"), []byte("chain"), []byte("ca")
		return r
	}
	for range 2 { // caches may hand it over twice
		if _, err := b.Transform(made(certmanagerv1.CertificateKind)); err != nil {
			t.Fatal(err)
		}
	}
	kept := made(certmanagerv1.CertificateKind)
	if _, err := b.Transform(kept); err != nil || !Away(kept) || kept.Spec.Request != nil || kept.Status.CA != nil {
		t.Fatalf("%v: the cache is given %+v", err, kept)
	}
	whole := *kept
	if !b.Complete(&whole) || string(whole.Status.Certificate) != "chain" || string(whole.Status.CA) != "ca" || string(whole.Spec.Request) != "csr" {
		t.Errorf("put back: %+v", whole)
	}
	b.OnDelete(kept)
	if whole := *kept; b.Complete(&whole) {
		t.Error("the certificate of a request that is gone is kept")
	}
	if _, err := b.Transform(made("Pod")); err != nil || len(b.issued) != 0 {
		t.Errorf("%v: the certificate of a request that is not a Certificate's is kept", err)
	}
	pending := made(certmanagerv1.CertificateKind)
	pending.Status.Certificate = nil
	if _, err := b.Transform(pending); err != nil || Away(pending) || pending.Spec.Request == nil {
		t.Errorf("%v: a pending request is taken apart: %+v", err, pending)
	}
}

// TestUnlabelledTellsChanges: the Secrets that were there at the start make no event,
// and a list that replaces another tells what came, changed and went; of those that nobody
// has asked for, only that they went.
func TestUnlabelledTellsChanges(t *testing.T) {
	u := NewUnlabelled(nil, nil)
	store := u.stores[0]
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }
	var told []string
	left := map[secretID]bool{}
	u.onChange(func(changed types.NamespacedName) { told = append(told, changed.Name) })
	u.onLeave(func(id secretID) { left[id] = true })
	item := func(name, version string) any {
		thin, err := store.list(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}})
		if err != nil {
			t.Fatal(err)
		}
		return thin
	}
	if err := store.Replace([]any{item("a", "1"), item("b", "2"), item("c", "3"), item("unknown", "3")}, ""); err != nil || len(told) != 0 || !u.Synced() {
		t.Fatalf("%v: told %v, synced %v", err, told, u.Synced())
	}
	for _, name := range []string{"a", "c"} {
		if _, there := u.version(key(name)); !there {
			t.Fatalf("%s is not known", name)
		}
	}
	if err := store.Replace([]any{item("a", "1"), item("b", "9"), item("d", "4")}, ""); err != nil {
		t.Fatal(err)
	}
	if want := []string{"c", "b", "d"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if len(left) != 2 || !left[u.id(key("c"))] || !left[u.id(key("unknown"))] {
		t.Errorf("two have left, told were %d", len(left))
	}
	if err := store.Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", ResourceVersion: "10"}}); err != nil || told[len(told)-1] != "a" || !left[u.id(key("a"))] {
		t.Errorf("%v: told %v", err, told)
	}
	if _, there := u.version(key("a")); there {
		t.Error("a Secret that is gone is known")
	}
	if version, there := u.version(key("b")); !there || version != "9" {
		t.Errorf("version %q, %v", version, there)
	}
	if len(u.asked) != 1 {
		t.Errorf("the names kept are %v: those that are gone cost memory", u.asked)
	}
}

// TestUnlabelledKeepsNamespacesApart: with a watch for each namespace, a list of one says nothing
// about the other.
func TestUnlabelledKeepsNamespacesApart(t *testing.T) {
	u := NewUnlabelled(nil, []string{"one", "two"})
	for i, namespace := range []string{"one", "two"} {
		thin, err := u.stores[i].list(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", ResourceVersion: "1"}})
		if err == nil {
			err = u.stores[i].Replace([]any{thin}, "")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	one, two := types.NamespacedName{Namespace: "one", Name: "a"}, types.NamespacedName{Namespace: "two", Name: "a"}
	u.version(one)
	u.version(two)
	if err := u.stores[0].Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if _, there := u.version(one); there {
		t.Error("a Secret that is gone is known")
	}
	if _, there := u.version(two); !there {
		t.Error("a Secret of the other namespace is gone too")
	}
}
