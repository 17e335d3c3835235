package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/limits"
)

// errand is a kind for tests: a Pod whose name is asked for outside, until its phase says the answer.
type errand struct {
	engine *Engine
	runner *Runner[*corev1.Pod, int, string, Plan]
	store  client.WithWatch
	events *record.FakeRecorder
	gone   []types.UID
	run    func(context.Context) (any, error)
	// shown is what the watch shows instead of what is stored; nil for what is stored.
	shown *corev1.Pod
	// refusal is what the API server answers to a write of a status; nil for what it does.
	refusal error
	// drops says that the API server takes statuses, and does not keep them.
	drops  bool
	writes int
}

var podName = types.NamespacedName{Namespace: "ns", Name: "pod"}

func newErrand(t *testing.T) *errand {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: podName.Namespace, Name: podName.Name, UID: "1"}}
	e := &errand{events: record.NewFakeRecorder(10)}
	e.store = fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod).WithStatusSubresource(pod).Build()
	api := interceptor.NewClient(e.store, interceptor.Funcs{Get: e.get, SubResourcePatch: e.patchStatus})
	e.engine = New(t.Context(), Options{Client: ownwrites.New(api, time.Now), Now: time.Now, Chance: func() float64 { return 0.5 }})
	e.runner = Run(e.engine, Kind[*corev1.Pod, int, string, Plan]{
		Name: "pods", New: func() *corev1.Pod { return &corev1.Pod{} }, Events: e.events,
		Observe: func(_ context.Context, p *Pass[*corev1.Pod, int]) (string, error) {
			*p.Memory++
			return string(p.Object.Status.Phase), nil
		},
		Decide: func(phase string, _ time.Time) Plan { return Plan{Done: phase == "Done"} },
		Plan:   e.plan,
		Gone:   func(_ types.NamespacedName, uid types.UID) { e.gone = append(e.gone, uid) },
	})
	return e
}

func (e *errand) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if pod, ok := obj.(*corev1.Pod); ok && e.shown != nil {
		e.shown.DeepCopyInto(pod)
		return nil
	}
	return c.Get(ctx, key, obj)
}

func (e *errand) patchStatus(
	ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption,
) error {
	e.writes++
	if e.refusal != nil || e.drops {
		return e.refusal
	}
	return c.SubResource(sub).Patch(ctx, obj, patch)
}

func (e *errand) plan(_ context.Context, p *Pass[*corev1.Pod, int], _ string, plan Plan) (Plan, error) {
	if plan.Done {
		return plan, nil
	}
	a := p.Ask(Call{Name: "ask", Lane: Lane{Name: "server", Limit: 1, Timeout: time.Minute}, Run: e.run})
	switch {
	case a.Given:
		changed := p.Object.DeepCopy()
		changed.Status.Phase = corev1.PodPhase(fmt.Sprint(a.Value))
		return Plan{Status: changed, Events: []Event{{Reason: "Answered", Message: "yes"}}, Again: true}, nil
	case a.Err != nil:
		return Plan{Waits: For{What: WaitTime, Detail: a.Err.Error()}, Wake: a.Until}, nil //nolint:nilerr // it is waited for
	default:
		return Plan{}, nil
	}
}

func (e *errand) pass(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: podName})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return result
}

// TestFromCallToStatus walks one object through a failed call, its back-off, a success, and the status that follows,
// and reads off the list of waits where it is.
func TestFromCallToStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newErrand(t)
		answer := make(chan error)
		e.run = func(context.Context) (any, error) { return "Done", <-answer }
		began := time.Now()
		waits := func() string {
			var lines []string
			for _, w := range e.engine.Waits() {
				until := "an event"
				if !w.Until.IsZero() {
					until = w.Until.Sub(began).String()
				}
				lines = append(lines, fmt.Sprintf("%s %s/%s %s %s until %s", w.Kind, w.Namespace, w.Name, w.What, w.Detail, until))
			}
			return strings.Join(lines, "\n")
		}
		e.pass(t)
		if got, want := waits(), "pods ns/pod Call ask until 1m0s"; got != want {
			t.Errorf("while the call is under way: %q, want %q", got, want)
		}
		answer <- fault.ClassUnavailable.After(7*time.Second, "Down", "connection refused")
		synctest.Wait()
		if result := e.pass(t); result.RequeueAfter != 7*time.Second {
			t.Errorf("after a failure: %+v", result)
		}
		if got, want := waits(), "pods ns/pod Time connection refused until 7s"; got != want {
			t.Errorf("after a failure: %q, want %q", got, want)
		}
		time.Sleep(7 * time.Second)
		e.pass(t)
		answer <- nil
		synctest.Wait()
		if result := e.pass(t); !result.IsZero() {
			t.Errorf("at the end: %+v", result)
		}
		pod := &corev1.Pod{}
		if err := e.store.Get(t.Context(), podName, pod); err != nil || pod.Status.Phase != "Done" {
			t.Errorf("phase %q, %v", pod.Status.Phase, err)
		}
		if got := waits(); got != "" || len(e.runner.objects) != 0 || len(e.events.Events) != 1 {
			t.Errorf("at the end: waits %q, %d objects, %d events", got, len(e.runner.objects), len(e.events.Events))
		}
	})
}

