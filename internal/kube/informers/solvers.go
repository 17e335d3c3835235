package informers

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"weak"

	toolscache "k8s.io/client-go/tools/cache"

	acmev1 "chancery.dev/api/acme/v1"
)

// solvers are those parts of the solvers of Challenges that may be large. Equal ones are kept once, as long as a
// Challenge has them.
type solvers struct {
	mu sync.Mutex
	// known has weak pointers to them, by the digest of their type and JSON.
	known map[[sha256.Size]byte]any
}

// ShareSolvers returns a cache.TransformFunc that keeps equal solvers of the Challenges that next returns once. A
// tenant chooses the size of a solver, and the Challenge for each name has a copy.
func ShareSolvers(next toolscache.TransformFunc) toolscache.TransformFunc {
	return (&solvers{known: map[[sha256.Size]byte]any{}}).transform(next)
}

func (s *solvers) transform(next toolscache.TransformFunc) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		obj, err := next(obj)
		if c, ok := obj.(*acmev1.Challenge); ok && err == nil {
			of := &c.Spec.Solver
			of.Selector, of.DNS01, of.HTTP01 = shared(s, of.Selector), shared(s, of.DNS01), shared(s, of.HTTP01)
		}
		return obj, err
	}
}

// shared returns the part that is known and equal to another one, or notes this one.
func shared[T any](s *solvers, part *T) *T {
	text, err := json.Marshal(part)
	if part == nil || err != nil {
		return part
	}
	digest := sha256.Sum256(fmt.Appendf(text, "%T", part))
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[digest].(weak.Pointer[T]); ok {
		if same := known.Value(); same != nil {
			return same
		}
	}
	noted := weak.Make(part)
	s.known[digest] = noted
	runtime.AddCleanup(part, func(digest [sha256.Size]byte) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.known[digest] == any(noted) { // and not another one since
			delete(s.known, digest)
		}
	}, digest)
	return part
}
