package informers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Following knows which object each follower follows: at most one. When an object changes, only its followers are
// looked at, and no other object.
type Following struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]types.NamespacedName
	// followers has the same the other way round.
	followers map[types.NamespacedName]map[types.NamespacedName]bool
}

// NewFollowing returns a Following without followers.
func NewFollowing() *Following {
	return &Following{objects: map[types.NamespacedName]types.NamespacedName{}, followers: map[types.NamespacedName]map[types.NamespacedName]bool{}}
}

// Follow makes a follower follow an object, and nothing else.
func (f *Following) Follow(follower, object types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave(follower)
	if f.followers[object] == nil {
		f.followers[object] = map[types.NamespacedName]bool{}
	}
	f.followers[object][follower], f.objects[follower] = true, object
}

// Leave makes a follower follow nothing.
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

// Followers lists the followers of an object.
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
