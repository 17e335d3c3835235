// Package overlay reads the API through the watch cache, without forgetting what
// was just written.
//
// A watch cache lags behind. A reconciler that acts on a stale read acts twice:
// it makes a second key, a second request, a conflicting write. Client keeps the
// answer to each of its writes, and gives that instead of the cached object until
// the cache has caught up. Nothing that was written is ever read back from the
// API server, so a pass costs exactly its writes.
//
// It is not a cache: an entry lives until the watch has seen it, or for
// entryLife at most.
package overlay

import (
	"context"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// OwnerIndex is the name of the cache index that ListOwned needs on every kind
// it lists: the UID of the controlling owner, see OwnerOf.
const OwnerIndex = "chancery.dev/owner"

// entryLife bounds an entry whose object the watch never reports: made and
// deleted by somebody else while the watch was interrupted.
const entryLife = 2 * time.Minute

// OwnerOf returns the UID of obj's controlling owner for OwnerIndex, or nothing.
func OwnerOf(obj client.Object) []string {
	if ref := metav1.GetControllerOf(obj); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

// Client reads from the cache and writes to the API server. Objects that it
// returns are shared: they MUST NOT be changed, but copied first.
type Client struct {
	api client.Client
	now func() time.Time

	mu      sync.Mutex
	entries map[ref]entry
	owned   map[types.UID]map[ref]struct{}
}

type ref struct {
	kind schema.GroupKind
	name types.NamespacedName
}

type entry struct {
	obj     client.Object
	deleted bool
	owner   types.UID
	expires time.Time
}

// New returns a client over api, whose reads come from a cache.
func New(api client.Client, now func() time.Time) *Client {
	return &Client{api: api, now: now, entries: map[ref]entry{}, owned: map[types.UID]map[ref]struct{}{}}
}

// Get reads the object named key into obj.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	err := c.api.Get(ctx, key, obj)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	r := c.refTo(obj, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.current(r)
	if !ok {
		return err
	}
	if err == nil && c.superseded(r, e, obj) {
		return nil
	}
	if e.deleted {
		if err != nil {
			c.drop(r)
			return err
		}
		return apierrors.NewNotFound(schema.GroupResource{Group: r.kind.Group, Resource: r.kind.Kind}, key.Name)
	}
	copyInto(obj, e.obj)
	return nil
}

// ListOwned reads the objects in namespace that owner controls into list. An
// empty namespace lists cluster-wide.
func (c *Client) ListOwned(ctx context.Context, list client.ObjectList, namespace string, owner types.UID) error {
	err := c.api.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{OwnerIndex: string(owner)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	gvk, err := apiutil.GVKForObject(list, c.api.Scheme())
	if err != nil {
		return err
	}
	kind := schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind[:len(gvk.Kind)-len("List")]}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.owned[owner]) == 0 {
		return nil
	}
	return c.overlayList(list, kind, owner)
}

func (c *Client) overlayList(list client.ObjectList, kind schema.GroupKind, owner types.UID) error {
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	seen := map[ref]bool{}
	var out []runtime.Object
	for _, item := range items {
		obj := item.(client.Object) //nolint:forcetypeassert // every API object is one
		r := ref{kind, client.ObjectKeyFromObject(obj)}
		seen[r] = true
		e, ok := c.current(r)
		switch {
		case !ok || c.superseded(r, e, obj):
			out = append(out, obj)
		case !e.deleted:
			out = append(out, e.obj)
		}
	}
	for r := range c.owned[owner] {
		if e, ok := c.current(r); ok && r.kind == kind && !seen[r] {
			if e.deleted {
				c.drop(r)
				continue
			}
			out = append(out, e.obj)
		}
	}
	return meta.SetList(list, out)
}

// Live reads the object named key from the API server, past the cache.
func (c *Client) Live(ctx context.Context, reader client.Reader, key client.ObjectKey, obj client.Object) error {
	if err := reader.Get(ctx, key, obj); err != nil {
		return err
	}
	c.remember(obj)
	return nil
}

// Create makes obj and fills it with the answer.
func (c *Client) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := c.api.Create(ctx, obj, opts...); err != nil {
		return err
	}
	c.remember(obj)
	return nil
}

