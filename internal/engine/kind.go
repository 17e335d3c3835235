package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/when"
)

const (
	// stepsPerPass bounds how many decisions one pass carries out: every kind waits for an event after fewer.
	stepsPerPass = 8
	// nextPass is when an object goes on that has used them up.
	nextPass = time.Second
	// maxUnkept is how many writes of a status in a row may change nothing before the object waits as after one that
	// was refused.
	maxUnkept = 2
)

// Kind says how the objects of one kind are worked on. O is the kind, M is what is remembered of an object while
// the process lives, S is what is observed, and A what is decided.
type Kind[O client.Object, M, S, A any] struct {
	// Name names the kind in the list of waits.
	Name string
	// New returns an empty object.
	New func() O
	// Absent asks for decisions about objects that do not exist, too: Observe then gets an empty object with the name,
	// and without a UID. No calls can be made for it. Plan.Done forgets it.
	Absent bool
	// Events records events about the objects, or about what About returns for them, if it is not nil.
	Events record.EventRecorder
	About  func(object O) *corev1.ObjectReference
	// Observe gathers what the decision needs, from caches and from the memory.
	Observe func(ctx context.Context, p *Pass[O, M]) (S, error)
	// Decide is pure.
	Decide func(s S, now time.Time) A
	// Plan says what the decision means.
	Plan func(ctx context.Context, p *Pass[O, M], s S, a A) (Plan, error)
	// Refused returns the event that says that the API server refuses a step of the plan: a right is missing, or a rule
	// forbids what was written. The event is emitted once. The step is tried again after minutes, since no watch tells
	// that a right is granted. With nil, the step is tried again as after any other error.
	Refused func(p *Pass[O, M], err error) Event
	// TooLarge returns a stub (package stub) with a status that says, in the words of said, that the object is a stub;
	// nil if the status says so already. If TooLarge is nil, or the status is not known, only an event says so.
	TooLarge func(object O, said string) client.Object
	// Traced says how the objects belong to issuances; nil if they do not.
	Traced *Traced
	// Gone is told of an object that does not exist any more, or for which another one by its name has come; may be
	// nil.
	Gone func(name types.NamespacedName, uid types.UID)
}

// Plan is what to do for an object, in the order of the fields.
type Plan struct {
	// First is done before the status is written; may be nil.
	First func(ctx context.Context) error
	// Status is a copy of the object with another status, to be written; nil if the status stays.
	Status client.Object
	// Then is done after the status is written; may be nil.
	Then func(ctx context.Context) error
	// Events to emit.
	Events []Event
	// Again decides once more at once.
	Again bool
	// Waits says what the object waits for then.
	Waits For
	// Wake is when to decide again without any event; zero for never.
	Wake time.Time
	// Failure is interpreted last: a fault says when to decide again, any other error is retried with back-off.
	Failure error
	// Done forgets what is remembered of the object.
	Done bool
}

// Event is an event to emit.
type Event struct {
	// Warning tells Warning from Normal.
	Warning bool
	// Reason is a CamelCase word, Message for people.
	Reason, Message string
}

// Pass is one look at an object.
type Pass[O client.Object, M any] struct {
	// Object as it is, own writes included. It MUST NOT be changed.
	Object O
	// Memory is what was remembered. Only this pass reads and writes it.
	Memory *M
	// Retry is how long to wait before the step is tried again, and Kind.Refused may set it; zero for minutes.
	Retry time.Duration

	engine *Engine
	owner  owner
	logged *passLog
	events record.EventRecorder
	about  *corev1.ObjectReference
}

// TakeOutcome returns the outcome of a call that has come back, and forgets the call.
func (p *Pass[O, M]) TakeOutcome(name string) (Outcome, bool) {
	return p.engine.calls.take(p.owner.uid, name)
}

// LastOutcome returns the outcome of a call that has come back, whatever its inputs were, and keeps it. It is for
// outcomes that have to be stored before the call is made again.
func (p *Pass[O, M]) LastOutcome(name string) (Outcome, bool) {
	return p.engine.calls.last(p.owner.uid, name)
}

// Ask makes a call, repeats it with back-off until it succeeds, and returns how it stands. A success is kept until
// Forget, or until the call is asked for with other inputs.
func (p *Pass[O, M]) Ask(call Call) Answer {
	return p.engine.calls.ask(p.owner, call, p.engine.chance())
}

// Start makes a call, unless the same one is under way, has an untaken outcome, or has to wait (Call.Finish).
func (p *Pass[O, M]) Start(call Call) { p.engine.calls.start(p.owner, call) }

// Forget drops a call and its outcome.
func (p *Pass[O, M]) Forget(name string) { p.engine.calls.forgetCall(p.owner.uid, name) }

