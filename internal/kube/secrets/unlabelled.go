package secrets

import (
	"context"
	"sync"
	"sync/atomic"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/kube/informers"
)

// unlabelled is what the watch of the Secrets without our label, of one namespace or of all, writes to: their versions.
// It is a toolscache.ReflectorStore and not an informer, because an informer tells late of a Secret that has left it:
// in between, nobody would know that the Secret may be there still.
type unlabelled struct {
	*Secrets

	namespace string
	list      *toolscache.ListWatch
	synced    atomic.Bool
}

func watchesOf(s *Secrets, from Source) []*unlabelled {
	namespaces, selector := from.Namespaces, certmanagerv1.ManagedSecretLabel+"!="+certmanagerv1.LabelTrue
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	if from.Cache == nil {
		selector = ""
	}
	var out []*unlabelled
	for _, namespace := range namespaces {
		out = append(out, &unlabelled{Secrets: s, namespace: namespace, list: watchOf(from.Metadata, namespace, selector)})
	}
	return out
}

func watchOf(api metadata.Interface, namespace, selector string) *toolscache.ListWatch {
	secrets := func() metadata.ResourceInterface {
		return api.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace)
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return secrets().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return secrets().Watch(ctx, o)
		},
	}
}

// Start implements manager.Runnable.
func (s *Secrets) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for _, other := range s.others {
		reflector := toolscache.NewReflectorWithOptions(informers.NewPages(other.list, other.Transformer()), &metav1.PartialObjectMetadata{}, other,
			toolscache.ReflectorOptions{Name: "secrets without our label"})
		running.Go(func() { reflector.RunWithContext(ctx) })
	}
	running.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: the watch is what the leader's reconcilers wait for.
func (*Secrets) NeedLeaderElection() bool { return false }

// Transformer implements toolscache.TransformingStore.
func (*unlabelled) Transformer() toolscache.TransformFunc {
	return func(obj any) (any, error) {
		key, version, err := identity(obj)
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: version}}, err
	}
}

func identity(obj any) (key types.NamespacedName, version string, err error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return key, "", err
	}
	key = types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	key.Namespace = unique.Make(key.Namespace).Value() // many Secrets have the same
	return key, object.GetResourceVersion(), nil
}

// Add implements toolscache.ReflectorStore.
func (u *unlabelled) Add(obj any) error { return u.Update(obj) }

// Update implements toolscache.ReflectorStore.
func (u *unlabelled) Update(obj any) error {
	key, version, err := identity(obj)
	if err != nil {
		return err
	}
	u.mu.Lock()
	u.versions[key] = version
	u.mu.Unlock()
	u.tell(key)
	return nil
}

// Delete implements toolscache.ReflectorStore.
func (u *unlabelled) Delete(obj any) error {
	key, _, err := identity(obj)
	if err != nil {
		return err
	}
	u.mu.Lock()
	delete(u.versions, key)
	u.leave(key)
	u.mu.Unlock()
	u.tell(key)
	return nil
}

// Replace implements toolscache.ReflectorStore: it takes a new list, and tells what has changed since the last one.
func (u *unlabelled) Replace(list []any, _ string) error {
	next := make(map[types.NamespacedName]string, len(list))
	for _, obj := range list {
		key, version, err := identity(obj)
		if err != nil {
			return err
		}
		next[key] = version
	}
	changed := u.replace(next)
	if u.synced.Swap(true) {
		for _, key := range changed {
			u.tell(key)
		}
	}
	return nil
}

// replace returns the names of the Secrets that have come, changed or gone.
func (u *unlabelled) replace(next map[types.NamespacedName]string) (changed []types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key := range u.versions {
		if _, is := next[key]; !is && (u.namespace == metav1.NamespaceAll || u.namespace == key.Namespace) {
			delete(u.versions, key)
			u.leave(key)
			changed = append(changed, key)
		}
	}
	for key, version := range next {
		if u.versions[key] != version {
			u.versions[key] = version
			changed = append(changed, key)
		}
	}
	return changed
}

// Resync implements toolscache.ReflectorStore. It has nothing to do.
func (*unlabelled) Resync() error { return nil }

func (u *unlabelled) tell(key types.NamespacedName) {
	u.mu.RLock()
	listeners := u.listeners
	u.mu.RUnlock()
	for _, tell := range listeners {
		tell(key)
	}
}
