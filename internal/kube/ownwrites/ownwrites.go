// Package ownwrites reads the API through the watch cache, and returns no state older than this process's last write.
//
// A watch cache lags behind the API server. A reconciler that acts on a stale read acts twice: it makes a second key, a
// second request or a conflicting write. Client keeps the API server's answer to each of its writes, and returns the
// answer instead of the cached object until the cache has caught up. Client does not read back from the API server what
// it has written, so a reconcile pass costs exactly its writes.
//
// Client is not a cache: it drops an answer when the watch has shown the write, and after entryLife at the latest.
package ownwrites

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"strings"
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
	api     client.Client
	now     func() time.Time
	onWrite func(client.Object)
	// onError is told of each write that has failed; nil for nobody.
	onError func(kind, verb string, err error)
	// brief says of which objects the answers to writes of a status are brief; nil for none.
	brief func(client.Object) bool

	mu      sync.Mutex
	entries map[ref]*entry
	owned   map[types.UID]map[ref]*entry
	ageing  []ageing // in the order of expiry
	serial  uint64
	// unanswered are the names with calls that are not answered.
	unanswered map[ref]*unansweredCalls
}

// unansweredCalls is what is known of a name while calls for it are not answered.
type unansweredCalls struct {
	calls int
	// gone is the last object that the watch has shown gone meanwhile; nil if none was.
	gone client.Object
}

type ref struct {
	kind schema.GroupKind
	name types.NamespacedName
}

// entry is what is known of an object since it was written. It is never changed.
type entry struct {
	obj     client.Object // of a deleted object only the identity
	deleted bool
	// marked says that it was deleted, and stays until its last finalizer goes.
	marked bool
	owner  types.UID
	serial uint64
}

// ageing is when an entry ends; it does not hold the entry itself, which is mostly
// dropped long before.
type ageing struct {
	ref     ref
	serial  uint64
	expires time.Time
}

// New returns a client over api, whose reads come from a cache.
func New(api client.Client, now func() time.Time) *Client {
	return &Client{
		api: api, now: now,
		entries: map[ref]*entry{}, owned: map[types.UID]map[ref]*entry{}, unanswered: map[ref]*unansweredCalls{},
	}
}

// OnWrite makes the Client call written after each write and each Live, with the object as it is then, unless it is
// gone. Call OnWrite at the wiring, before the first write. written MUST NOT change the object.
func (c *Client) OnWrite(written func(client.Object)) { c.onWrite = written }

// OnError makes the Client call failed for each write that fails, with the kind of the object, what the write was to do
// with the object, and the error. Call OnError at the wiring, like OnWrite.
func (c *Client) OnError(failed func(kind, verb string, err error)) { c.onError = failed }

// AnswerBriefly makes the API server answer a write of a status with the metadata alone, if brief is true for the
// object. It is for large objects, of which the caller has only a part. Call it at the wiring, like OnWrite.
func (c *Client) AnswerBriefly(brief func(client.Object) bool) { c.brief = brief }

func (c *Client) tellError(r ref, verb string, err error) {
	if c.onError != nil && err != nil {
		c.onError(r.kind.Kind, verb, err)
	}
}

// Get reads the object named key into obj.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	r := c.refTo(obj, key)
	for {
		// The entry is looked at before the cache: what drops it is the cache having
		// caught up, so one of the two has the write in any case.
		e := c.entry(r)
		err := c.api.Get(ctx, key, obj)
		if e == nil || err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil && e.supersededBy(obj) {
			c.forget(r, e)
			return nil
		}
		if c.entry(r) != e {
			continue // written or seen meanwhile
		}
		if e.deleted {
			return apierrors.NewNotFound(schema.GroupResource{Group: r.kind.Group, Resource: r.kind.Kind}, key.Name)
		}
		copyInto(obj, e.obj)
		return nil
	}
}

// ListOwned reads the objects in namespace that owner controls into list. An
// empty namespace lists cluster-wide.
func (c *Client) ListOwned(ctx context.Context, list client.ObjectList, namespace string, owner types.UID) error {
	gvk, err := apiutil.GVKForObject(list, c.api.Scheme())
	if err != nil {
		return err
	}
	kind := schema.GroupKind{Group: gvk.Group, Kind: strings.TrimSuffix(gvk.Kind, "List")}
	for {
		written := c.ownedBy(owner, kind, namespace)
		err := c.api.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{OwnerIndex: string(owner)}, client.UnsafeDisableDeepCopy)
		if err != nil || len(written) == 0 {
			return err
		}
		if maps.Equal(written, c.ownedBy(owner, kind, namespace)) {
			return c.withWritten(list, kind, written)
		}
	}
}

