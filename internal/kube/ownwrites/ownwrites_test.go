package ownwrites_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/rig"
)

// lag is a Client over watch caches that are real, and stand still: each has seen
// the API server as it was when it was taken.
type lag struct {
	t     *testing.T
	world *rig.World
	over  *ownwrites.Client
	owner *corev1.ConfigMap

	mu    sync.Mutex
	now   time.Time
	view  client.Reader
	after func() // runs once, between a read of the view and its return
	// patched runs once, between a patch or a deletion and its answer.
	patched func()
}

// slow is a client whose answers to patches and deletions may come late.
type slow struct {
	client.Client

	lag *lag
}

// Patch implements client.Client.
func (s slow) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	defer s.answer()
	return s.Client.Patch(ctx, obj, patch, opts...)
}

// Delete implements client.Client.
func (s slow) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	defer s.answer()
	return s.Client.Delete(ctx, obj, opts...)
}

func (s slow) answer() {
	if patched := s.lag.patched; patched != nil {
		s.lag.patched = nil
		patched()
	}
}

func newLag(t *testing.T) *lag {
	t.Helper()
	l := &lag{t: t, world: rig.NewWorld(t), now: time.Unix(1_800_000_000, 0)}
	l.owner = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.world.Namespace, Name: "owner"}}
	if err := l.world.Client.Create(t.Context(), l.owner); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(l.world.Admin, client.Options{Scheme: scheme.Scheme, Cache: &client.CacheOptions{Reader: l}})
	if err != nil {
		t.Fatal(err)
	}
	l.over = ownwrites.New(slow{api, l}, func() time.Time {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.now
	})
	l.catchUp()
	return l
}

// catchUp takes a new cache: it syncs, and stops.
func (l *lag) catchUp() {
	l.t.Helper()
	c, err := cache.New(l.world.Admin, cache.Options{Scheme: scheme.Scheme})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(l.t.Context(), rig.Patience)
	defer stop()
	if err := c.IndexField(ctx, &corev1.ConfigMap{}, ownwrites.OwnerIndex, ownwrites.OwnerOf); err != nil {
		l.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	if !c.WaitForCacheSync(ctx) {
		l.t.Fatal("the cache did not sync")
	}
	stop()
	if err := <-done; err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view = c
}

func (l *lag) read(do func(client.Reader) error) error {
	l.mu.Lock()
	view, after := l.view, l.after
	l.after = nil
	l.mu.Unlock()
	err := do(view)
	if after != nil {
		after()
	}
	return err
}

// Get implements client.Reader.
func (l *lag) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return l.read(func(r client.Reader) error { return r.Get(ctx, key, obj, opts...) })
}

// List implements client.Reader.
func (l *lag) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.read(func(r client.Reader) error { return r.List(ctx, list, opts...) })
}

func (l *lag) step(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(d)
}

// fresh returns an object that owner controls.
func (l *lag) fresh(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.world.Namespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(l.owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
	}}
}

func (l *lag) create(name string) *corev1.ConfigMap {
	l.t.Helper()
	obj := l.fresh(name)
	if err := l.over.Create(l.t.Context(), obj); err != nil {
		l.t.Fatal(err)
	}
	return obj
}

func (l *lag) delete(obj client.Object) {
	l.t.Helper()
	if err := l.over.Delete(l.t.Context(), obj); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lag) patch(obj *corev1.ConfigMap, value string) *corev1.ConfigMap {
	l.t.Helper()
	changed := obj.DeepCopy()
	changed.Data = map[string]string{"value": value}
	if err := l.over.Patch(l.t.Context(), changed, client.MergeFrom(obj)); err != nil {
		l.t.Fatal(err)
	}
	return changed
}