// Patch changes obj and fills it with the answer.
func (c *Client) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := c.api.Patch(ctx, obj, patch, opts...); err != nil {
		return err
	}
	c.remember(obj)
	return nil
}

// PatchStatus changes the status of obj and fills it with the answer.
func (c *Client) PatchStatus(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := c.api.Status().Patch(ctx, obj, patch, opts...); err != nil {
		return err
	}
	c.remember(obj)
	return nil
}

// UpdateSubResource replaces the named subresource of obj and fills it with the answer.
func (c *Client) UpdateSubResource(ctx context.Context, subresource string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := c.api.SubResource(subresource).Update(ctx, obj, opts...); err != nil {
		return err
	}
	c.remember(obj)
	return nil
}

// Delete deletes exactly this obj. That it is gone already is no error. An object
// with finalizers is only marked, and stays until the watch reports it gone.
func (c *Client) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	uid := obj.GetUID()
	opts = append([]client.DeleteOption{client.Preconditions{UID: &uid}}, opts...)
	err := c.api.Delete(ctx, obj, opts...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // gone, or another object by the same name: either way this one is not there
	}
	if err == nil && len(obj.GetFinalizers()) == 0 {
		c.put(obj, true)
	}
	return err
}

// Observe takes note of an object that the watch reports; gone says that it was
// deleted. Entries that the watch has caught up with are dropped.
func (c *Client) Observe(obj client.Object, gone bool) {
	r := c.refTo(obj, client.ObjectKeyFromObject(obj))
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[r]
	if !ok {
		return
	}
	if gone && e.obj.GetUID() == obj.GetUID() {
		c.drop(r)
		return
	}
	if !gone {
		c.superseded(r, e, obj)
	}
}

// Len returns how many writes the watch has not reported yet.
func (c *Client) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

func (c *Client) remember(obj client.Object) { c.put(obj, false) }

func (c *Client) put(obj client.Object, deleted bool) {
	r := c.refTo(obj, client.ObjectKeyFromObject(obj))
	e := entry{obj: obj.DeepCopyObject().(client.Object), deleted: deleted, expires: c.now().Add(entryLife)} //nolint:forcetypeassert // a copy is of the same type
	if owner := metav1.GetControllerOf(obj); owner != nil {
		e.owner = owner.UID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(r)
	c.entries[r] = e
	if e.owner != "" {
		if c.owned[e.owner] == nil {
			c.owned[e.owner] = map[ref]struct{}{}
		}
		c.owned[e.owner][r] = struct{}{}
	}
}

// current returns the entry for r unless it has outlived entryLife.
func (c *Client) current(r ref) (entry, bool) {
	e, ok := c.entries[r]
	if ok && c.now().After(e.expires) {
		c.drop(r)
		return entry{}, false
	}
	return e, ok
}

// superseded reports whether the cached object is as new as the entry, and drops
// the entry if so.
func (c *Client) superseded(r ref, e entry, cached client.Object) bool {
	same := cached.GetUID() == e.obj.GetUID()
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), e.obj.GetResourceVersion())
	newer := err == nil && order >= 0
	if e.deleted {
		// A deleted object stays deleted: only another one by the name supersedes it.
		newer = !same
	}
	if newer {
		c.drop(r)
	}
	return newer
}

func (c *Client) drop(r ref) {
	e, ok := c.entries[r]
	if !ok {
		return
	}
	delete(c.entries, r)
	if refs := c.owned[e.owner]; refs != nil {
		delete(refs, r)
		if len(refs) == 0 {
			delete(c.owned, e.owner)
		}
	}
}

func (c *Client) refTo(obj client.Object, key client.ObjectKey) ref {
	gvk, err := apiutil.GVKForObject(obj, c.api.Scheme())
	if err != nil {
		// Only a kind that the scheme lacks: its reads and writes have failed before.
		gvk = obj.GetObjectKind().GroupVersionKind()
	}
	return ref{gvk.GroupKind(), key}
}

// copyInto makes dst a shallow copy of src, which is of the same type.
func copyInto(dst, src client.Object) {
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem())
}
