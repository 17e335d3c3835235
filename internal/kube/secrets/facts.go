package secrets

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/facts"
)

// decoded is what is known of a version of a Secret with our label.
type decoded struct {
	uid     types.UID
	version string
	target  *facts.Secret // of all but next private keys
	key     *facts.Key    // of next private keys
}

// Transform is the cache.TransformFunc of Secrets with our label. It notes the facts and returns what is left of the
// metadata. It keeps one finalizer at most, because only the presence of one matters, and only the owner that controls
// the Secret: a Secret may have tens of thousands of both.
func (s *Secrets) Transform(obj any) (any, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return obj, nil
	}
	s.note(secret)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion,
			DeletionTimestamp: secret.DeletionTimestamp, Finalizers: slices.Clone(secret.Finalizers[:min(len(secret.Finalizers), 1)]),
			OwnerReferences: controllerOf(secret),
		},
		Type: secret.Type,
	}, nil
}

// controllerOf returns the reference to the controller of an object alone.
func controllerOf(object metav1.Object) []metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return []metav1.OwnerReference{*owner}
	}
	return nil
}

// note decodes a Secret, unless this version has been decoded before, or Transform has returned the Secret: caches may
// hand Transform what it has returned. A Secret without anything looks the same, and has no facts to lose.
func (s *Secrets) note(secret *corev1.Secret) *decoded {
	known := s.known(secret)
	stripped := secret.Data == nil && secret.ManagedFields == nil && secret.Annotations == nil
	if known != nil && (known.version == secret.ResourceVersion || stripped) {
		return known
	}
	f := &decoded{uid: secret.UID, version: secret.ResourceVersion}
	s.read(secret, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts[client.ObjectKeyFromObject(secret)] = f
	return f
}

// read decodes a Secret. Anybody may have written it, and a panic on the goroutine of the watch
// would end the process, again after each restart: a panic is what is wrong with that Secret.
func (s *Secrets) read(secret *corev1.Secret, f *decoded) {
	// The type cannot be changed, but anybody who may write the Secret of a certificate can change its labels.
	isKey := secret.Labels[certmanagerv1.NextPrivateKeyLabel] == certmanagerv1.LabelTrue && secret.Type != corev1.SecretTypeTLS
	err := fault.Contained(func() error {
		if isKey {
			key := s.keyFactsOf(secret)
			f.key = &key
		} else {
			f.target = s.factsOf(secret)
		}
		return nil
	})
	switch {
	case err == nil:
	case isKey:
		f.key = &facts.Key{Name: secret.Name, Error: err}
	default:
		f.target = &facts.Secret{Version: secret.ResourceVersion, HasKey: true, HasCertificate: true, KeyError: err, CertificateError: err}
	}
}

// known returns what is known of a Secret, nil if nothing is or of another by its name.
func (s *Secrets) known(secret *corev1.Secret) *decoded {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f := s.facts[client.ObjectKeyFromObject(secret)]
	if f == nil || f.uid != secret.UID {
		return nil
	}
	return f
}

// lookup returns what is known of a Secret of the cache, which is the newest there
// is, or of one in full that was just written.
func (s *Secrets) lookup(secret *corev1.Secret) *decoded {
	if secret.Data != nil {
		return s.note(secret)
	}
	return s.known(secret)
}

// target returns the facts of a target Secret, nil if it is not known any more.
func (s *Secrets) target(secret *corev1.Secret) *facts.Secret {
	f := s.lookup(secret)
	switch {
	case f == nil:
		return nil
	case f.target == nil: // the Secret is a next private key, and a Certificate names it as its spec.secretName
		return &facts.Secret{}
	default:
		return f.target
	}
}

// key returns the facts of a next private key, nil if it is not known any more.
func (s *Secrets) key(secret *corev1.Secret) *facts.Key {
	if f := s.lookup(secret); f != nil {
		return f.key
	}
	return nil
}