// get returns what the Client has by that name: "value version", or "none".
func (l *lag) get(name string) string {
	l.t.Helper()
	obj := &corev1.ConfigMap{}
	err := l.over.Get(l.t.Context(), client.ObjectKey{Namespace: l.world.Namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return "none"
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return id(obj)
}

func id(obj *corev1.ConfigMap) string {
	return fmt.Sprintf("%s=%q %s", obj.Name, obj.Data["value"], obj.ResourceVersion)
}

func (l *lag) list() []string {
	l.t.Helper()
	list := &corev1.ConfigMapList{}
	if err := l.over.ListOwned(l.t.Context(), list, l.world.Namespace, l.owner.UID); err != nil {
		l.t.Fatal(err)
	}
	out := []string{}
	for i := range list.Items {
		out = append(out, id(&list.Items[i]))
	}
	slices.Sort(out)
	return out
}

// expect compares both ways to read.
func (l *lag) expect(when string, name string, want *corev1.ConfigMap) {
	l.t.Helper()
	one, all := "none", []string{}
	if want != nil {
		one, all = id(want), []string{id(want)}
	}
	if got := l.list(); !slices.Equal(got, all) {
		l.t.Errorf("%s: lists %q, want %q", when, got, all)
	}
	if got := l.get(name); got != one {
		l.t.Errorf("%s: reads %q, want %q", when, got, one)
	}
}

func TestReadsOwnWrites(t *testing.T) {
	l := newLag(t)
	l.expect("before", "a", nil)
	first := l.create("a")
	l.expect("created, the cache has not seen it", "a", first)
	second := l.patch(first, "1")
	l.expect("patched, the cache has seen nothing", "a", second)
	l.catchUp()
	l.expect("the cache has seen it", "a", second)
	if l.over.Len() != 0 {
		t.Errorf("%d entries are kept though the cache has them", l.over.Len())
	}
	third := l.patch(second, "2")
	l.expect("patched, the cache has an older one", "a", third)
	l.delete(third)
	l.expect("deleted, the cache still has it", "a", nil)
	l.delete(third)
	l.expect("deleted twice", "a", nil)
	fourth := l.create("a")
	l.expect("made again, the cache has the one before", "a", fourth)
	l.catchUp()
	l.expect("made again, the cache has seen it", "a", fourth)
	if err := l.world.Client.Delete(t.Context(), fourth); err != nil {
		t.Fatal(err)
	}
	l.catchUp()
	l.expect("deleted by somebody else", "a", nil)
}

// A cache may be so far behind that it has seen neither the first of a name, nor
// that it went, nor the second.
func TestDeletedStaysDeleted(t *testing.T) {
	l := newLag(t)
	first := l.create("a")
	l.catchUp()
	l.expect("the first", "a", first)
	l.delete(first)
	second := l.create("a")
	l.delete(second)
	l.expect("the second is deleted, the cache has the first", "a", nil)
	third := l.create("a")
	behind := l.view
	l.catchUp()
	l.delete(third)
	caughtUp := l.view
	l.view = behind
	l.expect("the third is deleted, the cache has the first", "a", nil)
	l.view = caughtUp
	l.expect("the third is deleted, the cache has just seen it", "a", nil)
}

// Reading a name that the cache has not seen must not forget that it was deleted:
// the cache will see it yet, alive.
func TestDeletedBeforeTheCacheSawIt(t *testing.T) {
	l := newLag(t)
	before := l.view
	obj := l.create("a")
	l.catchUp()
	alive := l.view
	l.view = before
	l.delete(obj)
	l.expect("the cache has seen nothing", "a", nil)
	l.view = alive
	l.expect("the cache has seen it made", "a", nil)
	l.catchUp()
	l.over.Observe(obj, true)
	l.expect("the cache has seen it go", "a", nil)
	if l.over.Len() != 0 {
		t.Errorf("%d entries are left", l.over.Len())
	}
}

// The watch may catch up between the read of the cache and the look at the entries.
func TestCatchesUpInTheMidstOfARead(t *testing.T) {
	l := newLag(t)
	obj := l.create("a")
	overtake := func() {
		l.catchUp()
		l.over.Observe(obj, false)
	}
	stale := l.view
	l.after = overtake
	if got := l.get("a"); got != id(obj) {
		t.Errorf("reads %q, want %q", got, id(obj))
	}
	l.view = stale
	second := l.create("b")
	l.after = func() {
		l.catchUp()
		l.over.Observe(second, false)
	}
	if got := l.list(); len(got) != 2 {
		t.Errorf("lists %q, want a and b", got)
	}
}

func TestObserveDrops(t *testing.T) {
	l := newLag(t)
	first := l.create("a")
	second := l.patch(first, "1")
	l.over.Observe(first, false)
	if l.over.Len() != 1 {
		t.Error("an older version drops the entry")
	}
	l.over.Observe(first, true)
	l.over.Observe(l.create("b"), false)
	if l.over.Len() != 0 {
		t.Errorf("%d entries are left after their objects were seen", l.over.Len())
	}
	l.create("c")
	other := second.DeepCopy()
	other.Name, other.UID = "c", "another"
	l.over.Observe(other, true)
	if l.over.Len() != 1 {
		t.Error("that another object by the name went drops the entry")
	}
}

func TestEntriesExpire(t *testing.T) {
	l := newLag(t)
	for i := range 5 {
		l.create(fmt.Sprintf("a%d", i))
	}
	l.step(2*time.Minute - time.Second)
	if got := l.list(); len(got) != 5 {
		t.Errorf("before they expire: lists %q", got)
	}
	l.step(2 * time.Second)
	if got := l.get("a1"); got != "none" {
		t.Errorf("after they expired: reads %q", got)
	}
	if got := l.list(); len(got) != 0 {
		t.Errorf("after they expired: lists %q", got)
	}
	// What nobody reads any more must go as well.
	for i := range 5 {
		l.create(fmt.Sprintf("b%d", i))
	}
	l.step(2*time.Minute + time.Second)
	l.create("c")
	if l.over.Len() != 1 {
		t.Errorf("%d entries are kept, want 1", l.over.Len())
	}
}

func TestOthersAreNotListed(t *testing.T) {
	l := newLag(t)
	obj := l.create("a")
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.world.Namespace, Name: "b"}}
	secret := &corev1.Secret{ObjectMeta: *l.fresh("c").ObjectMeta.DeepCopy()}
	for _, o := range []client.Object{foreign, secret} {
		if err := l.over.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if got := l.list(); !slices.Equal(got, []string{id(obj)}) {
		t.Errorf("lists %q, want only %q", got, id(obj))
	}
	list := &corev1.ConfigMapList{}
	if err := l.over.ListOwned(t.Context(), list, "elsewhere", l.owner.UID); err != nil || len(list.Items) != 0 {
		t.Errorf("another namespace lists %d, error %v", len(list.Items), err)
	}
}

// A write whose answer comes late must not hide a later one.
func TestAnswersOutOfOrder(t *testing.T) {
	l := newLag(t)
	first := l.create("a")
	second := l.patch(first, "1")
	// Live stands for the late answer: it remembers what it was given.
	late := frozen{first}
	if err := l.over.Live(t.Context(), late, client.ObjectKeyFromObject(first), &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	l.expect("an older answer came late", "a", second)
	l.delete(second)
	if err := l.over.Live(t.Context(), late, client.ObjectKeyFromObject(first), &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	l.expect("an answer came after the deletion", "a", nil)
}

// An object goes with its last finalizer: the answer to that write, which may come after the
// watch has shown it gone, must not bring it back.
func TestGoneWithItsLastFinalizer(t *testing.T) {
	l := newLag(t)
	obj := l.fresh("a")
	obj.Finalizers = []string{"chancery.dev/test"}
	if err := l.over.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	l.delete(obj)
	l.catchUp()
	marked := &corev1.ConfigMap{}
	if err := l.over.Get(t.Context(), client.ObjectKeyFromObject(obj), marked); err != nil || marked.DeletionTimestamp == nil {
		t.Fatalf("%v, %+v", err, marked)
	}
	answer := marked.DeepCopy()
	answer.Finalizers = nil
	if err := l.over.Patch(t.Context(), answer, client.MergeFrom(marked)); err != nil {
		t.Fatal(err)
	}
	l.expect("the cache has not seen it go", "a", nil)
	l.catchUp()
	l.over.Observe(marked, true)
	l.expect("the cache has seen it go", "a", nil)
	if err := l.over.Live(t.Context(), frozen{answer}, client.ObjectKeyFromObject(answer), &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	l.expect("the answer came late", "a", nil)
	l.expect("another one is made by the name", "a", l.create("a"))
}

// TestTheServerSaysThatItIsGone: after a write that the API server answers with "not found", the object is gone,
// though the watch has not shown that. Another one by its name is another object.
func TestTheServerSaysThatItIsGone(t *testing.T) {
	l := newLag(t)
	first := l.create("a")
	l.catchUp()
	first = l.patch(first, "1")
	l.remove(first)
	refused := func() {
		t.Helper()
		changed := first.DeepCopy()
		changed.Data = map[string]string{"value": "2"}
		if err := l.over.Patch(t.Context(), changed, client.MergeFrom(first)); !apierrors.IsNotFound(err) {
			t.Fatalf("the answer is %v", err)
		}
	}
	refused()
	l.expect("the cache still has it", "a", nil)
	second := l.fresh("a")
	if err := l.world.Client.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	l.catchUp()
	l.expect("somebody has made another", "a", second)
	l.remove(second)
	third := l.create("a")
	l.expect("another is made", "a", third)
	l.remove(third)
	refused()
	l.expect("the first was not found, which says nothing of the third", "a", third)
}

// frozen gives one object.
type frozen struct{ obj *corev1.ConfigMap }

func (f frozen) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	f.obj.DeepCopyInto(obj.(*corev1.ConfigMap))
	return nil
}

func (f frozen) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestConcurrentUse(t *testing.T) {
	l := newLag(t)
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			name := fmt.Sprintf("a%d", i%4)
			for range 5 {
				obj := l.fresh(name)
				err := l.over.Create(t.Context(), obj)
				if apierrors.IsAlreadyExists(err) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				l.over.Observe(obj, false)
				if err := l.over.ListOwned(t.Context(), &corev1.ConfigMapList{}, l.world.Namespace, l.owner.UID); err != nil {
					t.Error(err)
				}
				if err := l.over.Delete(t.Context(), obj); err != nil {
					t.Error(err)
				}
				found := &corev1.ConfigMap{}
				if err := l.over.Get(t.Context(), client.ObjectKeyFromObject(obj), found); err == nil && found.UID == obj.UID {
					t.Errorf("%s is read after it was deleted", name)
				}
			}
		})
	}
	work.Wait()
}

// TestDeletedWithAFinalizer: what was deleted, and stays until its last finalizer goes, is seen so before the cache
// knows, and as the cache has it from then on.
func TestDeletedWithAFinalizer(t *testing.T) {
	l := newLag(t)
	obj := l.fresh("a")
	obj.Finalizers = []string{"chancery.dev/test"}
	if err := l.over.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	l.catchUp()
	marked := func() bool {
		t.Helper()
		seen := &corev1.ConfigMap{}
		if err := l.over.Get(t.Context(), client.ObjectKeyFromObject(obj), seen); err != nil {
			t.Fatal(err)
		}
		return seen.DeletionTimestamp != nil
	}
	if marked() {
		t.Fatal("marked before the deletion")
	}
	if err := l.over.Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	if !marked() {
		t.Error("the cache has not seen the deletion, and the object is not marked")
	}
	l.catchUp()
	if !marked() {
		t.Error("the cache has seen the deletion, and the object is not marked")
	}
	if n := l.over.Len(); n != 0 {
		t.Errorf("%d writes are kept that the cache shows", n)
	}
}
