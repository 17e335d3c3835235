package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/fairshare"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/leader/term"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/tracing"
)

// ErrDropped is the outcome of a call that its gate dropped: the call was not sent, and its object decides anew.
var ErrDropped = errors.New("the call was not sent, because it is not wanted any more")

// Lane bounds the calls that go to one place: an ACME account, a credential, a server.
type Lane struct {
	// Name of the lane.
	Name string
	// Limit is how many of its calls one namespace may have under way at once if no other has any; at least 1. All
	// namespaces together may have twice as many, by the rule of package fairshare.
	Limit int
	// Timeout bounds each call; zero means none.
	Timeout time.Duration
	// Bytes is how much memory one call takes at most, by the bounds of its protocol; the same for all calls of a lane.
	// 0 means limits.OneCall.
	Bytes int
}

// Call is one call that leaves the process.
type Call struct {
	// Name tells several calls for one object apart.
	Name string
	// Inputs is a digest of what the call is made with. A call with other inputs replaces the call before: the outcome
	// and the failures of that call then count for nothing.
	Inputs string
	// Lane bounds the call.
	Lane Lane
	// Tenant is the namespace on whose behalf the call is made; empty means that of the object.
	Tenant string
	// Urgency orders the calls in the lane: the highest goes first.
	Urgency int
	// Finish marks a call whose outcome has to be remembered, whatever its inputs are: once it is sent, a call with
	// other inputs waits until it has come back.
	Finish bool
	// Gate says whether to send the call, when its turn has come. A call that is not sent ends with ErrDropped, and its
	// object decides anew. Nil sends the call. Gate MUST be quick and MUST NOT call the engine.
	Gate func(now time.Time) (send bool)
	// Run makes the call. Its context ends after the lane's timeout, with the term, and when the engine stops. A panic
	// in Run is a fault.Panic in the outcome.
	Run func(ctx context.Context) (any, error)
}

// Outcome is what a call came back with. A call with a Value may be repeated all the same, because of Err.
type Outcome struct {
	Value any
	Err   error
	// At is when.
	At time.Time
}

// Problem says what has gone wrong; empty if nothing has.
func (o Outcome) Problem() string {
	if o.Err == nil {
		return ""
	}
	return o.Err.Error()
}

// owner is the object that a call is for.
type owner struct {
	uid  types.UID
	kind string
	name types.NamespacedName
	// wake queues the object.
	wake func()
	// issuance returns the UID of the request that the object is worked on for; nil if its kind is not traced.
	issuance func(ctx context.Context) types.UID
}

// call is a Call on its way.
type call struct {
	Call

	owner    owner
	serial   uint64
	since    time.Time
	started  bool
	finished bool
	// unwanted says that nobody wants the outcome any more.
	unwanted bool
	outcome  Outcome
	// before are the failed tries with the same inputs; nil without one.
	before *tries
	// judged says that before counts the outcome too.
	judged bool
	// seen says that somebody has looked at the outcome.
	seen bool
	// stale says that what it brings may be out of date by the time that it comes.
	stale bool
	// bytes are those of its lane when it was started.
	bytes int
}

// load is how many calls are under way, and how much memory they may take.
type load struct{ calls, bytes int }

// and returns the load with further calls, or with fewer.
func (l load) and(calls, bytes int) load { return load{l.calls + calls, l.bytes + bytes} }

type lane struct {
	limit int
	// bytes is how much memory one call takes at most.
	bytes   int
	running int
	// namespaces says how many calls of each are under way.
	namespaces map[string]int
	// lines are the calls that wait, the oldest first.
	lines map[line][]*call
	// turns says when each namespace last had its turn.
	turns map[string]uint64
}

// line is where calls of one namespace wait.
type line struct {
	urgency   int
	namespace string
}

// Calls makes calls that leave the process, off the workers.
//
// In a lane the more urgent call goes first, then the namespaces take turns, then the older call goes first. Of the
// calls of different lanes, those of the namespace and then of the lane with the fewest calls under way go first.
//
// A server that never answers holds its calls until they time out, and calls are never taken back. So the namespaces
// share two bounds over all lanes, of calls and of their bytes, and in each lane its limit, by the rule of package
// fairshare: however many servers of one namespace are silent, or send as much as they can, others have as many calls
// under way as they need. The lanes of a namespace share its part by the same rule. A namespace without a call under
// way may always start one, so all calls exceed a bound by one for each namespace at most.
//
// After the term no call starts, and those that are under way are cut off, to be made again when the term goes on.
type Calls struct {
	ctx   context.Context //nolint:containedctx // the engine's life, which outlives any caller's context
	total load
	now   func() time.Time
	log   logr.Logger
	spans *tracing.Exporter
	term  *Term

	mu         sync.Mutex
	objects    map[types.UID]map[string]*call
	lanes      map[string]*lane
	namespaces map[string]load
	running    load
	serial     uint64
	// awaits says that somebody waits for the term to go on.
	awaits bool
}