// TestPaused: an object that somebody has paused is left alone until the annotation is removed, or the object is
// being deleted.
func TestPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newErrand(t)
		asked := 0
		e.run = func(context.Context) (any, error) { asked++; return "Done", nil }
		annotate := func(annotations map[string]string) {
			pod := &corev1.Pod{}
			if err := e.store.Get(t.Context(), podName, pod); err != nil {
				t.Fatal(err)
			}
			pod.Annotations = annotations
			if err := e.store.Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		annotate(map[string]string{cmmeta.PausedAnnotation: ""})
		if result := e.pass(t); asked != 0 || !result.IsZero() {
			t.Errorf("paused: asked %d times, and looked at again after %s", asked, result.RequeueAfter)
		}
		if w := e.engine.Waits(); len(w) != 1 || w[0].What != WaitEvent || !strings.Contains(w[0].Detail, "paused") {
			t.Errorf("paused: the list of waits is %+v", w)
		}
		annotate(nil)
		if e.pass(t); asked != 1 {
			t.Errorf("without the annotation: asked %d times, want once", asked)
		}
		now := metav1.Now()
		dying := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cmmeta.PausedAnnotation: ""}, DeletionTimestamp: &now}}
		if Paused(dying) {
			t.Error("an object that is being deleted is paused: its finalizers would keep it for ever")
		}
	})
}

// TestStub: nothing is done for an object that is too large, and one event says why. One that is being deleted is
// finished.
func TestStub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newErrand(t)
		asked, now := 0, metav1.Now()
		e.run = func(context.Context) (any, error) { asked++; return "Done", nil }
		large := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: podName.Namespace, Name: podName.Name, UID: "1", Labels: map[string]string{"a": strings.Repeat("x", limits.ObjectBytes)},
		}}
		if _, err := stub.Bound(cache.TransformStripManagedFields())(large); err != nil {
			t.Fatal(err)
		}
		e.shown = large
		e.pass(t)
		e.pass(t)
		if w := e.engine.Waits(); asked != 0 || len(e.events.Events) != 1 || len(w) != 1 || !strings.Contains(w[0].Detail, "memory") || !IsIgnored(large) {
			t.Errorf("asked %d times, %d events, waits %+v", asked, len(e.events.Events), w)
		}
		large.DeletionTimestamp = &now
		if e.pass(t); asked != 1 || IsIgnored(large) {
			t.Errorf("being deleted: asked %d times, want once", asked)
		}
	})
}

// TestStubWithoutStatus: a stub whose status was dropped gets no other one, which would replace what is stored.
func TestStubWithoutStatus(t *testing.T) {
	fill := strings.Repeat("x", limits.ObjectBytes)
	for known, large := range map[bool]*corev1.Pod{
		true:  {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": fill}}, Status: corev1.PodStatus{HostIP: "192.0.2.1"}},
		false: {Status: corev1.PodStatus{HostIP: "192.0.2.1", Message: fill}},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newErrand(t)
			e.runner.kind.TooLarge = func(pod *corev1.Pod, said string) client.Object {
				pod = pod.DeepCopy()
				pod.Status.Reason = said
				return pod
			}
			large.Namespace, large.Name, large.UID = podName.Namespace, podName.Name, "1"
			if _, err := stub.Bound(cache.TransformStripManagedFields())(large); err != nil {
				t.Fatal(err)
			}
			e.shown = large
			e.pass(t)
			if known != (e.writes == 1) || len(e.events.Events) != 1 {
				t.Errorf("the status is known: %t, %d writes, %d events", known, e.writes, len(e.events.Events))
			}
		})
	}
}