// Tell emits an event about the object, for what a step of a plan finds out.
func (p *Pass[O, M]) Tell(e Event) { p.tell(p.Object, e) }

func (p *Pass[O, M]) tell(object client.Object, e Event) {
	about := runtime.Object(object)
	if p.about != nil {
		about = p.about
	}
	Emit(p.events, about, e)
	p.logged.addCause(e.Message, e.Reason)
}

// Chance returns a number in [0,1).
func (p *Pass[O, M]) Chance() float64 { return p.engine.chance() }

// Runner runs the objects of a kind: it is the reconciler of a controller, and a source of it.
type Runner[O client.Object, M, S, A any] struct {
	doorbell

	kind   Kind[O, M, S, A]
	engine *Engine

	// passes is held for reading by each pass.
	passes sync.RWMutex

	mu      sync.Mutex
	objects map[types.NamespacedName]*remembered[M]
	// begun counts Restarts.
	begun int
}

// remembered is what is known of an object.
type remembered[M any] struct {
	uid    types.UID
	begun  int // Runner.begun of that time
	memory M
	wait   Wait
	// refused is what was last said of a refusal.
	refused string
	// conflicts are the passes in a row whose write came second, unkept the status writes in a row without a change.
	conflicts, unkept int
}

// Run returns the Runner of a kind, whose waits the engine lists from now on.
func Run[O client.Object, M, S, A any](e *Engine, kind Kind[O, M, S, A]) *Runner[O, M, S, A] {
	r := &Runner[O, M, S, A]{kind: kind, engine: e, objects: map[types.NamespacedName]*remembered[M]{}}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kinds = append(e.kinds, r)
	return r
}

// Reconcile waits until this process may act. Then it works on an object until the object has to wait.
func (r *Runner[O, M, S, A]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.engine.Await(ctx); err != nil {
		return reconcile.Result{}, nil
	}
	defer r.engine.begin(r.kind.Name, req.NamespacedName)()
	r.passes.RLock()
	defer r.passes.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, passLimit)
	defer cancel()
	return r.reconcile(ctx, req)
}

// Finish makes the last passes of the process: once the passes under way have ended, it makes passes over each object
// that is remembered, for as long as more wants another one. Err is the error of the pass before.
func (r *Runner[O, M, S, A]) Finish(ctx context.Context, more func(name types.NamespacedName, m *M, err error) bool) {
	r.passes.Lock()
	defer r.passes.Unlock()
	r.mu.Lock()
	all := maps.Clone(r.objects)
	r.mu.Unlock()
	for name, known := range all {
		var err error
		for more(name, &known.memory, err) {
			_, err = r.reconcile(ctx, reconcile.Request{NamespacedName: name})
		}
	}
}

// Restart makes a pass over each object that is remembered, which begins without what is remembered of it: what this
// process may do has changed. Passes under way go on.
func (r *Runner[O, M, S, A]) Restart() {
	r.mu.Lock()
	r.begun++
	names := slices.Collect(maps.Keys(r.objects))
	r.mu.Unlock()
	for _, name := range names {
		r.Ring(name)
	}
}

func (r *Runner[O, M, S, A]) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	told := &passLog{namespace: req.Namespace}
	ctx = withLogState(ctx, told)
	for range stepsPerPass {
		object := r.kind.New()
		err := r.engine.client.Get(ctx, req.NamespacedName, object)
		switch {
		case apierrors.IsNotFound(err) && r.kind.Absent:
			object = r.kind.New()
			object.SetNamespace(req.Namespace)
			object.SetName(req.Name)
		case apierrors.IsNotFound(err):
			r.forget(req.NamespacedName)
			r.logPass(told, owner{kind: r.kind.Name, name: req.NamespacedName}, Wait{}, For{}, nil)
			return reconcile.Result{}, nil
		case err != nil:
			return reconcile.Result{}, err
		}
		known := r.remember(req.NamespacedName, object)
		p := &Pass[O, M]{
			Object: object, Memory: &known.memory, engine: r.engine, owner: r.owner(object), logged: told, events: r.kind.Events,
		}
		if r.kind.About != nil {
			p.about = r.kind.About(object)
		}
		if Paused(object) {
			return r.rest(known, p.owner, told, Plan{Waits: For{What: WaitEvent, Detail: "paused by the annotation " + cmmeta.PausedAnnotation}}, nil)
		}
		plan, err := r.step(ctx, p, known)
		if err == nil && plan.Again && !plan.Done {
			continue
		}
		if err == nil {
			err = plan.Failure
		}
		return r.rest(known, p.owner, told, plan, err)
	}
	r.engine.line(r.kind.Name, req.NamespacedName, told, "soon", nil)
	return reconcile.Result{RequeueAfter: nextPass}, nil
}

