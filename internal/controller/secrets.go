package controller

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/lifecycle"
	"chancery.dev/internal/overlay"
)

// maxBodies bounds how many Secrets without our label are kept in memory: the
// credentials of issuers.
const maxBodies = 256

// Secrets reads Secrets. Those with our label are in the watch cache; of all
// others only the metadata is, and one that is asked for is read once for each
// version of it.
type Secrets struct {
	labelled *overlay.Client
	metadata client.Reader
	live     client.Reader

	mu     sync.Mutex
	bodies map[types.NamespacedName]*corev1.Secret
	facts  map[types.NamespacedName]versionedFacts
}

type versionedFacts struct {
	uid     types.UID
	version string
	facts   *lifecycle.SecretFacts
}

// NewSecrets returns a reader: labelled caches the Secrets with our label,
// metadata the metadata of all, and live reads from the API server.
func NewSecrets(labelled *overlay.Client, metadata, live client.Reader) *Secrets {
	return &Secrets{
		labelled: labelled, metadata: metadata, live: live,
		bodies: map[types.NamespacedName]*corev1.Secret{}, facts: map[types.NamespacedName]versionedFacts{},
	}
}

// Secret returns a Secret, which MUST NOT be changed. It implements
// signer.SecretReader and solver.SecretReader.
func (s *Secrets) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	secret := &corev1.Secret{}
	err := s.labelled.Get(ctx, key, secret)
	if err == nil || !apierrors.IsNotFound(err) {
		return secret, err
	}
	known := secretMetadata()
	if err := s.metadata.Get(ctx, key, known); err != nil {
		return nil, err
	}
	if known.Labels[certmanagerv1.ManagedSecretLabel] == certmanagerv1.LabelTrue && known.DeletionTimestamp == nil {
		// The other watch is ahead, or behind a deletion: the API server knows.
		return s.read(ctx, key)
	}
	s.mu.Lock()
	kept := s.bodies[key]
	s.mu.Unlock()
	if kept != nil && kept.UID == known.UID && kept.ResourceVersion == known.ResourceVersion {
		return kept, nil
	}
	return s.read(ctx, key)
}

func (s *Secrets) read(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if err := s.live.Get(ctx, key, secret); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bodies) >= maxBodies {
		for victim := range s.bodies {
			delete(s.bodies, victim)
			break
		}
	}
	s.bodies[key] = secret
	return secret, nil
}

// Facts returns the facts of a target Secret, decoded once for each version of
// it; nil if there is no such Secret.
func (s *Secrets) Facts(ctx context.Context, namespace, name string) (*lifecycle.SecretFacts, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	secret, err := s.Secret(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		s.mu.Lock()
		delete(s.facts, key)
		s.mu.Unlock()
		return nil, nil //nolint:nilnil // nil facts are those of no Secret
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	known, ok := s.facts[key]
	s.mu.Unlock()
	if ok && known.uid == secret.UID && known.version == secret.ResourceVersion {
		return known.facts, nil
	}
	facts := lifecycle.FactsOf(secret)
	s.mu.Lock()
	s.facts[key] = versionedFacts{secret.UID, secret.ResourceVersion, facts}
	s.mu.Unlock()
	return facts, nil
}
