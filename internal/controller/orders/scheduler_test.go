package orders

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/schedule"
)

// bench is a scheduler over an API server whose watch stands still until it is told to go on, and on whose clock
// nothing is over until it is told so.
type bench struct {
	*scheduler

	t     *testing.T
	store client.Client
	// patched is called before the API server does a write of a status; an error that is not after it is instead of it.
	patched func(*acmev1.Challenge) (err error, after bool)
	// answered is called after the API server has done a write of a status, and before its answer comes.
	answered func(*acmev1.Challenge)

	mu     sync.Mutex
	seenAt map[client.ObjectKey]*acmev1.Challenge
	now    time.Time
	waits  chan wait
}

// wait is something that the scheduler asks of the clock.
type wait struct {
	of   time.Duration
	over func()
}

func newBench(t *testing.T, limit int, names ...string) *bench {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, seenAt: map[client.ObjectKey]*acmev1.Challenge{}, now: time.Unix(1_800_000_000, 0), waits: make(chan wait, 100)}
	b.store = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&acmev1.Challenge{}).Build()
	cached := interceptor.NewClient(b.store.(client.WithWatch), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			return b.cached(key, obj)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			var failure error
			after := true
			if b.patched != nil {
				failure, after = b.patched(obj.(*acmev1.Challenge))
			}
			if failure != nil && !after {
				return failure
			}
			failure = errors.Join(failure, c.SubResource(sub).Patch(ctx, obj, p, opts...))
			if b.answered != nil {
				b.answered(obj.(*acmev1.Challenge))
			}
			return failure
		},
	})
	d := &controller.Deps{Manager: manager{reader: b.store}, Client: ownwrites.New(cached, b.Now), Now: b.Now, Clock: b}
	d.Engine = engine.New(t.Context(), engine.Options{Client: d.Client, Now: b.Now})
	b.scheduler = newScheduler(d, acmeflow.Settings{}, schedule.Options{Cap: limit})
	b.listening = synced{}
	b.mayNotStart = func(context.Context, *acmev1.Challenge) (string, error) { return "", nil }
	for _, name := range names {
		b.create(name)
	}
	return b
}

// create makes a Challenge, and has the watch show it.
func (b *bench) create(name string) {
	b.t.Helper()
	c := &acmev1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: acmev1.ChallengeSpec{DNSName: name + ".example.com"}}
	if err := b.store.Create(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}
	b.catchUp(name)
}

type manager struct {
	ctrl.Manager

	reader client.Reader
}

func (m manager) GetAPIReader() client.Reader { return m.reader }

type synced struct {
	toolscache.ResourceEventHandlerRegistration
}

func (synced) HasSynced() bool { return true }

// Now implements controller.Clock.
func (b *bench) Now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// AfterFunc implements controller.Clock.
func (b *bench) AfterFunc(d time.Duration, f func()) (stop func()) {
	b.waits <- wait{d, f}
	return func() {}
}

// Queue implements controller.Clock.
func (b *bench) Queue(string, controller.Limiter) controller.Queue { return nil }

func (b *bench) cached(key client.ObjectKey, obj client.Object) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.seenAt[key]
	if c == nil {
		return apierrors.NewNotFound(acmev1.SchemeGroupVersion().WithResource("challenges").GroupResource(), key.Name)
	}
	c.DeepCopyInto(obj.(*acmev1.Challenge))
	return nil
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "ns", Name: name} }

