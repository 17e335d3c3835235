package controller

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Echoes keeps the events of a reconciler's own writes from waking it again: a pass that
// has written, and has then decided on what it wrote, learns nothing from seeing it. What
// others write always comes through, other reconcilers of this process included.
type Echoes struct {
	bell *Doorbell

	mu     sync.Mutex
	writes map[types.NamespacedName]*ownWrite
}

// ownWrite is a write whose event has not come yet.
type ownWrite struct {
	// version is what the API server has made of the object; empty while it has not answered.
	version string
	// early are the versions that the watch has shown before the answer came.
	early []string
}

// NewEchoes returns the Echoes of one watch of one kind. Bell queues an object whose event
// was held back, and turned out to be somebody else's.
func NewEchoes(bell *Doorbell) *Echoes {
	return &Echoes{bell: bell, writes: map[types.NamespacedName]*ownWrite{}}
}

// Write runs a write of obj, which reads the answer into obj, and keeps its event back. The
// caller MUST decide on obj before it rests: no event will have it do so.
func (e *Echoes) Write(obj client.Object, write func() error) error {
	name, mine := client.ObjectKeyFromObject(obj), &ownWrite{}
	e.mu.Lock()
	e.writes[name] = mine
	e.mu.Unlock()
	err := write()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		mine.version = obj.GetResourceVersion()
	}
	come := slices.Index(mine.early, mine.version)
	if e.writes[name] == mine && (err != nil || come >= 0) {
		delete(e.writes, name)
	}
	if come < 0 && len(mine.early) > 0 || len(mine.early) > 1 {
		e.bell.Ring(name)
	}
	return err
}

// Predicate lets all events through but those of Write.
func (e *Echoes) Predicate() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(c event.CreateEvent) bool { return !e.holds(c.Object) },
		UpdateFunc: func(u event.UpdateEvent) bool { return !e.holds(u.ObjectNew) },
		DeleteFunc: func(d event.DeleteEvent) bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.writes, client.ObjectKeyFromObject(d.Object))
			return true
		},
	}
}

func (e *Echoes) holds(obj client.Object) bool {
	name, version := client.ObjectKeyFromObject(obj), obj.GetResourceVersion()
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.writes[name]
	switch {
	case w == nil:
		return false
	case w.version == "":
		w.early = append(w.early, version)
		return true
	case w.version == version:
		delete(e.writes, name)
		return true
	default:
		return false
	}
}
