package informers

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestFollowingForgets: Challenges come and go without end. Of what follows nothing any more, nothing is kept.
func TestFollowingForgets(t *testing.T) {
	t.Parallel()
	f := NewFollowing()
	name := func(n int) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: fmt.Sprint(n)} }
	for n := range 10 {
		f.Follow(name(n), name(100+n))
		f.Follow(name(n), name(200+n%3))
	}
	if len(f.Followers(name(200))) != 4 || f.Followed(name(100)) {
		t.Errorf("%v", f.followers)
	}
	for n := range 10 {
		f.Leave(name(n))
	}
	if len(f.objects) != 0 || len(f.followers) != 0 {
		t.Errorf("%d and %d are kept", len(f.objects), len(f.followers))
	}
}