func newCalls(ctx context.Context, o Options) *Calls {
	return &Calls{
		ctx: ctx, total: load{o.CallsAtOnce, limits.CallBytes}, now: o.Now, log: o.Log, spans: o.Spans, term: o.Term,
		objects: map[types.UID]map[string]*call{}, lanes: map[string]*lane{}, namespaces: map[string]load{},
	}
}

// start puts a call into its lane, unless the same one with the same inputs is under way or has finished.
func (c *Calls) start(o owner, wanted Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.objects[o.uid][wanted.Name]; known != nil {
		if known.Inputs == wanted.Inputs || known.finishes() {
			return
		}
		known.unwanted = true
	}
	c.put(o, wanted, nil)
}

// finishes reports whether a call with other inputs has to wait for this one.
func (w *call) finishes() bool { return w.Finish && w.started && !w.finished }

// put is called with the lock held.
func (c *Calls) put(o owner, wanted Call, before *tries) {
	c.serial++
	fresh := &call{Call: wanted, owner: o, serial: c.serial, since: c.now(), before: before}
	if c.objects[o.uid] == nil {
		c.objects[o.uid] = map[string]*call{}
	}
	c.objects[o.uid][wanted.Name] = fresh
	l := c.lanes[wanted.Lane.Name]
	if l == nil {
		l = &lane{lines: map[line][]*call{}, turns: map[string]uint64{}, namespaces: map[string]int{}}
		c.lanes[wanted.Lane.Name] = l
	}
	l.limit, l.bytes = max(wanted.Lane.Limit, 1), cmp.Or(wanted.Lane.Bytes, limits.OneCall)
	in := fresh.line()
	l.lines[in] = append(l.lines[in], fresh)
	if c.fits(l, in.namespace) {
		c.dispatch()
	}
}

// take returns the outcome of a call that has finished, and forgets the call.
func (c *Calls) take(uid types.UID, name string) (Outcome, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.objects[uid][name]
	if known == nil || !known.finished {
		return Outcome{}, false
	}
	c.drop(uid, name)
	return known.outcome, true
}

// last returns the outcome of a call that has finished, and keeps it.
func (c *Calls) last(uid types.UID, name string) (Outcome, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.objects[uid][name]
	if known == nil || !known.finished {
		return Outcome{}, false
	}
	known.seen = true
	return known.outcome, true
}

// forget drops the calls of an object that is gone.
func (c *Calls) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.objects[uid] {
		c.drop(uid, name)
	}
}

// forgetCall drops one call of an object.
func (c *Calls) forgetCall(uid types.UID, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(uid, name)
}

// repeat drops a call that has succeeded, and wakes its object. A call under way is dropped once it has succeeded: the
// other side may have looked before somebody asked to repeat the call.
func (c *Calls) repeat(uid types.UID, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.objects[uid][name]
	switch {
	case known == nil:
	case !known.finished:
		known.stale = known.started
	case known.outcome.Err == nil:
		c.drop(uid, name)
		known.owner.wake()
	}
}

func (c *Calls) drop(uid types.UID, name string) {
	calls := c.objects[uid]
	if known := calls[name]; known != nil {
		known.unwanted = true
	}
	delete(calls, name)
	if len(calls) == 0 {
		delete(c.objects, uid)
	}
}

// dispatch starts every call that may start now. It is called with the lock held.
func (c *Calls) dispatch() {
	for {
		l, next := c.pick()
		if next == nil {
			return
		}
		if c.term.Over() {
			c.dispatchLater()
			return
		}
		l.remove(next)
		if next.Gate != nil && !next.Gate(c.now()) {
			c.finish(next, Outcome{Err: ErrDropped, At: c.now()})
			continue
		}
		c.serial++
		namespace := next.line().namespace
		l.turns[namespace] = c.serial
		l.running++
		l.namespaces[namespace]++
		next.bytes = l.bytes
		c.running = c.running.and(1, next.bytes)
		c.namespaces[namespace] = c.namespaces[namespace].and(1, next.bytes)
		next.started, next.since = true, c.now()
		go c.send(next)
	}
}

// dispatchLater starts what may start then, once the term goes on. It is called with the lock held.
func (c *Calls) dispatchLater() {
	if c.awaits {
		return
	}
	c.awaits = true
	go func() {
		if c.term.Wait(c.ctx) != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.awaits = false
		c.dispatch()
	}()
}

// pick returns the call whose turn it is, and its lane; nil if none may start.
func (c *Calls) pick() (*lane, *call) {
	var from *lane
	var best *call
	for name, l := range c.lanes {
		next := l.next(func(namespace string) bool { return c.fits(l, namespace) })
		if l.running == 0 && len(l.lines) == 0 {
			delete(c.lanes, name)
		}
		if next != nil && (best == nil || c.before(l, next, from, best)) {
			from, best = l, next
		}
	}
	return from, best
}

