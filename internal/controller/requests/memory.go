package requests

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lastSaid remembers what was last said about an object, so that it is not said
// again at every look.
type lastSaid struct {
	mu   sync.Mutex
	said map[types.NamespacedName]string
}

func newLastSaid() *lastSaid { return &lastSaid{said: map[types.NamespacedName]string{}} }

func (l *lastSaid) news(name types.NamespacedName, text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said[name] == text {
		return false
	}
	l.said[name] = text
	return true
}

func (l *lastSaid) forget(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.said, name)
}

// unsaved keeps annotations until they are stored.
type unsaved struct {
	mu   sync.Mutex
	kept map[types.NamespacedName]leftover
}

// leftover is what is kept for an object: for the next one of its name it means nothing.
type leftover struct {
	uid         types.UID
	annotations map[string]string
}

func newUnsaved() *unsaved { return &unsaved{kept: map[types.NamespacedName]leftover{}} }

// add keeps more annotations of an object, and returns all that are kept.
func (u *unsaved) add(o client.Object, annotations map[string]string) map[string]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	name := client.ObjectKeyFromObject(o)
	known := u.kept[name]
	if known.uid != o.GetUID() {
		known = leftover{uid: o.GetUID()}
	}
	if len(annotations) > 0 {
		all := maps.Clone(known.annotations)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, annotations)
		known.annotations = all
		u.kept[name] = known
	}
	return known.annotations
}

func (u *unsaved) forget(name types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.kept, name)
}
