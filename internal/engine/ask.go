package engine

import (
	"time"

	"chancery.dev/internal/fault"
)

// Answer is the state of a call that the engine repeats until it succeeds.
type Answer struct {
	// Given says that the call has succeeded.
	Given bool
	// Value is what the call has brought, once Given.
	Value any
	// Err is how the last try with these inputs failed; nil if none has.
	Err error
	// Failures is how many tries in a row have failed with the same class. A try that was not sent (fault.Unsent)
	// leaves the count as it is.
	Failures int
	// Until is when the next try is made; zero while one is under way, and if only other inputs help: after a
	// fault.Terminal, and after a fault.Pending.
	Until time.Time
}

// tries is what is known of the failed tries of a call.
type tries struct {
	err      error
	class    fault.Class
	failures int
	until    time.Time
}

// ask returns how a call stands, and makes the next try where one is due. A success is kept until the call is
// forgotten, or asked for with other inputs.
func (c *Calls) ask(o owner, wanted Call, jitter float64) Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.objects[o.uid][wanted.Name]
	switch {
	case known == nil:
		c.put(o, wanted, nil)
		return Answer{}
	case known.Inputs != wanted.Inputs && known.finishes():
		return Answer{}
	case known.Inputs != wanted.Inputs && known.Finish && known.finished && !known.seen:
		// The call has come back since the pass began: the next pass looks at what the call has brought.
		known.seen = true
		known.owner.wake()
		return Answer{}
	case known.Inputs != wanted.Inputs:
		known.unwanted = true
		c.put(o, wanted, nil)
		return Answer{}
	case !known.finished:
		return known.before.answer()
	case known.outcome.Err == nil:
		known.seen = true
		return Answer{Given: true, Value: known.outcome.Value}
	case known.outcome.Err == ErrDropped: //nolint:errorlint // the engine itself has put it there
		c.put(o, wanted, known.before)
		return known.before.answer()
	}
	known.seen = true
	if !known.judged {
		known.judged = true
		known.before = known.before.failed(known.outcome, jitter)
	}
	if until := known.before.until; until.IsZero() || c.now().Before(until) {
		a := known.before.answer()
		a.Until = until
		return a
	}
	c.put(o, wanted, known.before)
	return known.before.answer()
}

// failed returns what is known after one more try has failed.
func (t *tries) failed(o Outcome, jitter float64) *tries {
	out := &tries{err: o.Err, failures: 1}
	f := fault.Of(o.Err)
	if f != nil {
		out.class = f.Class
	}
	switch {
	case t == nil:
	case f != nil && f.Unsent:
		out.class, out.failures = t.class, t.failures
	case t.class == out.class:
		out.failures = t.failures + 1
	}
	if wait := BackOff(o.Err, out.failures, jitter); wait > 0 {
		out.until = o.At.Add(wait)
	}
	return out
}

// answer says how the last try has failed.
func (t *tries) answer() Answer {
	if t == nil {
		return Answer{}
	}
	return Answer{Err: t.err, Failures: t.failures}
}

// BackOff is how long to wait after the given number of failures in a row (1 for the first), by the table of package
// fault; zero if the error says that no repetition helps, or that an event has to come first. Jitter in [0,1) spreads
// objects that have failed together, and those that were asked to wait for longer than the table of patience obeys.
func BackOff(err error, failures int, jitter float64) time.Duration {
	f := fault.Of(err)
	switch {
	case f == nil:
		return fault.Calls.With("").Wait(0, failures, jitter)
	case f.Kind == fault.KindTerminal, f.Kind == fault.KindPending:
		return 0
	default:
		return fault.Calls.With(f.Class).Wait(f.Delay, failures, jitter)
	}
}