// withWritten replaces what is older in list than what was written.
func (c *Client) withWritten(list client.ObjectList, kind schema.GroupKind, written map[ref]*entry) error {
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	var out []runtime.Object
	for _, item := range items {
		obj := item.(client.Object) //nolint:forcetypeassert // every API object is one
		r := ref{kind, client.ObjectKeyFromObject(obj)}
		e, ok := written[r]
		if !ok || e.supersededBy(obj) {
			c.forget(r, e)
			delete(written, r)
			out = append(out, obj)
		}
	}
	for _, e := range written {
		if !e.deleted {
			out = append(out, e.obj)
		}
	}
	return meta.SetList(list, out)
}

// Live reads the object named key from the API server, past the cache.
func (c *Client) Live(ctx context.Context, reader client.Reader, key client.ObjectKey, obj client.Object) error {
	return c.keep(c.refTo(obj, key), obj, func() error { return reader.Get(ctx, key, obj) })
}

// Create makes obj and fills it with the answer.
func (c *Client) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.write(ctx, "create", obj, func() error { return c.api.Create(ctx, obj, opts...) })
}

// Patch changes obj and fills it with the answer.
func (c *Client) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.write(ctx, "write", obj, func() error { return c.api.Patch(ctx, obj, patch, opts...) })
}

// PatchStatus changes the status of obj and fills obj with the answer. After a brief answer, only the version of obj is
// new: the rest stays as the caller has set it.
func (c *Client) PatchStatus(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return c.write(ctx, "", obj, func() error {
		if c.brief == nil || !c.brief(obj) {
			return c.api.Status().Patch(ctx, obj, patch, opts...)
		}
		kind, err := apiutil.GVKForObject(obj, c.api.Scheme())
		if err != nil {
			return err
		}
		answer := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName()}}
		answer.SetGroupVersionKind(kind)
		if err := c.api.Status().Patch(ctx, answer, patch, opts...); err != nil {
			return err
		}
		obj.SetResourceVersion(answer.ResourceVersion)
		return nil
	})
}

// UpdateSubResource replaces the named subresource of obj and fills it with the answer.
func (c *Client) UpdateSubResource(ctx context.Context, subresource string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return c.write(ctx, "set "+subresource+" of", obj, func() error { return c.api.SubResource(subresource).Update(ctx, obj, opts...) })
}

// write makes a write of obj, notes it as verb, unless that is empty, and keeps the answer.
func (c *Client) write(ctx context.Context, verb string, obj client.Object, do func() error) error {
	r, before := c.refTo(obj, client.ObjectKeyFromObject(obj)), obj.GetResourceVersion()
	err := c.keep(r, obj, do)
	c.tellError(r, cmp.Or(verb, "write the status of"), err)
	if err == nil && verb != "" && obj.GetResourceVersion() != before {
		r.name = client.ObjectKeyFromObject(obj) // the API server may have made the name
		note(ctx, verb, r)
	}
	return err
}

// noteKey is the key of the context for the function that is told of writes.
type noteKey struct{}

// Noting returns a context. The Client calls noted after each write with this context that has changed something, but
// not after writes of a status.
func Noting(ctx context.Context, noted func(verb, kind string, name types.NamespacedName)) context.Context {
	return context.WithValue(ctx, noteKey{}, noted)
}

func note(ctx context.Context, verb string, r ref) {
	if noted, ok := ctx.Value(noteKey{}).(func(verb, kind string, name types.NamespacedName)); ok {
		noted(verb, r.kind.Kind, r.name)
	}
}

// KindOf returns the kind of an object.
func (c *Client) KindOf(obj client.Object) string {
	return c.refTo(obj, client.ObjectKeyFromObject(obj)).kind.Kind
}

// keep makes a call, and keeps its answer, which is in obj. An object that the API server does not find is gone.
func (c *Client) keep(r ref, obj client.Object, do func() error) error {
	c.countUnanswered(r, 1)
	defer c.countUnanswered(r, -1)
	err := do()
	switch {
	case err == nil:
		c.put(obj, entry{})
	case obj.GetUID() != "" && IsGone(err):
		c.put(obj, entry{deleted: true})
	}
	return err
}

// countUnanswered counts the calls for a name that are not answered.
func (c *Client) countUnanswered(r ref, calls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.unanswered[r]
	if f == nil {
		f = &unansweredCalls{}
		c.unanswered[r] = f
	}
	if f.calls += calls; f.calls == 0 {
		delete(c.unanswered, r)
	}
}