// fits reports whether the lane, and the bounds over all lanes, leave room for one more call of the namespace in the
// lane.
func (c *Calls) fits(l *lane, namespace string) bool {
	here, all := l.namespaces[namespace], c.namespaces[namespace]
	if !fairshare.May(here, 2*l.limit-l.running, 1) {
		return false
	}
	return all.calls == 0 || leaveRoom(here, all.calls, c.total.calls-c.running.calls, 1) &&
		leaveRoom(here*l.bytes, all.bytes, c.total.bytes-c.running.bytes, l.bytes)
}

// leaveRoom reports whether a namespace that holds all, and here of them in a lane, may have more of what is free.
func leaveRoom(here, all, free, more int) bool {
	return fairshare.May(all, free, more) && fairshare.May(here, (free-all)/2, more)
}

// before orders calls of different lanes: the namespace, and then the lane, with the fewest calls under way goes
// first, then the older call.
func (c *Calls) before(l *lane, a *call, m *lane, b *call) bool {
	return cmp.Or(
		cmp.Compare(c.namespaces[a.line().namespace].calls, c.namespaces[b.line().namespace].calls),
		cmp.Compare(l.running, m.running), cmp.Compare(a.serial, b.serial)) < 0
}

// next returns the call whose turn it is in the lane, of the namespaces that there is room for; nil if there is none.
func (l *lane) next(fits func(namespace string) bool) (next *call) {
	for in, waiting := range l.lines {
		for len(waiting) > 0 && waiting[0].unwanted {
			waiting = waiting[1:]
		}
		if l.lines[in] = waiting; len(waiting) == 0 {
			delete(l.lines, in)
			continue
		}
		first := next == nil || l.before(in, waiting[0].serial, next.line(), next.serial)
		if first && fits(in.namespace) {
			next = waiting[0]
		}
	}
	return next
}

// before orders lines of one lane by who goes first in each.
func (l *lane) before(a line, first uint64, b line, other uint64) bool {
	return cmp.Or(
		cmp.Compare(b.urgency, a.urgency),
		cmp.Compare(l.turns[a.namespace], l.turns[b.namespace]),
		cmp.Compare(first, other)) < 0
}

// remove takes the first call of a line away.
func (l *lane) remove(first *call) {
	in := first.line()
	if l.lines[in] = l.lines[in][1:]; len(l.lines[in]) == 0 {
		delete(l.lines, in)
	}
}

func (w *call) line() line { return line{w.Urgency, cmp.Or(w.Tenant, w.owner.name.Namespace)} }

func (c *Calls) send(w *call) {
	ctx, end := c.term.Within(c.ctx)
	defer end()
	outcome := c.run(ctx, w.Call)
	cut := outcome.Problem() != "" && (c.term.Over() || errors.Is(context.Cause(ctx), term.ErrOver))
	c.trace(w, outcome)
	if log := c.log.V(1); log.Enabled() {
		log.Info("called", "object", objectOf(w.owner.kind, w.owner.name), "step", w.Name, "cause", outcome.Problem(), "took", outcome.At.Sub(w.since).Round(time.Millisecond).String())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l, namespace := c.lanes[w.Lane.Name], w.line().namespace
	l.running--
	if l.namespaces[namespace]--; l.namespaces[namespace] == 0 {
		delete(l.namespaces, namespace)
	}
	c.running = c.running.and(-1, -w.bytes)
	if c.namespaces[namespace] = c.namespaces[namespace].and(-1, -w.bytes); c.namespaces[namespace].calls == 0 {
		delete(c.namespaces, namespace)
	}
	if cut && !w.unwanted {
		c.put(w.owner, w.Call, w.before) // what it has done is found out as after a crash
	} else {
		c.finish(w, outcome)
	}
	c.dispatch()
}

// finish notes the outcome and wakes the object. It is called with the lock held.
func (c *Calls) finish(w *call, outcome Outcome) {
	w.finished, w.outcome = true, outcome
	if w.unwanted {
		return
	}
	if w.stale && outcome.Err == nil {
		c.drop(w.owner.uid, w.Name)
	}
	w.owner.wake()
}

func (c *Calls) run(ctx context.Context, w Call) (o Outcome) {
	defer func() { o.At = c.now() }()
	defer fault.Contain(&o.Err)
	if w.Lane.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.Lane.Timeout)
		defer cancel()
	}
	value, err := w.Run(ctx)
	return Outcome{Value: value, Err: err}
}

// isRunning reports whether a call has been sent, and has not come back.
func (c *Calls) isRunning(uid types.UID, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.objects[uid][name]
	return w != nil && w.started && !w.finished
}

// under returns the names of the calls of a kind for an object that are under way, in order. Two kinds may work on one
// object.
func (c *Calls) under(o owner) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for name, w := range c.objects[o.uid] {
		if !w.finished && w.owner.kind == o.kind {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// all returns the calls that have not finished, in no order.
func (c *Calls) all() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []call
	for _, calls := range c.objects {
		for w := range maps.Values(calls) {
			if !w.finished {
				out = append(out, *w)
			}
		}
	}
	return out
}
