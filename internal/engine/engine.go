package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/tracing"
)

// callsAtOnce bounds the calls of all lanes that are under way at once, unless Options say otherwise. One namespace
// alone has half of them.
const callsAtOnce = limits.Calls

// Options configure an Engine.
type Options struct {
	// Client reads from the cache, own writes included, and writes.
	Client *ownwrites.Client
	// Now is the clock.
	Now func() time.Time
	// Chance spreads retries: it returns numbers in [0,1). Nil means math/rand.
	Chance func() float64
	// CallsAtOnce bounds the calls of all lanes; 0 means 1,024. The namespaces share them.
	CallsAtOnce int
	// Log gets a line for each decision that changes something.
	Log logr.Logger
	// Spans gets the spans of issuances; nil if they are not traced.
	Spans *tracing.Exporter
	// Term is when passes and calls may be made: later ones wait until the term goes on. Nil means always.
	Term *Term
}

// Engine is what all kinds share. Use New.
type Engine struct {
	client *ownwrites.Client
	now    func() time.Time
	chance func() float64
	calls  *Calls
	log    logr.Logger
	spans  *tracing.Exporter
	term   *Term

	progress progress

	mu    sync.Mutex
	kinds []waiter
}

// New returns an engine. Its calls are cancelled when ctx ends.
func New(ctx context.Context, o Options) *Engine {
	if o.CallsAtOnce == 0 {
		o.CallsAtOnce = callsAtOnce
	}
	if o.Chance == nil {
		o.Chance = rand.Float64
	}
	return &Engine{
		client: o.Client, now: o.Now, chance: o.Chance, calls: newCalls(ctx, o), log: o.Log, spans: o.Spans,
		term: o.Term, progress: progress{begun: map[*underWay]struct{}{}},
	}
}

// Repeat drops what a call has brought for an object, and wakes the object to ask again: somebody has seen that the
// answer may not be true any more. A call that has brought nothing is left alone.
func (e *Engine) Repeat(object types.UID, call string) { e.calls.repeat(object, call) }

// UnderWay reports whether a call for an object has been sent, and has not come back: what it does may still happen.
func (e *Engine) UnderWay(object types.UID, call string) bool { return e.calls.isRunning(object, call) }

// Await waits until this process may act. It returns an error only if ctx ends first.
func (e *Engine) Await(ctx context.Context) error { return e.term.Wait(ctx) }

// WriteStatus writes the status of changed, which is a copy of old with another status. It is written as a whole,
// so the API server refuses the write if somebody else has written meanwhile.
func (e *Engine) WriteStatus(ctx context.Context, old, changed client.Object) error {
	patch, err := statusPatch(old, changed)
	if err != nil {
		return err
	}
	if err := e.client.PatchStatus(ctx, changed, patch); err != nil {
		return err
	}
	e.statusSet(ctx, old, changed)
	return nil
}
