package controller

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/lifecycle"
)

// SecretBook keeps the facts of the Secrets with our label. The watch cache hands it
// each Secret before storing it, and stores no more than the metadata: bodies and
// managed fields of ten thousand Secrets are what most of the memory would go to.
type SecretBook struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]*bookEntry

	// managed is the label that nearly every Secret has and no other: they share it.
	managed map[string]string

	// factsOf and keyFactsOf are those of internal/lifecycle.
	factsOf    func(*corev1.Secret) *lifecycle.SecretFacts
	keyFactsOf func(*corev1.Secret) lifecycle.KeyFacts
}

// bookEntry is what is known of a version of a Secret.
type bookEntry struct {
	uid     types.UID
	version string
	facts   *lifecycle.SecretFacts // of all but next private keys
	key     *lifecycle.KeyFacts    // of next private keys
}

// NewSecretBook returns an empty book.
func NewSecretBook() *SecretBook {
	return &SecretBook{
		entries: map[types.NamespacedName]*bookEntry{},
		managed: map[string]string{certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue},
		factsOf: lifecycle.FactsOf, keyFactsOf: lifecycle.KeyFactsOf,
	}
}

// Transform is the cache.TransformFunc of Secrets: it notes the facts and returns
// the rest.
func (b *SecretBook) Transform(obj any) (any, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return obj, nil
	}
	b.note(secret)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion,
			DeletionTimestamp: secret.DeletionTimestamp, Finalizers: secret.Finalizers,
			Labels: b.labels(secret.Labels), OwnerReferences: secret.OwnerReferences,
		},
		Type: secret.Type,
	}, nil
}

// labels returns what is needed of the labels.
func (b *SecretBook) labels(all map[string]string) map[string]string {
	if all[certmanagerv1.NextPrivateKeyLabel] != certmanagerv1.LabelTrue {
		return b.managed
	}
	return map[string]string{
		certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue, certmanagerv1.NextPrivateKeyLabel: certmanagerv1.LabelTrue,
	}
}

// note decodes a Secret, unless it has been before or is stripped.
func (b *SecretBook) note(secret *corev1.Secret) *bookEntry {
	known := b.known(secret)
	if known != nil && (known.version == secret.ResourceVersion || stripped(secret)) {
		return known
	}
	e := &bookEntry{uid: secret.UID, version: secret.ResourceVersion}
	b.read(secret, e)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[client.ObjectKeyFromObject(secret)] = e
	return e
}

// read decodes a Secret. Anybody may have written it, and a panic on the goroutine of the watch
// would end the process, again after each restart: a panic is what is wrong with that Secret.
func (b *SecretBook) read(secret *corev1.Secret, e *bookEntry) {
	// The type cannot be changed, but anybody who may write the Secret of a certificate can change
	// its labels.
	isKey := secret.Labels[certmanagerv1.NextPrivateKeyLabel] == certmanagerv1.LabelTrue && secret.Type != corev1.SecretTypeTLS
	err := fault.Contained(func() error {
		if isKey {
			key := b.keyFactsOf(secret)
			e.key = &key
		} else {
			e.facts = b.factsOf(secret)
		}
		return nil
	})
	switch {
	case err == nil:
	case isKey:
		e.key = &lifecycle.KeyFacts{Name: secret.Name, Error: err}
	default:
		e.facts = &lifecycle.SecretFacts{Version: secret.ResourceVersion, HasKey: true, HasCertificate: true, KeyError: err, CertificateError: err}
	}
}

// known returns what is known of a Secret, nil if nothing is or of another by its name.
func (b *SecretBook) known(secret *corev1.Secret) *bookEntry {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[client.ObjectKeyFromObject(secret)]
	if e == nil || e.uid != secret.UID {
		return nil
	}
	return e
}

// has reports whether a Secret of that name has been seen, and not been seen to go.
func (b *SecretBook) has(key types.NamespacedName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[key] != nil
}

// stripped reports whether Transform has returned this Secret, which caches may hand
// it a second time. A Secret without anything looks the same, and has no facts to lose.
func stripped(secret *corev1.Secret) bool {
	return secret.Data == nil && secret.ManagedFields == nil && secret.Annotations == nil
}

// lookup returns what is known of a Secret of the cache, which is the newest there
// is, or of one in full that was just written.
func (b *SecretBook) lookup(secret *corev1.Secret) *bookEntry {
	if secret.Data != nil {
		return b.note(secret)
	}
	return b.known(secret)
}

// target returns the facts of a target Secret, nil if it is not known any more.
func (b *SecretBook) target(secret *corev1.Secret) *lifecycle.SecretFacts {
	e := b.lookup(secret)
	if e == nil {
		return nil
	}
	if e.facts == nil { // a next private key that somebody has as spec.secretName
		return &lifecycle.SecretFacts{}
	}
	return e.facts
}

// key returns the facts of a next private key, nil if it is not known any more.
func (b *SecretBook) key(secret *corev1.Secret) *lifecycle.KeyFacts {
	e := b.lookup(secret)
	if e == nil {
		return nil
	}
	return e.key
}

// forget drops what is known of a Secret that has left the watch.
func (b *SecretBook) forget(secret *corev1.Secret) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := client.ObjectKeyFromObject(secret)
	if e := b.entries[key]; e != nil && e.uid == secret.UID {
		delete(b.entries, key)
	}
}