// TestGone: an object that is gone, and one that another by its name has replaced, are forgotten with their calls.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newErrand(t)
		e.run = func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
		e.pass(t)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: podName.Namespace, Name: podName.Name}}
		if err := e.store.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: podName.Namespace, Name: podName.Name, UID: "2"}}
		if err := e.store.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		e.pass(t)
		if known := e.runner.objects[podName]; known == nil || known.memory != 1 || known.uid != "2" {
			t.Errorf("the second one: %+v", known)
		}
		if err := e.store.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		e.pass(t)
		time.Sleep(2 * time.Minute)
		if !slices.Equal(e.gone, []types.UID{"1", "2"}) || len(e.runner.objects)+len(e.engine.calls.objects) != 0 {
			t.Errorf("gone: %q, %d objects and %d calls are kept", e.gone, len(e.runner.objects), len(e.engine.calls.objects))
		}
	})
}

// TestTheServerSaysThatItIsGone: an object that a write does not find is forgotten, though the watch has not shown that
// it is gone, and may never do. A server that does not know the kind at all says nothing of the object.
func TestTheServerSaysThatItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newErrand(t)
		e.run = func(context.Context) (any, error) { return "Done", nil }
		e.pass(t)
		before := e.stale(t)
		if err := e.store.Delete(t.Context(), before.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		unserved := apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", schema.GroupResource{Resource: "pods"},
			podName.Name, "404 page not found", 0, true)
		e.refusal = unserved
		if _, err := e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: podName}); !errors.Is(err, unserved) || len(e.gone) > 0 {
			t.Errorf("the kind is not served: %v; gone: %q", err, e.gone)
		}
		e.refusal = nil
		if result := e.pass(t); !result.IsZero() {
			t.Errorf("gone: %+v", result)
		}
		if !slices.Equal(e.gone, []types.UID{"1"}) || len(e.runner.objects)+len(e.engine.calls.objects) != 0 {
			t.Errorf("gone: %q, %d objects and %d calls are kept", e.gone, len(e.runner.objects), len(e.engine.calls.objects))
		}
	})
}

// stale makes the watch show the object as it is now for ever, and returns it.
func (e *errand) stale(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := e.store.Get(t.Context(), podName, pod); err != nil {
		t.Fatal(err)
	}
	e.shown = pod
	return pod
}

// TestAbsent: a kind that asks for it decides for an object that does not exist, remembers it, makes it, and starts
// anew with the object that exists then.
func TestAbsent(t *testing.T) {
	e := newErrand(t)
	absent := types.NamespacedName{Namespace: podName.Namespace, Name: "absent"}
	wanted := false
	e.runner.kind.Absent = true
	e.runner.kind.Plan = func(_ context.Context, p *Pass[*corev1.Pod, int], _ string, _ Plan) (Plan, error) {
		switch {
		case p.Object.UID != "":
			return Plan{}, nil
		case wanted:
			made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Object.Namespace, Name: p.Object.Name, UID: "made"}}
			return Plan{First: func(ctx context.Context) error { return e.store.Create(ctx, made) }, Again: true}, nil
		default:
			return Plan{Done: *p.Memory == 2}, nil
		}
	}
	for _, want := range []int{1, 0} {
		if _, err := e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: absent}); err != nil {
			t.Fatal(err)
		}
		if got := len(e.runner.objects); got != want {
			t.Errorf("%d objects are remembered, want %d", got, want)
		}
	}
	wanted = true
	if _, err := e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: absent}); err != nil {
		t.Fatal(err)
	}
	if known := e.runner.objects[absent]; known == nil || known.uid != "made" || known.memory != 1 {
		t.Errorf("after it was made: %+v", known)
	}
}

