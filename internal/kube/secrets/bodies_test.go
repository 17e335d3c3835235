package secrets

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

// TestBodiesAreBounded: who names large Secrets in many issuers chooses how much is kept of them. Beyond the bound,
// what was used the longest ago goes.
func TestBodiesAreBounded(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	b := &bodies{now: func() time.Time { return now }}
	name := func(n int) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: fmt.Sprint(n)} }
	put := func(n, size int) {
		b.add(name(n), newBody(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(n)}, Data: map[string][]byte{"key": make([]byte, size)}}))
	}
	const size, many = 1 << 20, limits.SecretBytes>>20 + 20
	for n := range many {
		put(n, size)
		put(n, size) // in place of itself
		b.get(name(0))
		if b.bytes > limits.SecretBytes || b.order.Len() != len(b.byName) {
			t.Fatalf("%d bytes, %d and %d Secrets are kept after %d", b.bytes, b.order.Len(), len(b.byName), n)
		}
	}
	for n, want := range map[int]bool{0: true, 1: false, many - 1: true} {
		if got := b.get(name(n)); (got != nil) != want || got != nil && got.secret.Name != fmt.Sprint(n) {
			t.Errorf("Secret %d is kept: %t, want %t", n, got != nil, want)
		}
	}
	bounds.Holds(t, "Secrets", func(n int) limits.Outcome {
		*b = bodies{now: b.now}
		put(0, 0)
		one := b.bytes
		put(1, n-2*one)
		if b.get(name(1)) == nil {
			t.Errorf("the last one of %d bytes is not kept", n-one)
		}
		if b.get(name(0)) == nil {
			return limits.Dropped
		}
		return limits.Taken
	})
	put(0, limits.SecretBytes)
	if b.get(name(0)) != nil || len(b.byName) != 0 || b.bytes != 0 {
		t.Errorf("%d Secrets of %d bytes are kept beside one that is larger than the bound", len(b.byName), b.bytes)
	}
	put(0, 0)
	if now = now.Add(bodyLife + time.Second); b.get(name(0)) != nil || b.bytes != 0 {
		t.Error("a Secret is kept for too long")
	}
}
