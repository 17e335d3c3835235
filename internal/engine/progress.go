package engine

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// passLimit is how long a pass may ask the API server. Calls to others are no part of a pass.
	passLimit = 2 * time.Minute
	// stuckAfter is when a pass that has not ended never will.
	stuckAfter = 5 * time.Minute
)

// progress knows the passes that are under way.
type progress struct {
	mu    sync.Mutex
	begun map[*underWay]struct{}
}

type underWay struct {
	kind  string
	name  types.NamespacedName
	since time.Time
}

// begin notes that a pass is under way until end is called.
func (e *Engine) begin(kind string, name types.NamespacedName) (end func()) {
	u := &underWay{kind: kind, name: name, since: e.now()}
	e.progress.mu.Lock()
	defer e.progress.mu.Unlock()
	e.progress.begun[u] = struct{}{}
	return func() {
		e.progress.mu.Lock()
		defer e.progress.mu.Unlock()
		delete(e.progress.begun, u)
	}
}

// Stuck returns an error that names a pass that has been under way for longer than a pass can take; nil if there is
// none. A pass whose requests to the API server are not answered ends, and is repeated: it is not stuck. So only a new
// process helps against a stuck pass.
func (e *Engine) Stuck() error {
	now := e.now()
	e.progress.mu.Lock()
	defer e.progress.mu.Unlock()
	for u := range e.progress.begun {
		if took := now.Sub(u.since); took >= stuckAfter {
			return fmt.Errorf("the work on %s %s is not finished after %s: please report this as a bug", u.kind, u.name, took.Round(time.Second))
		}
	}
	return nil
}
