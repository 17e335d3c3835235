package controller

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// Unlabelled watches the Secrets without our label: that of an issuer, or one in the
// place where a certificate is to go. Tens of thousands of others are among them, so
// no more is kept of each than its name and version. It is a manager.Runnable.
type Unlabelled struct {
	client     metadata.Interface
	namespaces []string

	mu        sync.RWMutex
	versions  map[string]map[string]uint64 // namespace, name
	listeners []func(namespace, name string, gone bool)
	synced    []*atomic.Bool
}

// NewUnlabelled returns a watch of some namespaces; of all, if there are none.
func NewUnlabelled(client metadata.Interface, namespaces []string) *Unlabelled {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	u := &Unlabelled{client: client, namespaces: namespaces, versions: map[string]map[string]uint64{}}
	for range namespaces {
		u.synced = append(u.synced, &atomic.Bool{})
	}
	return u
}

// Start implements manager.Runnable.
func (u *Unlabelled) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for i, namespace := range u.namespaces {
		store := &unlabelledStore{Unlabelled: u, namespace: namespace, synced: u.synced[i]}
		reflector := toolscache.NewReflectorWithOptions(newPages(u.watch(namespace), sight), &metav1.PartialObjectMetadata{}, store,
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
	for _, s := range u.synced {
		if !s.Load() {
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

// listen has changes told, without the Secrets that were there at the start.
func (u *Unlabelled) listen(listener func(namespace, name string, gone bool)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.listeners = append(u.listeners, listener)
}

// version returns the version of a Secret, false if there is none.
func (u *Unlabelled) version(namespace, name string) (string, bool) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	v, ok := u.versions[namespace][name]
	return strconv.FormatUint(v, 10), ok
}

func (u *Unlabelled) tell(namespace, name string, gone bool) {
	u.mu.RLock()
	listeners := u.listeners
	u.mu.RUnlock()
	for _, listener := range listeners {
		listener(namespace, name, gone)
	}
}

// unlabelledStore is what a reflector of one namespace, or of all, writes to.
type unlabelledStore struct {
	*Unlabelled

	namespace string
	synced    *atomic.Bool
}

// sighting is all that is kept of a Secret while they are listed.
type sighting struct {
	metav1.Object // not there: only these three are asked for

	namespace, name, version string
}

func (s *sighting) GetNamespace() string       { return s.namespace }
func (s *sighting) GetName() string            { return s.name }
func (s *sighting) GetResourceVersion() string { return s.version }

// GetObjectKind implements runtime.Object, which items of lists are.
func (s *sighting) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object: it never changes.
func (s *sighting) DeepCopyObject() runtime.Object { return s }

// sight is a toolscache.TransformFunc.
func sight(obj any) (any, error) {
	seen, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	return &sighting{namespace: seen.GetNamespace(), name: seen.GetName(), version: seen.GetResourceVersion()}, nil
}

func (s *unlabelledStore) Add(obj any) error { return s.Update(obj) }

func (s *unlabelledStore) Update(obj any) error {
	seen, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	put(s.versions, seen)
	s.mu.Unlock()
	s.tell(seen.GetNamespace(), seen.GetName(), false)
	return nil
}

func (s *unlabelledStore) Delete(obj any) error {
	seen, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	namespace, name := seen.GetNamespace(), seen.GetName()
	s.mu.Lock()
	delete(s.versions[namespace], name)
	if len(s.versions[namespace]) == 0 {
		delete(s.versions, namespace)
	}
	s.mu.Unlock()
	s.tell(namespace, name, true)
	return nil
}

// Replace takes a new list, and tells what it changes.
func (s *unlabelledStore) Replace(list []any, _ string) error {
	next := map[string]map[string]uint64{}
	for _, obj := range list {
		seen, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		put(next, seen)
	}
	s.mu.Lock()
	before := s.versions
	s.versions = next
	if s.namespace != metav1.NamespaceAll {
		s.versions = maps.Clone(before)
		delete(s.versions, s.namespace)
		maps.Copy(s.versions, next)
		before = map[string]map[string]uint64{s.namespace: before[s.namespace]}
	}
	s.mu.Unlock()
	if s.synced.Swap(true) {
		s.tellChanges(before, next)
	}
	return nil
}

func (s *unlabelledStore) tellChanges(before, after map[string]map[string]uint64) {
	for namespace, names := range before {
		for name := range names {
			if _, still := after[namespace][name]; !still {
				s.tell(namespace, name, true)
			}
		}
	}
	for namespace, names := range after {
		for name, version := range names {
			if known, ok := before[namespace][name]; !ok || known != version {
				s.tell(namespace, name, false)
			}
		}
	}
}

// Resync has nothing to do.
func (s *unlabelledStore) Resync() error { return nil }

// put notes a version. One that is no number (they all are, since Kubernetes 1.35
// says so) counts as newer than everything: the Secret is read each time.
func put(versions map[string]map[string]uint64, seen metav1.Object) {
	version, err := strconv.ParseUint(seen.GetResourceVersion(), 10, 64)
	if err != nil {
		version = ^uint64(0)
	}
	names := versions[seen.GetNamespace()]
	if names == nil {
		names = map[string]uint64{}
		versions[seen.GetNamespace()] = names
	}
	names[seen.GetName()] = version
}
