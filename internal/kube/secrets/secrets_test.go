package secrets

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	toolscache "k8s.io/client-go/tools/cache"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/facts"
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

// newSecrets returns a reader with a watch of the Secrets without our label in each namespace.
func newSecrets(namespaces []string) *Secrets {
	s := New(time.Now)
	s.labelled = toolscache.NewSharedIndexInformer(nil, &corev1.Secret{}, 0, nil)
	s.others = watchesOf(s, Source{Metadata: metadatafake.NewSimpleMetadataClient(runtime.NewScheme()), Namespaces: namespaces})
	return s
}

func stripThrough(t *testing.T, s *Secrets, secret *corev1.Secret) *corev1.Secret {
	t.Helper()
	out, err := s.Transform(secret)
	if err != nil {
		t.Fatal(err)
	}
	kept, ok := out.(*corev1.Secret)
	if !ok || kept.Data != nil || kept.ManagedFields != nil {
		t.Fatalf("the cache is given %+v", out)
	}
	return kept
}

// TestSecretsKeepsFactsOnly: bodies do not stay, a second pass of what was stripped
// loses nothing, and a Secret that is emptied is known to be empty.
func TestSecretsKeepsFactsOnly(t *testing.T) {
	s := newSecrets(nil)
	kept := stripThrough(t, s, labelledSecret("5", map[string][]byte{cmmeta.TLSPrivateKeyKey: []byte("x"), cmmeta.TLSCertKey: []byte("y")}))
	again := stripThrough(t, s, kept)
	facts := s.target(again)
	if facts == nil || !facts.HasKey || !facts.HasCertificate || facts.CertificateName != "crt" {
		t.Fatalf("facts %+v", facts)
	}
	// A newer version that was just written is known before the watch brings the older again.
	newer := labelledSecret("7", map[string][]byte{cmmeta.TLSCertKey: []byte("y")})
	if facts := s.target(newer); facts.HasKey {
		t.Errorf("facts of a write are those of the version before: %+v", facts)
	}
	if facts := s.target(stripThrough(t, s, again)); facts.HasKey || !facts.HasCertificate {
		t.Errorf("what was stripped before replaces newer facts: %+v", facts)
	}
	emptied := stripThrough(t, s, labelledSecret("8", nil))
	if facts := s.target(emptied); facts == nil || !facts.Empty {
		t.Errorf("an emptied Secret has facts %+v", facts)
	}
	s.leaveLabelled(emptied)
	if len(s.facts) > 0 || s.target(emptied) != nil {
		t.Error("a Secret that is gone is known")
	}
}

// A certificate's Secret that somebody labels as a next private key is none: it would be
// found without a certificate, and deleted.
func TestSecretsTellsKeysByTheirType(t *testing.T) {
	s := newSecrets(nil)
	secret := labelledSecret("5", map[string][]byte{cmmeta.TLSPrivateKeyKey: []byte("x"), cmmeta.TLSCertKey: []byte("y")})
	secret.Type, secret.Labels[certmanagerv1.NextPrivateKeyLabel] = corev1.SecretTypeTLS, certmanagerv1.LabelTrue
	kept := stripThrough(t, s, secret)
	if facts := s.target(kept); facts == nil || !facts.HasCertificate || s.key(kept) != nil {
		t.Errorf("facts %+v, key %+v", facts, s.key(kept))
	}
}

// TestAPanicOverASecretIsContained: a Secret that its decoding panics over is one that does not decode. The
// watch, which decodes it, goes on.
func TestAPanicOverASecretIsContained(t *testing.T) {
	s := newSecrets(nil)
	s.factsOf = func(*corev1.Secret) *facts.Secret { panic("out of range") }
	s.keyFactsOf = func(*corev1.Secret) facts.Key { panic("out of range") }
	secret := labelledSecret("1", map[string][]byte{"tls.key": []byte("hostile")})
	facts := s.target(stripThrough(t, s, secret))
	if facts == nil || facts.CertificateError == nil || facts.KeyError == nil || !strings.Contains(facts.KeyError.Error(), "out of range") {
		t.Errorf("%+v", facts)
	}
	key := labelledSecret("2", nil)
	key.Labels[certmanagerv1.NextPrivateKeyLabel], key.Type = certmanagerv1.LabelTrue, corev1.SecretTypeOpaque
	if facts := s.key(stripThrough(t, s, key)); facts == nil || facts.Error == nil {
		t.Errorf("%+v", facts)
	}
}