// stored is a Challenge as the API server has it.
func (b *bench) stored(name string) *acmev1.Challenge {
	b.t.Helper()
	c := &acmev1.Challenge{}
	if err := b.store.Get(b.t.Context(), key(name), c); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// catchUp makes the watch show a Challenge as it is.
func (b *bench) catchUp(name string) {
	b.t.Helper()
	c := b.stored(name)
	b.mu.Lock()
	b.seenAt[key(name)] = c
	b.mu.Unlock()
	b.seen(b.t.Context(), c, false)
}

// step makes a pass, and writes all of it. It returns what was decided.
func (b *bench) step() (decided []string) {
	b.t.Helper()
	pass, _ := b.pass(b.t.Context())
	for _, d := range pass.Decisions {
		decided = append(decided, fmt.Sprint(d.Outcome, " ", d.Name))
		b.write(b.t.Context(), d)
	}
	return decided
}

func (b *bench) expect(what string, got []string, want ...string) {
	b.t.Helper()
	if !slices.Equal(got, want) {
		b.t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

// TestWhoWaitsForASlotIsListed: one that waits for a slot says what for, and until when if that is known.
func TestWhoWaitsForASlotIsListed(t *testing.T) {
	b := newBench(t, 1, "c1", "c2", "c3")
	later := b.now.Add(time.Hour)
	b.decided(t.Context(), b.stored("c3"), challenge.Action{NotBefore: later})
	b.step()
	b.Engine.List(b.scheduler.waits)
	var got []string
	for _, w := range b.Engine.Waits() {
		got = append(got, fmt.Sprintf("%s %s %s %s %v", w.Kind, w.Name, w.What, w.Detail, w.Until.Equal(later)))
	}
	b.expect("who waits", got,
		"Challenge c2 Slot as many Challenges are in flight as may be false", "Challenge c3 Slot there is nothing to do before then true")
}

// TestPausedHoldsNoSlot: a Challenge that is paused gives its slot away, and is not started before it goes on.
func TestPausedHoldsNoSlot(t *testing.T) {
	b := newBench(t, 1, "c1", "c2")
	b.expect("first", b.step(), "Starting c1")
	annotate := func(annotations map[string]string) {
		c := b.stored("c1")
		c.Annotations = annotations
		if err := b.store.Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		b.catchUp("c1")
	}
	annotate(map[string]string{cmmeta.PausedAnnotation: ""})
	b.expect("paused while another waits", b.step(), "Parking c1")
	b.expect("the slot is free", b.step(), "Starting c2")
	b.goes("c2")
	b.expect("paused, with a free slot", b.step())
	annotate(nil)
	b.expect("it goes on", b.step(), "Starting c1")
}

// TestALaggingWatchUndoesNothing: what the scheduler has written counts from the answer on, though the watch shows
// something older; a Challenge that is gone gives its slot away though a write of it was never shown.
func TestALaggingWatchUndoesNothing(t *testing.T) {
	b := newBench(t, 1, "c1", "c2")
	b.expect("first", b.step(), "Starting c1")
	old := b.seenAt[key("c1")]
	b.seen(t.Context(), old, false)
	b.expect("the watch lags behind", b.step())
	b.decided(t.Context(), old, challenge.Action{Yield: true})
	b.expect("decided on an older state", b.step())
	b.goes("c1")
	b.expect("the first is gone", b.step(), "Starting c2")
}

// TestALateAnswerBringsNothingBack: the answer to a write may come after the watch has shown that the Challenge is
// gone.
func TestALateAnswerBringsNothingBack(t *testing.T) {
	b := newBench(t, 1, "c1", "c2")
	b.step()
	late := b.stored("c1")
	late.DeletionTimestamp, late.Finalizers = &metav1.Time{Time: b.now}, []string{"chancery.dev/test"}
	answer := overtaken{challenge: late, before: func() { b.goes("c1") }}
	if err := b.Client.Live(t.Context(), answer, key("c1"), &acmev1.Challenge{}); err != nil {
		t.Fatal(err)
	}
	b.decided(t.Context(), late, challenge.Action{})
	b.expect("the first is gone", b.step(), "Starting c2")
}

// TestGoneBeforeTheAnswer: the watch shows that a Challenge is gone before the scheduler's own write of it is answered.
func TestGoneBeforeTheAnswer(t *testing.T) {
	b := newBench(t, 1, "c1", "c2")
	b.answered = func(c *acmev1.Challenge) {
		if c.Name == "c1" {
			b.goes("c1")
		}
	}
	b.expect("first", b.step(), "Starting c1")
	b.expect("the first is gone", b.step(), "Starting c2")
}

// TestTheServerSaysThatAChallengeIsGone: what only the memory of own writes has keeps no slot once the API server has
// said that it is not there.
func TestTheServerSaysThatAChallengeIsGone(t *testing.T) {
	b := newBench(t, 1, "c1", "c2")
	b.expect("first", b.step(), "Starting c1")
	first := b.stored("c1")
	if err := b.store.Delete(t.Context(), first.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	b.decided(t.Context(), first, challenge.Action{Yield: true})
	b.expect("one waits", b.step(), "Parking c1")
	b.expect("there is nothing to park", b.step(), "Starting c2")
}

// goes lets somebody delete a Challenge, and the watch show that.
func (b *bench) goes(name string) {
	b.t.Helper()
	c := b.stored(name)
	if err := b.store.Delete(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	delete(b.seenAt, key(name))
	b.mu.Unlock()
	c.ResourceVersion += "0" // to be gone is a version, too: a later one
	b.seen(b.t.Context(), c, true)
}

// overtaken reads one Challenge, and something happens before the answer comes.
type overtaken struct {
	client.Reader

	challenge *acmev1.Challenge
	before    func()
}

func (o overtaken) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	o.before()
	o.challenge.DeepCopyInto(obj.(*acmev1.Challenge))
	return nil
}

// TestASlotIsFreeOnceTheAnswerIsThere: parking is written before anybody else starts.
func TestASlotIsFreeOnceTheAnswerIsThere(t *testing.T) {
	b := newBench(t, 1, "c1", "c2")
	b.step()
	b.catchUp("c1")
	b.decided(t.Context(), b.stored("c1"), challenge.Action{Yield: true})
	b.patched = func(*acmev1.Challenge) (error, bool) {
		pass, _ := b.pass(t.Context())
		if len(pass.Decisions) > 0 {
			t.Errorf("before the answer %v is decided", pass.Decisions)
		}
		return nil, false
	}
	b.expect("one waits", b.step(), "Parking c1")
	b.patched = nil
	b.expect("the slot is free", b.step(), "Starting c2")
}

// TestALostAnswerIsLookedUp: after a write whose answer was lost, nobody gets the slot before the API server has said
// whether the write was done.
func TestALostAnswerIsLookedUp(t *testing.T) {
	for _, done := range []bool{true, false} {
		b := newBench(t, 1, "c1", "c2")
		writes := 0
		b.patched = func(*acmev1.Challenge) (error, bool) {
			writes++
			return context.DeadlineExceeded, done
		}
		b.expect("first", b.step(), "Starting c1")
		b.patched = func(*acmev1.Challenge) (error, bool) { writes++; return nil, false }
		b.expect("nobody knows", b.step())
		b.now = b.now.Add(2 * time.Second)
		b.expect("it is looked up", b.step(), "Starting c1")
		b.now = b.now.Add(2 * time.Second)
		b.expect("it is known", b.step())
		want := map[bool]int{true: 1, false: 2}[done]
		if c := b.stored("c1"); writes != want || !c.Status.Processing {
			t.Errorf("done %v: %d writes, want %d; %+v", done, writes, want, c.Status)
		}
	}
}

// TestALostWriteMayComeLate: it is done just before the next one for the same, which is then refused. That is no
// answer.
func TestALostWriteMayComeLate(t *testing.T) {
	b := newBench(t, 1, "c1", "c2")
	b.patched = func(*acmev1.Challenge) (error, bool) { return context.DeadlineExceeded, false }
	b.expect("first", b.step(), "Starting c1")
	b.patched = func(*acmev1.Challenge) (error, bool) {
		c := b.stored("c1")
		c.Status = challenge.Start(c.Status)
		if err := b.store.Status().Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return nil, false
	}
	b.now = b.now.Add(2 * time.Second)
	b.expect("it is looked up", b.step(), "Starting c1")
	b.patched = nil
	b.expect("nobody knows yet", b.step())
	b.now = b.now.Add(2 * time.Second)
	b.expect("it is looked up again", b.step(), "Starting c1")
	b.now = b.now.Add(2 * time.Second)
	b.expect("it was done", b.step())
}

// TestARefusalIsAnAnswer: what the API server refuses holds up nobody else.
func TestARefusalIsAnAnswer(t *testing.T) {
	b := newBench(t, 1, "c1", "c2")
	b.patched = func(c *acmev1.Challenge) (error, bool) {
		if c.Name == "c1" {
			return apierrors.NewConflict(acmev1.SchemeGroupVersion().WithResource("challenges").GroupResource(), c.Name, errors.New("late")), false
		}
		return nil, false
	}
	b.expect("first", b.step(), "Starting c1")
	b.expect("it was refused", b.step(), "Starting c2")
}

// TestAPanicOverAChallengeIsContained: the process goes on, and so do the other Challenges.
func TestAPanicOverAChallengeIsContained(t *testing.T) {
	b := newBench(t, 2, "c1", "c2")
	b.patched = func(c *acmev1.Challenge) (error, bool) {
		if c.Name == "c1" {
			panic("no such thing")
		}
		return nil, false
	}
	b.step()
	if !b.stored("c2").Status.Processing {
		t.Error("the other one was not started")
	}
	b.queue = nil
	b.catchUp("c1") // panics inside
	if pass, _ := b.pass(t.Context()); len(pass.Decisions) > 0 {
		t.Error("something is decided without a queue")
	}
}

// TestChangesAreLookedAtTogether: the first change has a pass at once; those that come while the scheduler rests have
// one pass together.
func TestChangesAreLookedAtTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 10, "c1", "c2", "c3")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Start(ctx) }()
		rest := func(started ...string) func() {
			t.Helper()
			synctest.Wait()
			if len(b.waits) != 1 {
				t.Fatalf("%d passes, want one, and a rest", len(b.waits))
			}
			for _, name := range started {
				if !b.stored(name).Status.Processing {
					t.Errorf("%s is not started", name)
				}
			}
			w := <-b.waits
			if w.of <= 0 || w.of > time.Millisecond {
				t.Errorf("it rests for %s", w.of)
			}
			return w.over
		}
		over := rest("c1", "c2", "c3")
		b.create("c4")
		b.create("c5")
		synctest.Wait()
		over()
		over = rest("c4", "c5")
		over() // the answers to its own writes are changes, too
		over = rest()
		over()
		synctest.Wait()
		if len(b.waits) > 0 {
			t.Error("a pass, and nothing has changed")
		}
		b.create("c6")
		rest("c6")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestASlowWriteHoldsUpNobody: passes go on while the API server takes its time over a write.
func TestASlowWriteHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 10, "c1")
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		b.patched = func(c *acmev1.Challenge) (error, bool) {
			if c.Name == "c1" {
				<-release
			}
			return nil, false
		}
		done := make(chan error, 1)
		go func() { done <- b.Start(ctx) }()
		synctest.Wait() // the first is being written
		b.create("c2")
		for synctest.Wait(); len(b.waits) > 0; synctest.Wait() {
			(<-b.waits).over()
		}
		if !b.stored("c2").Status.Processing || b.stored("c1").Status.Processing {
			t.Error("the second waits for the first")
		}
		close(release)
		synctest.Wait()
		if !b.stored("c1").Status.Processing {
			t.Error("the first is not started")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRouteClass(t *testing.T) {
	class, infra, set := "public", gwapiv1.Namespace("infra"), gwapiv1.Kind("ListenerSet")
	ingress := func(in acmev1.HTTP01IngressSolver) *acmev1.HTTP01Solver { return &acmev1.HTTP01Solver{Ingress: &in} }
	gateway := func(refs ...gwapiv1.ParentReference) *acmev1.HTTP01Solver {
		return &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{ParentRefs: refs}}
	}
	for want, http := range map[string]*acmev1.HTTP01Solver{
		"":                      nil,
		"the default class":     ingress(acmev1.HTTP01IngressSolver{}),
		"class public":          ingress(acmev1.HTTP01IngressSolver{IngressClassName: &class}),
		"Ingress shop/site":     ingress(acmev1.HTTP01IngressSolver{Name: "site"}),
		"Gateway shop/gw":       gateway(gwapiv1.ParentReference{Name: "gw"}),
		"Gateway infra/gw":      gateway(gwapiv1.ParentReference{Name: "gw", Namespace: &infra}, gwapiv1.ParentReference{Name: "other"}),
		"ListenerSet infra/set": gateway(gwapiv1.ParentReference{Name: "set", Namespace: &infra, Kind: &set}),
	} {
		c := &acmev1.Challenge{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop"},
			Spec:       acmev1.ChallengeSpec{Solver: acmev1.ACMEChallengeSolver{HTTP01: http}},
		}
		if got := routeClass(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	older := &acmev1.Challenge{Spec: acmev1.ChallengeSpec{Solver: acmev1.ACMEChallengeSolver{HTTP01: ingress(acmev1.HTTP01IngressSolver{Class: &class})}}}
	if got := routeClass(older); got != "class public" {
		t.Errorf("by annotation: %q", got)
	}
}