// IsGone reports whether err says that an object does not exist. A "not found" of a server that does not know the path
// does not count: the server does not serve the kind for a moment, and the error says nothing about the object.
func IsGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Delete deletes exactly this obj. If obj is gone already, that is no error. An object with finalizers only gets a
// deletion timestamp, and stays until the watch reports it gone.
func (c *Client) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	r, uid := c.refTo(obj, client.ObjectKeyFromObject(obj)), obj.GetUID()
	c.countUnanswered(r, 1)
	defer c.countUnanswered(r, -1)
	opts = append([]client.DeleteOption{client.Preconditions{UID: &uid}}, opts...)
	err := c.api.Delete(ctx, obj, opts...)
	if err == nil {
		note(ctx, "delete", r)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // gone, or another object by the same name: either way this one is not there
	}
	switch {
	case err != nil:
		c.tellError(r, "delete", err)
		return err
	case len(obj.GetFinalizers()) == 0:
		c.put(obj, entry{deleted: true})
	case obj.GetDeletionTimestamp() == nil:
		marked := obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
		marked.SetDeletionTimestamp(&metav1.Time{Time: c.now()})
		c.put(marked, entry{marked: true})
	}
	return nil
}

// Observe takes note of an object that the watch reports; gone says that it was
// deleted. Entries that the watch has caught up with are dropped.
func (c *Client) Observe(obj client.Object, gone bool) {
	r := c.refTo(obj, client.ObjectKeyFromObject(obj))
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.unanswered[r]; f != nil && gone {
		f.gone = obj
	}
	e := c.entries[r]
	if e != nil && (gone && e.obj.GetUID() == obj.GetUID() || !gone && e.supersededBy(obj)) {
		c.drop(r, e)
	}
}

// Len returns how many writes the watch has not reported yet.
func (c *Client) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// put keeps an object as it is after a write. If the watch has already shown that the object is gone, put keeps
// nothing: no later event would remove the entry.
func (c *Client) put(obj client.Object, after entry) {
	r := c.refTo(obj, client.ObjectKeyFromObject(obj))
	// What is marked goes with its last finalizer. The watch may have said so before the answer
	// to that write comes: then nothing else would take the entry away.
	after.deleted = after.deleted || obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0
	e := &after
	if owner := metav1.GetControllerOf(obj); owner != nil {
		e.owner = owner.UID
	}
	if e.deleted {
		e.obj = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		}}
	} else {
		e.obj = obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
		if c.onWrite != nil {
			c.onWrite(e.obj)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.unanswered[r]; f != nil && f.gone != nil && compare(f.gone, e.obj) >= 0 {
		return
	}
	if old := c.entries[r]; old != nil {
		if old.supersedes(e) {
			return
		}
		c.drop(r, old)
	}
	c.serial++
	e.serial = c.serial
	c.entries[r] = e
	c.ageing = append(c.ageing, ageing{r, e.serial, c.now().Add(entryLife)})
	if e.owner != "" {
		if c.owned[e.owner] == nil {
			c.owned[e.owner] = map[ref]*entry{}
		}
		c.owned[e.owner][r] = e
	}
	c.expire()
}

// supersedes reports whether e stays when late comes: the answer to a write may come after the answer to a later write.
// A deleted object stays deleted.
func (e *entry) supersedes(late *entry) bool {
	if e.obj.GetUID() == late.obj.GetUID() {
		return e.deleted || !late.deleted && compare(e.obj, late.obj) > 0
	}
	return compare(e.obj, late.obj) > 0
}

// supersededBy reports whether the cached object is as new as the entry. A deleted
// object stays deleted: only one that was made later by the name supersedes it.
func (e *entry) supersededBy(cached client.Object) bool {
	if e.deleted {
		return cached.GetUID() != e.obj.GetUID() && compare(cached, e.obj) > 0
	}
	if e.marked && cached.GetResourceVersion() == e.obj.GetResourceVersion() {
		return cached.GetDeletionTimestamp() != nil
	}
	return compare(cached, e.obj) >= 0
}

// compare orders two versions of what has one name, negative if they cannot be.
func compare(a, b client.Object) int {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	if err != nil {
		return -1
	}
	return order
}

// entry returns what is known of r since it was written, or nil.
func (c *Client) entry(r ref) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	return c.entries[r]
}

// ownedBy returns what is known of the objects of a kind that owner controls.
func (c *Client) ownedBy(owner types.UID, kind schema.GroupKind, namespace string) map[ref]*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	var out map[ref]*entry
	for r, e := range c.owned[owner] {
		if r.kind == kind && (namespace == "" || r.name.Namespace == namespace) {
			if out == nil {
				out = map[ref]*entry{}
			}
			out[r] = e
		}
	}
	return out
}

// forget drops e, unless something was written since.
func (c *Client) forget(r ref, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(r, e)
}

// expire drops the entries that have outlived entryLife.
func (c *Client) expire() {
	now := c.now()
	for len(c.ageing) > 0 {
		oldest := c.ageing[0]
		e := c.entries[oldest.ref]
		if e != nil && e.serial == oldest.serial {
			if !now.After(oldest.expires) {
				return
			}
			c.drop(oldest.ref, e)
		}
		c.ageing = c.ageing[1:]
	}
}

func (c *Client) drop(r ref, e *entry) {
	if e == nil || c.entries[r] != e {
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