// TestUnlabelledTellsChanges: the Secrets that were there at the start make no event, and a list that replaces another
// tells what came, changed and went.
func TestUnlabelledTellsChanges(t *testing.T) {
	s := newSecrets(nil)
	store := s.others[0]
	var told []string
	s.listeners = append(s.listeners, func(changed types.NamespacedName) { told = append(told, changed.Name) })
	// The first two lists are as a watch that streams leaves them, the third as a list of the API server is.
	item := func(name, version string) any {
		thin, err := store.Transformer()(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}})
		if err != nil {
			t.Fatal(err)
		}
		return thin
	}
	known := func(name string) string {
		version, doubtful := s.unlabelled(types.NamespacedName{Namespace: "ns", Name: name})
		return fmt.Sprint(version, " ", doubtful)
	}
	if err := store.Replace([]any{item("a", "1"), item("b", "2"), item("c", "3")}, ""); err != nil || len(told) != 0 || !store.synced.Load() {
		t.Fatalf("%v: told %v, synced %v", err, told, store.synced.Load())
	}
	if err := store.Replace([]any{item("a", "1"), item("b", "9"), item("d", "4")}, ""); err != nil {
		t.Fatal(err)
	}
	slices.Sort(told)
	if want := []string{"b", "c", "d"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if err := store.Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", ResourceVersion: "10"}}); err != nil || told[len(told)-1] != "a" {
		t.Errorf("%v: told %v", err, told)
	}
	for name, want := range map[string]string{"a": " true", "b": "9 false", "c": " true", "d": "4 false", "never": " false"} {
		if got := known(name); got != want {
			t.Errorf("of %s is known: %s, want %s", name, got, want)
		}
	}
}

// TestUnlabelledKeepsNamespacesApart: with a watch for each namespace, a list of one says nothing
// about the other.
func TestUnlabelledKeepsNamespacesApart(t *testing.T) {
	s := newSecrets([]string{"one", "two"})
	for i, namespace := range []string{"one", "two"} {
		item := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", ResourceVersion: "1"}}
		if err := s.others[i].Replace([]any{item}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.others[0].Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if version, doubtful := s.unlabelled(types.NamespacedName{Namespace: "one", Name: "a"}); version != "" || !doubtful {
		t.Errorf("a Secret that is gone has the version %q", version)
	}
	if version, _ := s.unlabelled(types.NamespacedName{Namespace: "two", Name: "a"}); version != "1" {
		t.Error("a Secret of the other namespace is gone too")
	}
}

// TestLabelChangesBetweenWatches: whichever of the two watches is ahead, a Secret whose label changes is never taken
// for deleted; one that is deleted is, after a minute.
func TestLabelChangesBetweenWatches(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newSecrets(nil)
	s.now = func() time.Time { return now }
	key := types.NamespacedName{Namespace: "ns", Name: "tls"}
	without := func(version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "tls", ResourceVersion: version}}
	}
	wanted := func(when string, want bool) {
		t.Helper()
		if version, doubtful := s.unlabelled(key); (version != "" || doubtful) != want {
			t.Errorf("%s: version %q, doubtful %v", when, version, doubtful)
		}
	}
	wanted("before it is made", false)
	if err := s.others[0].Add(without("1")); err != nil {
		t.Fatal(err)
	}
	wanted("made without the label", true)
	if err := s.others[0].Delete(without("2")); err != nil {
		t.Fatal(err)
	}
	wanted("labelled, and neither watch has it", true)
	labelled := stripThrough(t, s, labelledSecret("2", nil))
	wanted("labelled, before the cache has it", true)
	now = now.Add(2 * doubt)
	wanted("labelled, long since", true)
	s.leaveLabelled(labelled)
	wanted("without the label again, and neither watch has it", true)
	now = now.Add(2 * doubt)
	wanted("gone", false)
}

// TestOwnersAreNotKept: of the owners and finalizers of a Secret with our label, the cache keeps the controller, and
// that there is a finalizer.
func TestOwnersAreNotKept(t *testing.T) {
	secret := labelledSecret("1", nil)
	for i := range 50_000 {
		secret.OwnerReferences = append(secret.OwnerReferences, metav1.OwnerReference{UID: types.UID(fmt.Sprint("u", i))})
	}
	secret.OwnerReferences[40_000].Controller = new(true)
	secret.Finalizers = []string{"example.com/a", "example.com/b"}
	kept := stripThrough(t, newSecrets(nil), secret)
	if owners := kept.OwnerReferences; len(owners) != 1 || cap(owners) != 1 || owners[0].UID != "u40000" || len(kept.Finalizers) != 1 {
		t.Errorf("%d owners and %d finalizers", len(owners), len(kept.Finalizers))
	}
}
