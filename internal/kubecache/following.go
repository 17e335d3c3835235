package kubecache

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Following knows which one object each of many follows: a change costs as much as the objects that it matters to, and
// none of the others is looked at.
type Following struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]types.NamespacedName
	// followers has the same the other way round.
	followers map[types.NamespacedName]map[types.NamespacedName]bool
}

// NewFollowing returns one in which nothing follows anything.
func NewFollowing() *Following {
	return &Following{objects: map[types.NamespacedName]types.NamespacedName{}, followers: map[types.NamespacedName]map[types.NamespacedName]bool{}}
}

// Follow has a follower follow an object, and nothing else.
func (f *Following) Follow(follower, object types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave(follower)
	if f.followers[object] == nil {
		f.followers[object] = map[types.NamespacedName]bool{}
	}
	f.followers[object][follower], f.objects[follower] = true, object
}

// Leave has a follower follow nothing.
func (f *Following) Leave(follower types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave(follower)
}

func (f *Following) leave(follower types.NamespacedName) {
	object := f.objects[follower]
	delete(f.objects, follower)
	delete(f.followers[object], follower)
	if len(f.followers[object]) == 0 {
		delete(f.followers, object)
	}
}

// Followers lists what follows an object.
func (f *Following) Followers(object types.NamespacedName) (out []reconcile.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for follower := range f.followers[object] {
		out = append(out, reconcile.Request{NamespacedName: follower})
	}
	return out
}

// Followed reports whether anything follows an object.
func (f *Following) Followed(object types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.followers[object]) > 0
}
