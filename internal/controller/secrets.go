package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	lru "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/lifecycle"
	"chancery.dev/internal/overlay"
)

const (
	// maxBodies bounds how many Secrets are kept whole: next private keys of issuances
	// under way, and the credentials of issuers.
	maxBodies = 8192
	// bodyLife is how long one is kept at most that nobody asks for.
	bodyLife = time.Hour
	// doubt is how long after a Secret has left a watch the API server is asked whether
	// it is gone: one whose label changes leaves one watch before it enters the other.
	doubt = time.Minute
)

// Secrets reads Secrets. Those with our label are watched, and what decisions need
// of them is kept: facts, never the body. Of all others only the versions are known.
// A body that is asked for is read once for each version, and not at all if it was
// just written.
type Secrets struct {
	client *overlay.Client
	live   client.Reader
	book   *SecretBook
	others *Unlabelled
	now    func() time.Time

	bodies *lru.LRUExpireCache // by secretID, *body

	mu   sync.Mutex
	gone map[secretID]time.Time
}

// body is a Secret as it was read or written.
type body struct {
	secret *corev1.Secret
	facts  func() *lifecycle.SecretFacts
}

// SecretsConfig is what Secrets are read through.
type SecretsConfig struct {
	// Client caches the metadata of the Secrets with our label, stripped by Book.
	Client *overlay.Client
	// Live reads from the API server.
	Live client.Reader
	// Book keeps the facts of the Secrets with our label.
	Book *SecretBook
	// Others watches the Secrets without it.
	Others *Unlabelled
	// Now is the clock.
	Now func() time.Time
}

// NewSecrets returns a reader.
func NewSecrets(c SecretsConfig) *Secrets {
	s := &Secrets{
		client: c.Client, live: c.Live, book: c.Book, others: c.Others, now: c.Now,
		bodies: lru.NewLRUExpireCache(maxBodies), gone: map[secretID]time.Time{},
	}
	c.Client.OnWrite(func(obj client.Object) {
		if secret, ok := obj.(*corev1.Secret); ok && secret.Data != nil {
			s.keep(secret)
		}
	})
	c.Others.onLeave(s.left)
	return s
}

// Follow has the watch of Secrets tell of those that go. It is for the wiring.
func (s *Secrets) Follow(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &corev1.Secret{})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(labelledHandler{s})
	return err
}

// Secret returns a Secret in full, which MUST NOT be changed. It implements
// signer.SecretReader and solver.SecretReader.
func (s *Secrets) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	b, _, err := s.find(ctx, types.NamespacedName{Namespace: namespace, Name: name}, true)
	if err != nil {
		return nil, err
	}
	return b.secret, nil
}

// Metadata returns a Secret of which no more than the metadata and the type need be
// there, and which MUST NOT be changed.
func (s *Secrets) Metadata(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	b, known, err := s.find(ctx, types.NamespacedName{Namespace: namespace, Name: name}, false)
	if err != nil || known != nil {
		return known, err
	}
	return b.secret, nil
}

// Facts returns the facts of a target Secret, decoded once for each version of
// it; nil if there is no such Secret.
func (s *Secrets) Facts(ctx context.Context, namespace, name string) (*lifecycle.SecretFacts, error) {
	b, known, err := s.find(ctx, types.NamespacedName{Namespace: namespace, Name: name}, false)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // nil facts are those of no Secret
	case err != nil:
		return nil, err
	case known == nil:
		return b.facts(), nil
	}
	if facts := s.book.target(known); facts != nil {
		return facts, nil
	}
	// It has left the watch since.
	b, err = s.read(ctx, client.ObjectKeyFromObject(known))
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return b.facts(), nil
}

// Keys returns the facts of the next private keys that a Certificate controls.
func (s *Secrets) Keys(ctx context.Context, namespace string, owner types.UID) ([]lifecycle.KeyFacts, error) {
	list := &corev1.SecretList{}
	if err := s.client.ListOwned(ctx, list, namespace, owner); err != nil {
		return nil, err
	}
	var out []lifecycle.KeyFacts
	for i := range list.Items {
		secret := &list.Items[i]
		if secret.Labels[certmanagerv1.NextPrivateKeyLabel] != certmanagerv1.LabelTrue {
			continue
		}
		if facts := s.book.key(secret); facts != nil {
			out = append(out, *facts)
		}
	}
	return out, nil
}

// find returns a Secret: what the watch knows of it, unless it is asked for whole, or
// else its body.
func (s *Secrets) find(ctx context.Context, key types.NamespacedName, whole bool) (*body, *corev1.Secret, error) {
	known := &corev1.Secret{}
	err := s.client.Get(ctx, key, known)
	switch {
	case err == nil && !whole:
		return nil, known, nil
	case err == nil && known.Data != nil:
		return newBody(known), nil, nil
	case err == nil:
		if b := s.kept(key, known.ResourceVersion); b != nil && b.secret.UID == known.UID {
			return b, nil, nil
		}
	case !apierrors.IsNotFound(err):
		return nil, nil, err
	default:
		version, there := s.others.version(key)
		if !there && !s.doubtful(key) {
			return nil, nil, err
		}
		if b := s.kept(key, version); there && b != nil {
			return b, nil, nil
		}
	}
	b, err := s.read(ctx, key)
	return b, nil, err
}

// read asks the API server.
func (s *Secrets) read(ctx context.Context, key types.NamespacedName) (*body, error) {
	secret := &corev1.Secret{}
	if err := s.live.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			s.mu.Lock()
			delete(s.gone, s.others.id(key))
			s.mu.Unlock()
		}
		return nil, err
	}
	return s.keep(secret), nil
}

func newBody(secret *corev1.Secret) *body {
	return &body{secret: secret, facts: sync.OnceValue(func() *lifecycle.SecretFacts { return lifecycle.FactsOf(secret) })}
}

func (s *Secrets) keep(secret *corev1.Secret) *body {
	b := newBody(secret)
	s.bodies.Add(s.others.id(client.ObjectKeyFromObject(secret)), b, bodyLife)
	return b
}

// kept returns the body that is kept by a name, if it is at least of that version.
func (s *Secrets) kept(key types.NamespacedName, version string) *body {
	found, ok := s.bodies.Get(s.others.id(key))
	if !ok {
		return nil
	}
	b, ok := found.(*body)
	if !ok || client.ObjectKeyFromObject(b.secret) != key {
		return nil
	}
	if order, err := resourceversion.CompareResourceVersion(b.secret.ResourceVersion, version); err != nil || order < 0 {
		return nil
	}
	return b
}

// left takes note of a Secret that has left a watch.
func (s *Secrets) left(id secretID) {
	s.bodies.Remove(id)
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, at := range s.gone {
		if now.Sub(at) <= doubt {
			break // map order is chance: a few are looked at each time, and that is enough
		}
		delete(s.gone, k)
	}
	s.gone[id] = now
}

// doubtful reports whether a Secret that no watch has may be there still.
func (s *Secrets) doubtful(key types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.gone[s.others.id(key)]
	return ok && s.now().Sub(at) <= doubt || s.book.has(key)
}

// labelledHandler follows the Secrets with our label, on behalf of Secrets.
type labelledHandler struct{ *Secrets }

func (labelledHandler) OnAdd(any, bool) {}

func (labelledHandler) OnUpdate(any, any) {}

func (h labelledHandler) OnDelete(obj any) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if secret, ok := obj.(*corev1.Secret); ok {
		// In this order, so that there is no moment in which nobody doubts that it is gone.
		h.left(h.others.id(client.ObjectKeyFromObject(secret)))
		h.book.forget(secret)
	}
}
