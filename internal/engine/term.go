package engine

import (
	"context"
	"sync"
	"time"

	"chancery.dev/internal/kube/leader/term"
)

// Term is the time for which a process may act. Use NewTerm. A nil Term never ends.
type Term struct {
	now func() time.Time

	mu sync.Mutex
	// since and lasts say until when the term runs; before the first Extend, it has no end.
	since time.Time
	lasts time.Duration
	timer *time.Timer
	// runs ends with the term, by end; goesOn is closed once the term runs again.
	runs    context.Context //nolint:containedctx // the term itself, which outlives any caller's context
	end     context.CancelFunc
	goesOn  chan struct{}
	forGood bool
}

// NewTerm returns a term that runs without end until Extend gives it one.
func NewTerm(now func() time.Time) *Term {
	t := &Term{now: now}
	t.begin()
	return t
}

func (t *Term) begin() {
	t.runs, t.end = context.WithCancel(context.Background())
	t.goesOn = make(chan struct{})
}

// Extend makes the term run for a time that is counted from since. A term that was over runs again.
func (t *Term) Extend(since time.Time, lasts time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forGood {
		return
	}
	t.since, t.lasts = since, lasts
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer = time.AfterFunc(t.left(), func() { t.Over() })
	if t.left() > 0 && t.runs.Err() != nil {
		goesOn := t.goesOn
		t.begin()
		close(goesOn)
	}
}

// End ends the term for good.
func (t *Term) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forGood = true
	t.end()
}

// Ended reports whether the term has ended for good.
func (t *Term) Ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.forGood
}

// left is how long the term still runs, if it has an end. Go's monotonic clock stands still while the machine is
// suspended: with Round the wall clock counts, too.
func (t *Term) left() time.Duration {
	now := t.now()
	return t.lasts - max(now.Sub(t.since), now.Round(0).Sub(t.since.Round(0)))
}

// Over reports whether the process must not act.
func (t *Term) Over() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.judge()
}

// judge reports whether the term is over, and ends what runs in it.
func (t *Term) judge() bool {
	if t.lasts > 0 && t.left() <= 0 {
		t.end()
	}
	return t.runs.Err() != nil
}

// Wait waits until the process may act. It returns an error only if ctx ends first.
func (t *Term) Wait(ctx context.Context) error {
	if t == nil {
		return nil
	}
	for {
		t.mu.Lock()
		over, goesOn := t.judge(), t.goesOn
		t.mu.Unlock()
		if !over {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-goesOn:
		}
	}
}

// Within returns a context that also ends with the term, by term.ErrOver, and in which term.Check finds the term. Call
// the function when the context is not needed any more.
func (t *Term) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	if t == nil {
		return context.WithCancel(ctx)
	}
	t.mu.Lock()
	over, runs := t.judge(), t.runs
	t.mu.Unlock()
	ctx, cancel := context.WithCancelCause(term.With(ctx, t))
	if over {
		cancel(term.ErrOver)
	}
	stop := context.AfterFunc(runs, func() { cancel(term.ErrOver) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
