package controller

import (
	"iter"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Memories keeps what a reconciler has learned about each object from one pass to the
// next: nothing that is lost with the process but work that is done again. Another
// object by the same name starts anew. The zero value is ready.
type Memories[M any] struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]*memory[M]
}

type memory[M any] struct {
	uid   types.UID
	known M
}

// Of returns what is known of an object, for the one worker that has the object to read
// and write, and the UID of another one by its name that was forgotten for it.
func (m *Memories[M]) Of(name types.NamespacedName, uid types.UID) (*M, types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byName == nil {
		m.byName = map[types.NamespacedName]*memory[M]{}
	}
	var replaced types.UID
	if old := m.byName[name]; old != nil {
		if old.uid == uid {
			return &old.known, ""
		}
		replaced = old.uid
	}
	fresh := &memory[M]{uid: uid}
	m.byName[name] = fresh
	return &fresh.known, replaced
}

// All yields what is known of each object. It is for when no worker has any of them.
func (m *Memories[M]) All() iter.Seq2[types.NamespacedName, *M] {
	m.mu.Lock()
	all := maps.Clone(m.byName)
	m.mu.Unlock()
	return func(yield func(types.NamespacedName, *M) bool) {
		for name, of := range all {
			if !yield(name, &of.known) {
				return
			}
		}
	}
}

// Drop forgets an object and returns its UID; empty if nothing was known.
func (m *Memories[M]) Drop(name types.NamespacedName) types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.byName[name]
	if old == nil {
		return ""
	}
	delete(m.byName, name)
	return old.uid
}