// IsIgnored reports whether nothing is done for an object: it is paused, or a stub. An object that is being deleted is
// finished, or its finalizers would keep it for ever.
func IsIgnored(object client.Object) bool {
	return Paused(object) || stub.Is(object) && object.GetDeletionTimestamp() == nil
}

// Paused reports whether somebody wants an object to be left alone (cmmeta.PausedAnnotation), and it is not being
// deleted.
func Paused(object client.Object) bool {
	_, is := object.GetAnnotations()[cmmeta.PausedAnnotation]
	return is && object.GetDeletionTimestamp() == nil
}

// step observes, decides and acts once.
func (r *Runner[O, M, S, A]) step(ctx context.Context, p *Pass[O, M], known *remembered[M]) (Plan, error) {
	plan, large := r.tooLarge(p, known)
	var err error
	if !large {
		var state S
		if state, err = r.kind.Observe(ctx, p); err != nil {
			return Plan{}, err
		}
		plan, err = r.kind.Plan(ctx, p, state, r.kind.Decide(state, r.engine.now()))
	}
	if err == nil {
		err = r.write(ctx, p, plan)
	}
	switch {
	case errors.Is(err, ErrDecideAgain), ownwrites.IsGone(err) && !r.exists(ctx, p.Object):
		return Plan{Again: true}, nil
	case err != nil:
		return Plan{}, r.refused(p, known, err)
	}
	plan = r.stopUnkept(p, known, plan)
	object := client.Object(p.Object)
	if plan.Status != nil {
		object = plan.Status
	}
	for _, e := range plan.Events {
		p.tell(object, e)
	}
	if plan.Done {
		r.forget(client.ObjectKeyFromObject(object))
	}
	return plan, nil
}

// tooLarge returns what is done for a stub instead of what its kind would do: it says so. False for any other object.
func (r *Runner[O, M, S, A]) tooLarge(p *Pass[O, M], known *remembered[M]) (Plan, bool) {
	said := stub.TooLarge(p.Object)
	if said == "" || !IsIgnored(p.Object) {
		return Plan{}, false
	}
	plan := Plan{Waits: For{What: WaitEvent, Detail: said}}
	if r.kind.TooLarge != nil && stub.HasStatus(p.Object) {
		plan.Status = r.kind.TooLarge(p.Object, said)
	}
	if known.refused != said {
		known.refused = said
		plan.Events = []Event{{Warning: true, Reason: stub.Reason, Message: said}}
	}
	return plan, true
}

// stopUnkept makes an object wait whose status the API server does not keep: a field that the definition of the kind
// does not have is dropped in silence, and would be written again and again.
func (r *Runner[O, M, S, A]) stopUnkept(p *Pass[O, M], known *remembered[M], plan Plan) Plan {
	if plan.Status == nil {
		return plan
	}
	if plan.Status.GetResourceVersion() != p.Object.GetResourceVersion() {
		known.unkept = 0
		return plan
	}
	if known.unkept++; known.unkept >= maxUnkept && plan.Again {
		plan.Again, plan.Events = false, nil
		plan.Failure = fault.After(fault.WatchedWrites.With("").First, "StatusNotKept", "the API server does not keep the status of %s %s/%s: are the "+
			"custom resource definitions older than the controller? Run chancery install",
			r.kind.Name, p.Object.GetNamespace(), p.Object.GetName())
	}
	return plan
}

// exists reports whether an object is still there. After a write of the object that the API server has not found, it is
// not, whatever the watch shows.
func (r *Runner[O, M, S, A]) exists(ctx context.Context, object O) bool {
	now := r.kind.New()
	err := r.engine.client.Get(ctx, client.ObjectKeyFromObject(object), now)
	return !apierrors.IsNotFound(err) && (err != nil || now.GetUID() == object.GetUID())
}

// ErrDecideAgain is the error of a step of a plan that could not be taken, and has left the reason in the memory. The
// engine decides on the object anew at once.
var ErrDecideAgain = errors.New("the object is to be decided anew")

// write takes the steps of a plan that write.
func (r *Runner[O, M, S, A]) write(ctx context.Context, p *Pass[O, M], plan Plan) error {
	if plan.First != nil {
		if err := plan.First(ctx); err != nil {
			return err
		}
	}
	if plan.Status != nil {
		if err := r.engine.WriteStatus(ctx, p.Object, plan.Status); err != nil {
			return err
		}
		r.overNow(ctx, p.Object, plan.Status)
	}
	if plan.Then != nil {
		return plan.Then(ctx)
	}
	return nil
}

