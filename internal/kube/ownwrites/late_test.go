package ownwrites_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAnAnswerThatComesLate: the watch may show that an object is gone before the answer to a write of it comes.
// Nothing would take the entry away then.
func TestAnAnswerThatComesLate(t *testing.T) {
	l := newLag(t)
	first := l.create("a")
	l.catchUp()
	for _, again := range []bool{false, true} {
		l.patched = func() {
			gone := l.remove(first)
			if again {
				first = l.create("a")
			}
			l.over.Observe(gone, true)
			l.catchUp()
		}
		l.patch(first, "1")
		if again {
			l.expect("it is gone, and made again", "a", first)
		} else {
			l.expect("it is gone", "a", nil)
			first = l.create("a")
			l.catchUp()
			l.expect("it is made again", "a", first)
		}
		if n := l.over.Len(); n != 0 {
			t.Errorf("%d entries are kept", n)
		}
	}
	l.patched = func() { l.over.Observe(first, true) }
	second := l.patch(first, "1")
	l.expect("what the watch has shown is older than the answer", "a", second)
}

// TestADeletionThatIsAnsweredLate: somebody else may take the last finalizer away before the answer to the deletion
// comes, and the watch may show that.
func TestADeletionThatIsAnsweredLate(t *testing.T) {
	l := newLag(t)
	obj := l.fresh("a")
	obj.Finalizers = []string{"chancery.dev/test"}
	if err := l.over.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	l.catchUp()
	l.over.Observe(obj, false)
	l.patched = func() {
		released := obj.DeepCopy()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := l.world.Client.Patch(t.Context(), released, patch); err != nil {
			t.Fatal(err)
		}
		l.over.Observe(released, true)
		l.catchUp()
	}
	if err := l.over.Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	l.expect("it is gone", "a", nil)
	if n := l.over.Len(); n != 0 {
		t.Errorf("%d entries are kept", n)
	}
}

// remove has somebody else delete an object, and returns it as the watch shows it then.
func (l *lag) remove(obj *corev1.ConfigMap) *corev1.ConfigMap {
	l.t.Helper()
	all := &corev1.ConfigMapList{}
	err := l.world.Client.Delete(l.t.Context(), obj.DeepCopy())
	if err = errors.Join(err, l.world.Client.List(l.t.Context(), all, client.InNamespace(obj.Namespace))); err != nil {
		l.t.Fatal(err)
	}
	gone := obj.DeepCopy()
	gone.ResourceVersion = all.ResourceVersion
	return gone
}