// TestFailedPass: what fails is in the list of waits, too.
func TestFailedPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, failure := range map[What]error{
			WaitBackOff: errors.New("the cache is broken"),
			WaitTime:    fault.After(time.Minute, "Taken", "the name is taken"),
			WaitEvent:   fault.Pending("Terminating", "the namespace goes"),
		} {
			e := newErrand(t)
			e.runner.kind.Observe = func(context.Context, *Pass[*corev1.Pod, int]) (string, error) { return "", failure }
			result, err := e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: podName})
			if (err != nil) != (want == WaitBackOff) || (result.RequeueAfter > 0) != (want == WaitTime) {
				t.Errorf("%v: %+v, %v", failure, result, err)
			}
			if w := e.engine.Waits(); len(w) != 1 || w[0].What != want || w[0].Detail != failure.Error() {
				t.Errorf("%v: %+v", failure, w)
			}
		}
	})
}

// TestRefused: what the API server refuses is said once for each cause, and tried again later.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newErrand(t)
		var refusal error
		e.runner.kind.Refused = func(_ *Pass[*corev1.Pod, int], err error) Event {
			return Event{Warning: true, Reason: "Refused", Message: err.Error()}
		}
		e.runner.kind.Plan = func(context.Context, *Pass[*corev1.Pod, int], string, Plan) (Plan, error) {
			return Plan{First: func(context.Context) error { return refusal }}, nil
		}
		pods := schema.GroupResource{Resource: "pods"}
		for _, cause := range []string{"no", "no", "never"} {
			refusal = fmt.Errorf("store: %w", apierrors.NewForbidden(pods, "pod", errors.New(cause)))
			if result := e.pass(t); result.RequeueAfter != fault.WatchedWrites.With("").First {
				t.Errorf("%s: %+v", cause, result)
			}
			if w := e.engine.Waits(); len(w) != 1 || w[0].What != WaitTime || w[0].Detail != refusal.Error() || w[0].Until.IsZero() {
				t.Errorf("%s: waits %+v", cause, w)
			}
		}
		if n := len(e.events.Events); n != 2 {
			t.Errorf("%d events, want one for each cause", n)
		}
		refusal = errors.New("the API server is away")
		if _, err := e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: podName}); !errors.Is(err, refusal) {
			t.Errorf("%v is no refusal", err)
		}
	})
}

// TestConflictsInARow: a pass whose write comes second is repeated soon, and later and later while the watch does not
// show what came first.
func TestConflictsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newErrand(t)
		e.run = func(context.Context) (any, error) { return "Done", nil }
		e.refusal = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "pod", errors.New("somebody was faster"))
		e.pass(t)
		var total time.Duration
		first := e.pass(t).RequeueAfter
		for range 19 {
			total += e.pass(t).RequeueAfter
		}
		if first > 100*time.Millisecond || total < time.Minute || total > 5*time.Minute {
			t.Errorf("the second try after %s, twenty in %s", first, total)
		}
		e.refusal = nil
		e.pass(t)
		if pod := (&corev1.Pod{}); e.store.Get(t.Context(), podName, pod) != nil || pod.Status.Phase != "Done" {
			t.Errorf("phase %q once nobody is faster", pod.Status.Phase)
		}
	})
}

// TestStatusThatIsNotKept: a status that the API server takes and drops is not written again and again, and the list of
// waits says what to do.
func TestStatusThatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newErrand(t)
		e.run = func(context.Context) (any, error) { return "Done", nil }
		e.drops = true
		e.pass(t)
		for began := time.Now(); time.Since(began) < time.Hour; {
			time.Sleep(e.pass(t).RequeueAfter)
		}
		if e.writes > 20 {
			t.Errorf("%d writes in an hour", e.writes)
		}
		if waits := e.engine.Waits(); len(waits) != 1 || !strings.Contains(waits[0].Detail, "chancery install") {
			t.Errorf("waits %+v", waits)
		}
		e.drops = false
		e.pass(t)
		if pod := (&corev1.Pod{}); e.store.Get(t.Context(), podName, pod) != nil || pod.Status.Phase != "Done" {
			t.Errorf("phase %q once the status is kept", pod.Status.Phase)
		}
	})
}