// refused says, once, that the API server refuses what an object needs. Any other error is returned as it is.
func (r *Runner[O, M, S, A]) refused(p *Pass[O, M], known *remembered[M], err error) error {
	if r.kind.Refused == nil || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return err
	}
	e := r.kind.Refused(p, err)
	if known.refused != e.Message {
		known.refused = e.Message
		p.Tell(e)
	}
	return fault.After(cmp.Or(p.Retry, fault.WatchedWrites.With("").First), e.Reason, "%s", e.Message)
}

// rest notes what the object waits for, and says when it is looked at again.
func (r *Runner[O, M, S, A]) rest(known *remembered[M], o owner, told *passLog, plan Plan, failure error) (reconcile.Result, error) {
	result, err := interpret(failure)
	if apierrors.IsConflict(failure) {
		result.RequeueAfter = fault.Conflicts.With("").Step(known.conflicts + 1)
		known.conflicts++
	} else {
		known.conflicts = 0
	}
	wait := Wait{Kind: o.kind, Namespace: o.name.Namespace, Name: o.name.Name, For: plan.Waits}
	now := r.engine.now()
	switch {
	case err != nil:
		wait.For = For{What: WaitBackOff, Detail: err.Error()}
	default:
		if failure != nil && wait.What == WaitNothing {
			wait.For = For{What: WaitEvent, Detail: failure.Error()}
			if result.RequeueAfter > 0 {
				wait.What = WaitTime
			}
		}
		if result.RequeueAfter > 0 {
			wait.Until = now.Add(result.RequeueAfter)
		}
		if wait.Until = when.Earliest(wait.Until, plan.Wake); !wait.Until.IsZero() {
			result.RequeueAfter = max(wait.Until.Sub(now), time.Millisecond)
		}
	}
	before := r.waitsNow(known, wait, now)
	r.logPass(told, o, wait, before, err)
	if err != nil {
		err = &Logged{err}
	}
	return result, err
}

// waitsNow notes what an object waits for now, and returns what the object waited for before.
func (r *Runner[O, M, S, A]) waitsNow(known *remembered[M], wait Wait, now time.Time) (before For) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, wait.Since = known.wait.For, now
	if before == wait.For {
		wait.Since = known.wait.Since
	}
	known.wait = wait
	return before
}

// interpret says what follows from the error of a pass, the only place that does: a fault says itself what is next,
// a write that came second is decided anew, and any other error is retried with back-off by the queue.
func interpret(err error) (reconcile.Result, error) {
	f := fault.Of(err)
	switch {
	case err == nil:
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: fault.Conflicts.With("").First}, nil
	case f == nil:
		return reconcile.Result{}, err
	case f.Kind == fault.KindAfter:
		return reconcile.Result{RequeueAfter: max(f.Delay, time.Millisecond)}, nil
	default:
		return reconcile.Result{}, nil
	}
}

// Emit records an event about an object.
func Emit(recorder record.EventRecorder, object runtime.Object, e Event) {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	recorder.Event(object, kind, e.Reason, clip(e.Message))
}

// clip returns the beginning of a message that would be too long for an event, and the link in it whole.
func clip(message string) string { return fault.Cut(message, limits.EventBytes) }

func (r *Runner[O, M, S, A]) owner(object O) owner {
	name := client.ObjectKeyFromObject(object)
	o := owner{uid: object.GetUID(), kind: r.kind.Name, name: name, wake: func() { r.Ring(name) }}
	if r.engine.spans != nil && r.kind.Traced != nil {
		o.issuance = func(ctx context.Context) types.UID { return r.kind.Traced.Issuance(ctx, object) }
	}
	return o
}

// remember returns what is known of an object. Another one by the same name starts anew, as all do after a Restart.
func (r *Runner[O, M, S, A]) remember(name types.NamespacedName, object O) *remembered[M] {
	r.mu.Lock()
	known := r.objects[name]
	if known != nil && known.uid == object.GetUID() && known.begun == r.begun {
		r.mu.Unlock()
		return known
	}
	fresh := &remembered[M]{uid: object.GetUID(), begun: r.begun}
	r.objects[name] = fresh
	r.mu.Unlock()
	if known != nil {
		r.gone(name, known.uid)
	}
	return fresh
}

// forget drops an object.
func (r *Runner[O, M, S, A]) forget(name types.NamespacedName) {
	r.mu.Lock()
	known := r.objects[name]
	delete(r.objects, name)
	r.mu.Unlock()
	if known != nil {
		r.gone(name, known.uid)
	}
}

func (r *Runner[O, M, S, A]) gone(name types.NamespacedName, uid types.UID) {
	r.engine.calls.forget(uid)
	if r.kind.Gone != nil {
		r.kind.Gone(name, uid)
	}
}
