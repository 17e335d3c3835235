package route

import (
	"fmt"
	"testing"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

// TestClassesAreBounded: a tenant names a new class for each Ingress.
func TestClassesAreBounded(t *testing.T) {
	r := &Router{implementationSpecific: map[string]bool{}}
	for n := range 2 * limits.IngressClasses {
		r.learn(fmt.Sprint(n))
	}
	if got := len(r.implementationSpecific); got != limits.IngressClasses || !r.implementationSpecific["0"] {
		t.Errorf("%d classes are remembered", got)
	}
	bounds.Holds(t, "classes", func(n int) limits.Outcome {
		r := &Router{implementationSpecific: map[string]bool{}}
		for i := range n {
			r.learn(fmt.Sprint(i))
		}
		return bounds.Without(n, len(r.implementationSpecific))
	})
}