// TestAnew: a step that could not be taken leaves the reason in the memory, and the next decision goes by that at once.
func TestAnew(t *testing.T) {
	e := newErrand(t)
	steps := 0
	e.runner.kind.Plan = func(_ context.Context, p *Pass[*corev1.Pod, int], _ string, _ Plan) (Plan, error) {
		if *p.Memory > 10 {
			return Plan{Wake: time.Now().Add(time.Hour)}, nil
		}
		step := func(context.Context) error { steps++; *p.Memory = 10; return fmt.Errorf("store: %w", ErrDecideAgain) }
		return Plan{First: step, Events: []Event{{Reason: "Stored"}}}, nil
	}
	result, err := e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: podName})
	if err != nil || steps != 1 || result.RequeueAfter < 59*time.Minute || len(e.events.Events) != 0 {
		t.Errorf("%d steps, %+v, %d events", steps, result, len(e.events.Events))
	}
}

// TestLastPasses: the last passes of the process begin when the others have ended, and end when nobody wants more.
func TestLastPasses(t *testing.T) {
	e := newErrand(t)
	began, underWay, failure := make(chan struct{}, 3), make(chan struct{}), errors.New("no")
	e.runner.kind.Plan = func(context.Context, *Pass[*corev1.Pod, int], string, Plan) (Plan, error) {
		began <- struct{}{}
		<-underWay
		return Plan{}, failure
	}
	go func() { _, _ = e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: podName}) }()
	<-began
	var ended atomic.Bool
	var seen []string
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		e.runner.Finish(t.Context(), func(name types.NamespacedName, passes *int, err error) bool {
			if !ended.Load() {
				t.Error("a pass was under way")
			}
			seen = append(seen, fmt.Sprint(name, " ", *passes, " ", err))
			return *passes < 3
		})
	}()
	for range 1000 {
		goruntime.Gosched() // a Finish that did not wait would begin
	}
	ended.Store(true)
	close(underWay)
	<-finished
	if want := []string{"ns/pod 1 <nil>", "ns/pod 2 no", "ns/pod 3 no"}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

// TestOneLineForWhatChanges: a pass that changes something has one line, and one that changes nothing has none. A
// failure has a line for each new cause: an error, unless the failure is transient.
func TestOneLineForWhatChanges(t *testing.T) {
	synctest.Test(t, testOneLineForWhatChanges)
}

func testOneLineForWhatChanges(t *testing.T) {
	e := newErrand(t)
	var said []string
	e.engine.log = funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{})
	e.run = func(context.Context) (any, error) { return "Done", nil }
	expect := func(when string, err error, want ...string) {
		t.Helper()
		said = nil
		e.refusal = err
		_, got := e.runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: podName})
		var logged *Logged
		if (err != nil) != errors.As(got, &logged) || len(said) != min(len(want), 1) {
			t.Errorf("%s: %v, %q", when, got, said)
			return
		}
		for _, word := range want {
			if !strings.Contains(said[0], word) {
				t.Errorf("%s: %s, and not %s", when, said[0], word)
			}
		}
	}
	expect("a call is made", nil)
	synctest.Wait()
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "pod", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	expect("the namespace goes", terminating, `"level"=0`, `"object"="pods ns/pod"`, `"next"="soon"`, "forbidden")
	expect("the namespace still goes", terminating)
	expect("a bug", errors.New("broken"), `"error"=null`, "broken")
	expect("the same bug", errors.New("broken"))
	expect("another bug", errors.New("broken, too"), "broken, too")
	expect("it is written", nil, `"level"=0`, `"step"="set status phase=Done"`, `"next"="nothing"`)
	expect("nothing is to be done", nil)
}

// TestNoPassAfterTheTerm: after the term of a leader, passes wait until the term goes on, and are not taken for stuck.
func TestNoPassAfterTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newErrand(t)
		e.run = func(context.Context) (any, error) { return "Done", nil }
		m := NewTerm(time.Now)
		e.engine.term = m
		m.Extend(time.Now(), time.Second)
		time.Sleep(time.Second)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			e.pass(t)
		}()
		time.Sleep(time.Hour)
		if err := e.engine.Stuck(); err != nil || len(e.runner.objects) > 0 {
			t.Fatalf("stuck: %v, %d objects looked at", err, len(e.runner.objects))
		}
		m.Extend(time.Now(), time.Hour)
		<-ended
		if len(e.runner.objects) != 1 {
			t.Errorf("%d objects looked at", len(e.runner.objects))
		}
	})
}
