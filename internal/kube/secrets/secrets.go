package secrets

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/machine/facts"
)

// doubt is how long after a Secret has left a watch the API server is asked whether the Secret is gone.
const doubt = time.Minute

// Secrets reads Secrets. It is a manager.Runnable, which watches those without our label.
type Secrets struct {
	now      func() time.Time
	client   Client
	live     client.Reader
	labelled cache.Informer
	others   []*unlabelled // of one namespace each, or one of all

	// factsOf and keyFactsOf are those of internal/machine/facts.
	factsOf    func(*corev1.Secret) *facts.Secret
	keyFactsOf func(*corev1.Secret) facts.Key

	bodies *bodies

	mu        sync.RWMutex
	facts     map[types.NamespacedName]*decoded  // of the Secrets with our label
	versions  map[types.NamespacedName]string    // of the Secrets without
	left      map[types.NamespacedName]time.Time // when Secrets have left a watch, or were there and in no watch
	listeners []func(types.NamespacedName)       // told of changes of Secrets without our label
}

// body is a Secret as it was read or written.
type body struct {
	secret *corev1.Secret
	facts  func() *facts.Secret
}

// New returns a reader. Its Transform is for the cache that Connect is given.
func New(now func() time.Time) *Secrets {
	return &Secrets{
		now: now, factsOf: facts.OfSecret, keyFactsOf: facts.OfKey, bodies: &bodies{now: now},
		facts: map[types.NamespacedName]*decoded{}, versions: map[types.NamespacedName]string{}, left: map[types.NamespacedName]time.Time{},
	}
}

// Client reads the watch cache, own writes included. The answer to an own write has the whole object.
type Client interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object) error
	ListOwned(ctx context.Context, list client.ObjectList, namespace string, owner types.UID) error
	// OnWrite makes the Client call a function with each answer to a write.
	OnWrite(func(client.Object))
}

// Source has the clients through which Secrets are read.
type Source struct {
	// Client reads the Secrets with our label, as Transform leaves them.
	Client Client
	// Live reads from the API server.
	Live client.Reader
	// Cache watches the Secrets with our label. If it is nil, the Secrets with our label are handled like all others:
	// only the version of each is kept.
	Cache cache.Informers
	// Metadata watches the Secrets without our label in these Namespaces, in all if there are none.
	Metadata   metadata.Interface
	Namespaces []string
}

// Connect is called once, before anything is read.
func (s *Secrets) Connect(ctx context.Context, from Source) error {
	s.client, s.live, s.others = from.Client, from.Live, watchesOf(s, from)
	from.Client.OnWrite(func(obj client.Object) {
		if secret, ok := obj.(*corev1.Secret); ok && secret.Data != nil {
			s.keep(secret)
		}
	})
	if from.Cache == nil {
		return nil
	}
	var err error
	if s.labelled, err = from.Cache.GetInformer(ctx, &corev1.Secret{}); err != nil {
		return err
	}
	_, err = s.labelled.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: s.leaveLabelled})
	return err
}

// OnChange makes the watches call tell with the name of each Secret that is created, changes or is deleted, with our
// label or without. tell is not called for the Secrets that exist at the start.
func (s *Secrets) OnChange(tell func(types.NamespacedName)) error {
	s.mu.Lock()
	s.listeners = append(s.listeners, tell)
	s.mu.Unlock()
	if s.labelled == nil {
		return nil
	}
	named := func(obj any) {
		if secret, ok := informers.LastOf[*corev1.Secret](obj); ok {
			tell(client.ObjectKeyFromObject(secret))
		}
	}
	_, err := s.labelled.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				named(obj)
			}
		},
		UpdateFunc: func(_, obj any) { named(obj) },
		DeleteFunc: named,
	})
	return err
}

// WaitForSync waits until all Secrets that the API server has are known.
func (s *Secrets) WaitForSync(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), s.synced) {
		return fmt.Errorf("the watches of Secrets have not synced: %w", ctx.Err())
	}
	return nil
}

func (s *Secrets) synced() bool {
	return (s.labelled == nil || s.labelled.HasSynced()) && !slices.ContainsFunc(s.others, func(u *unlabelled) bool { return !u.synced.Load() })
}

// Secret returns a Secret in full, which MUST NOT be changed. It implements credential.Reader.
func (s *Secrets) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	b, _, err := s.find(ctx, types.NamespacedName{Namespace: namespace, Name: name}, true)
	if err != nil {
		return nil, err
	}
	return b.secret, nil
}

// Metadata returns a Secret with its metadata and its type; the rest may be missing. The caller MUST NOT change it.
func (s *Secrets) Metadata(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	b, known, err := s.find(ctx, types.NamespacedName{Namespace: namespace, Name: name}, false)
	if err != nil || known != nil {
		return known, err
	}
	return b.secret, nil
}

