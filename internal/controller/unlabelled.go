package controller

import (
	"context"
	"fmt"
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// Unlabelled watches the Secrets without our label: that of an issuer, or one in the
// place where a certificate is to go. Tens of thousands of others are among them, so
// no more is kept of each than a hash of its name, and its version: the names of those
// only that somebody has asked for. It is a manager.Runnable.
type Unlabelled struct {
	client metadata.Interface
	seed   maphash.Seed
	stores []*unlabelledStore // of one namespace each, or one of all

	mu      sync.RWMutex
	asked   map[types.NamespacedName]struct{} // that were there when they were asked for
	changed []func(types.NamespacedName)
	left    []func(secretID)
}

// secretID stands for the name of a Secret. Should two ever share one, the API server
// is asked about one of them more often.
type secretID uint64

// NewUnlabelled returns a watch of some namespaces; of all, if there are none.
func NewUnlabelled(client metadata.Interface, namespaces []string) *Unlabelled {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	u := &Unlabelled{client: client, seed: maphash.MakeSeed(), asked: map[types.NamespacedName]struct{}{}}
	for _, namespace := range namespaces {
		u.stores = append(u.stores, &unlabelledStore{Unlabelled: u, namespace: namespace, versions: map[secretID]uint64{}})
	}
	return u
}

// Start implements manager.Runnable.
func (u *Unlabelled) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for _, store := range u.stores {
		reflector := toolscache.NewReflectorWithOptions(newPages(u.watch(store.namespace), store.list), &metav1.PartialObjectMetadata{}, store,
			toolscache.ReflectorOptions{Name: "secrets without our label"})
		running.Go(func() { reflector.RunWithContext(ctx) })
	}
	running.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: the watch is what the
// leader's reconcilers wait for.
func (u *Unlabelled) NeedLeaderElection() bool { return false }

// Synced reports whether all that the API server has is known.
func (u *Unlabelled) Synced() bool {
	for _, s := range u.stores {
		if !s.synced.Load() {
			return false
		}
	}
	return true
}

// syncPoll is how often WaitForSync looks.
const syncPoll = 20 * time.Millisecond

// WaitForSync waits for Synced.
func (u *Unlabelled) WaitForSync(ctx context.Context) error {
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	for !u.Synced() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the watch of Secrets has not synced: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

func (u *Unlabelled) watch(namespace string) *toolscache.ListWatch {
	secrets := u.client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace)
	const selector = certmanagerv1.ManagedSecretLabel + "!=" + certmanagerv1.LabelTrue
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return secrets.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return secrets.Watch(ctx, o)
		},
	}
}

// onChange has Secrets told that come, change and go, but for those that were there at the
// start, and those that go unasked for.
func (u *Unlabelled) onChange(f func(types.NamespacedName)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed = append(u.changed, f)
}

// onLeave has every Secret told that goes, before onChange.
func (u *Unlabelled) onLeave(f func(secretID)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left = append(u.left, f)
}

func (u *Unlabelled) id(key types.NamespacedName) secretID {
	return secretID(maphash.Comparable(u.seed, key))
}

// version returns the version of a Secret, false if there is none.
func (u *Unlabelled) version(key types.NamespacedName) (string, bool) {
	id := u.id(key)
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.stores {
		if s.namespace != metav1.NamespaceAll && s.namespace != key.Namespace {
			continue
		}
		if version, there := s.versions[id]; there {
			u.asked[key] = struct{}{}
			return strconv.FormatUint(version, 10), true
		}
	}
	return "", false
}

func (u *Unlabelled) tellChanged(key types.NamespacedName) {
	u.mu.RLock()
	listeners := u.changed
	u.mu.RUnlock()
	for _, f := range listeners {
		f(key)
	}
}

func (u *Unlabelled) tellLeft(id secretID) {
	u.mu.RLock()
	listeners := u.left
	u.mu.RUnlock()
	for _, f := range listeners {
		f(id)
	}
}

// unlabelledStore is what a reflector of one namespace, or of all, writes to.
type unlabelledStore struct {
	*Unlabelled

	namespace string
	versions  map[secretID]uint64 // under mu
	synced    atomic.Bool
}

// sighting is all that is kept of a Secret while they are listed.
type sighting struct {
	id      secretID
	version uint64
	key     *types.NamespacedName // nil in the first list, of which nothing is told
}

// GetObjectKind implements runtime.Object, which items of lists are.
func (s *sighting) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object: it never changes.
func (s *sighting) DeepCopyObject() runtime.Object { return s }

// sight takes from a Secret what is kept. A version that is no number (they all are, since
// Kubernetes 1.35 says so) counts as newer than everything: the Secret is read each time.
func (u *Unlabelled) sight(obj any) (*sighting, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		version = ^uint64(0)
	}
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	return &sighting{id: u.id(key), version: version, key: &key}, nil
}

// list is a toolscache.TransformFunc.
func (s *unlabelledStore) list(obj any) (any, error) {
	seen, err := s.sight(obj)
	if err == nil && !s.synced.Load() {
		seen.key = nil
	}
	return seen, err
}

func (s *unlabelledStore) Add(obj any) error { return s.Update(obj) }

func (s *unlabelledStore) Update(obj any) error {
	seen, err := s.sight(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.versions[seen.id] = seen.version
	s.mu.Unlock()
	s.tellChanged(*seen.key)
	return nil
}

func (s *unlabelledStore) Delete(obj any) error {
	seen, err := s.sight(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.versions, seen.id)
	delete(s.asked, *seen.key)
	s.mu.Unlock()
	s.tellLeft(seen.id)
	s.tellChanged(*seen.key)
	return nil
}

// Replace takes a new list, and tells what it changes.
func (s *unlabelledStore) Replace(list []any, _ string) error {
	next := make(map[secretID]uint64, len(list))
	for _, obj := range list {
		seen, ok := obj.(*sighting)
		if !ok {
			return fmt.Errorf("a list of Secrets has a %T", obj)
		}
		next[seen.id] = seen.version
	}
	before, gone := s.replace(next)
	if !s.synced.Swap(true) {
		return nil
	}
	for id := range before {
		if _, is := next[id]; !is {
			s.tellLeft(id)
		}
	}
	for _, key := range gone {
		s.tellChanged(key)
	}
	for _, obj := range list {
		seen, _ := obj.(*sighting)
		if known, was := before[seen.id]; !was || known != seen.version {
			s.tellChanged(*seen.key)
		}
	}
	return nil
}

// replace puts other versions in place, and returns those before and the names of those that are
// gone and were asked for.
func (s *unlabelledStore) replace(next map[secretID]uint64) (before map[secretID]uint64, gone []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.versions = s.versions, next
	for key := range s.asked {
		id := s.id(key)
		_, was := before[id]
		if _, is := next[id]; was && !is {
			delete(s.asked, key)
			gone = append(gone, key)
		}
	}
	return before, gone
}

// Resync has nothing to do.
func (s *unlabelledStore) Resync() error { return nil }