// Version returns the resource version of a Secret as the watches know it, own writes included; empty if there is no
// such Secret. It reads no Secret that the watches know: an issuer may name a thousand large Secrets.
func (s *Secrets) Version(ctx context.Context, namespace, name string) (string, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if s.labelled != nil {
		known := &corev1.Secret{}
		if err := s.client.Get(ctx, key, known); !apierrors.IsNotFound(err) {
			return known.ResourceVersion, err
		}
	}
	version, doubtful := s.unlabelled(key)
	switch b := s.kept(key, version); {
	case version == "" && !doubtful:
		return "", nil
	case version != "" && b != nil:
		return b.secret.ResourceVersion, nil
	case version != "":
		return version, nil
	}
	b, err := s.fetch(ctx, key)
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return b.secret.ResourceVersion, nil
}

// Facts returns the facts of a target Secret, decoded once for each version of it; nil if there is no such Secret.
func (s *Secrets) Facts(ctx context.Context, namespace, name string) (*facts.Secret, error) {
	b, known, err := s.find(ctx, types.NamespacedName{Namespace: namespace, Name: name}, false)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // nil facts are those of no Secret
	case err != nil:
		return nil, err
	case known == nil:
		return b.facts(), nil
	}
	if facts := s.target(known); facts != nil {
		return facts, nil
	}
	// It has left the watch since.
	b, err = s.fetch(ctx, client.ObjectKeyFromObject(known))
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return b.facts(), nil
}

// Keys returns the facts of the next private keys that a Certificate controls.
func (s *Secrets) Keys(ctx context.Context, namespace string, owner types.UID) ([]facts.Key, error) {
	list := &corev1.SecretList{}
	if err := s.client.ListOwned(ctx, list, namespace, owner); err != nil {
		return nil, err
	}
	var out []facts.Key
	for i := range list.Items {
		if facts := s.key(&list.Items[i]); facts != nil {
			out = append(out, *facts)
		}
	}
	return out, nil
}

// find returns a Secret: what the watch knows of it, unless it is asked for whole, or else its body.
func (s *Secrets) find(ctx context.Context, key types.NamespacedName, whole bool) (*body, *corev1.Secret, error) {
	known := &corev1.Secret{}
	err := error(apierrors.NewNotFound(corev1.Resource("secrets"), key.Name))
	if s.labelled != nil {
		err = s.client.Get(ctx, key, known)
	}
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
		version, doubtful := s.unlabelled(key)
		if version == "" && !doubtful {
			return nil, nil, err
		}
		if b := s.kept(key, version); version != "" && b != nil {
			return b, nil, nil
		}
	}
	b, err := s.fetch(ctx, key)
	return b, nil, err
}

// unlabelled returns the version of a Secret without our label, or whether a Secret that no watch has may be there
// still.
func (s *Secrets) unlabelled(key types.NamespacedName) (version string, doubtful bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	at, left := s.left[key]
	return s.versions[key], left && s.now().Sub(at) <= doubt || s.facts[key] != nil
}

// fetch asks the API server.
func (s *Secrets) fetch(ctx context.Context, key types.NamespacedName) (*body, error) {
	secret := &corev1.Secret{}
	err := s.live.Get(ctx, key, secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, doubted := s.left[key]
	switch {
	case apierrors.IsNotFound(err):
		delete(s.left, key)
	case err == nil && doubted:
		s.noteDoubt(key) // it is there, and a watch may be behind for longer
	}
	if err != nil {
		return nil, err
	}
	return s.keep(secret), nil
}

// DoubtWatch makes reads of a Secret ask the API server until a watch has the Secret: the answer to a write has shown
// that the watches are behind.
func (s *Secrets) DoubtWatch(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteDoubt(types.NamespacedName{Namespace: namespace, Name: name})
}

func newBody(secret *corev1.Secret) *body {
	return &body{secret: secret, facts: sync.OnceValue(func() *facts.Secret { return facts.OfSecret(secret) })}
}

func (s *Secrets) keep(secret *corev1.Secret) *body {
	b := newBody(secret)
	s.bodies.add(client.ObjectKeyFromObject(secret), b)
	return b
}

// kept returns the body that is kept by a name, if it is at least of that version.
func (s *Secrets) kept(key types.NamespacedName, version string) *body {
	b := s.bodies.get(key)
	if b == nil {
		return nil
	}
	if order, err := resourceversion.CompareResourceVersion(b.secret.ResourceVersion, version); err != nil || order < 0 {
		return nil
	}
	return b
}

// leave takes note of a Secret that leaves a watch. The caller holds the lock.
func (s *Secrets) leave(key types.NamespacedName) {
	s.bodies.remove(key)
	s.noteDoubt(key)
}

// noteDoubt makes reads of a Secret that no watch has ask the API server for a while. The caller holds the lock.
func (s *Secrets) noteDoubt(key types.NamespacedName) {
	now := s.now()
	for k, at := range s.left {
		if now.Sub(at) <= doubt {
			break // the order of a map is random: a few names are looked at each time, which is enough
		}
		delete(s.left, k)
	}
	s.left[key] = now
}

// leaveLabelled is leave for a Secret with our label.
func (s *Secrets) leaveLabelled(obj any) {
	secret, ok := informers.LastOf[*corev1.Secret](obj)
	if !ok {
		return
	}
	key := client.ObjectKeyFromObject(secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(key)
	if known := s.facts[key]; known != nil && known.uid == secret.UID {
		delete(s.facts, key)
	}
}
