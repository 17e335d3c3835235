package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

// rig makes calls for objects by a clock of the bubble.
type rig struct {
	*Calls

	woken atomic.Int32
}

func newRig(t *testing.T, total int) *rig {
	t.Helper()
	e := New(t.Context(), Options{Now: time.Now, CallsAtOnce: total, Chance: func() float64 { return 0.5 }})
	return &rig{Calls: e.calls}
}

func (r *rig) owner(name string) owner {
	namespace, name, _ := cutOwner(name)
	return owner{uid: types.UID(namespace + "/" + name), kind: "things", name: types.NamespacedName{Namespace: namespace, Name: name},
		wake: func() { r.woken.Add(1) }}
}

func cutOwner(name string) (namespace, rest string, found bool) {
	for i := range name {
		if name[i] == '/' {
			return name[:i], name[i+1:], true
		}
	}
	return "default", name, false
}

func (r *rig) do(object, lane string, limit int, run func(context.Context) (any, error)) Call {
	c := Call{Name: "do", Lane: Lane{Name: lane, Limit: limit}, Run: run}
	r.start(r.owner(object), c)
	return c
}

func (r *rig) finished(object string) (Outcome, bool) { return r.take(r.owner(object).uid, "do") }

func silent(ctx context.Context) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAnOutcomeIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		var runs atomic.Int32
		held := make(chan struct{}) // or the call could be back before the test has looked
		run := func(context.Context) (any, error) { <-held; runs.Add(1); return 7, errors.New("no") }
		r.do("a", "lane", 1, run)
		r.do("a", "lane", 1, run)
		if _, ok := r.finished("a"); ok {
			t.Fatal("an outcome before the call")
		}
		close(held)
		synctest.Wait()
		r.do("a", "lane", 1, run) // its outcome has not been taken
		synctest.Wait()
		if runs.Load() != 1 || r.woken.Load() != 1 {
			t.Fatalf("%d runs, woken %d times", runs.Load(), r.woken.Load())
		}
		if o, ok := r.finished("a"); !ok || o.Value != 7 || o.Err == nil {
			t.Fatalf("%+v, %v", o, ok)
		}
		if _, ok := r.finished("a"); ok {
			t.Fatal("the outcome was given twice")
		}
		r.do("a", "lane", 1, run)
		synctest.Wait()
		if runs.Load() != 2 {
			t.Fatalf("%d runs", runs.Load())
		}
	})
}

// TestACallIsUnderWay: once it is sent, and until it is back.
func TestACallIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, back := newRig(t, 0), make(chan struct{})
		r.do("sent", "lane", 1, func(context.Context) (any, error) { <-back; return true, nil })
		r.do("waits", "lane", 1, func(context.Context) (any, error) { return true, nil })
		synctest.Wait()
		is := func(name string) bool { return r.Calls.isRunning(r.owner(name).uid, "do") }
		if !is("sent") || is("waits") || is("unknown") {
			t.Errorf("sent %t, waits %t, unknown %t", is("sent"), is("waits"), is("unknown"))
		}
		close(back)
		synctest.Wait()
		if is("sent") || is("waits") {
			t.Errorf("back: sent %t, waits %t", is("sent"), is("waits"))
		}
	})
}

// TestSilentServersDelayNobodyElse: servers that never answer do not keep the calls of others from being made: those
// of other namespaces, however many servers are silent, and also in a lane that both share; and those of the same
// namespace, where some servers are silent.
func TestSilentServersDelayNobodyElse(t *testing.T) {
	for name, c := range map[string]struct {
		// silent are the calls that never come back, of so many lanes.
		silent, lanes int
		namespace     string
		// underWay is how many of them are made, and took how long 20 calls of a second take beside them.
		underWay int
		took     time.Duration
	}{
		"none": {took: 3 * time.Second}, // 8 at a time
		"of 1,000 servers that another namespace names": {silent: 1_000, lanes: 1_000, namespace: "noisy", underWay: 32, took: 3 * time.Second},
		"of the same server for another namespace":      {silent: 1_000, lanes: 1, namespace: "noisy", underWay: 8, took: 5 * time.Second},
		"of 20 servers that the same namespace names":   {silent: 320, lanes: 20, namespace: "quiet", underWay: 30, took: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 64)
				put := func(object, lane string, urgency int, run func(context.Context) (any, error)) {
					r.start(r.owner(object), Call{Name: "do", Urgency: urgency, Lane: Lane{Name: lane, Limit: 8}, Run: run})
				}
				for n := range c.silent {
					lane := "healthy"
					if c.lanes > 1 {
						lane = fmt.Sprint("silent ", n%c.lanes)
					}
					put(fmt.Sprintf("%s/silent-%d", c.namespace, n), lane, 1, silent)
				}
				synctest.Wait()
				if r.running.calls != c.underWay {
					t.Errorf("%d calls to silent servers are under way, want %d", r.running.calls, c.underWay)
				}
				began := time.Now()
				for n := range 20 {
					put(fmt.Sprintf("quiet/healthy-%d", n), "healthy", 0, func(context.Context) (any, error) {
						time.Sleep(time.Second)
						return nil, nil
					})
				}
				for r.woken.Load() < 20 && time.Since(began) < time.Minute {
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("20 calls took %s, want %s", took, c.took)
				}
			})
		})
	}
}

// TestRoomForTheNextNamespace: namespaces with nothing but silent servers come one after the other. Each new one has
// calls under way at once, and all calls together stay within the bound, but for one of each namespace.
func TestRoomForTheNextNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, namespaces = 64, 30
		r := newRig(t, total)
		for i := range namespaces {
			tenant := fmt.Sprint("tenant-", i)
			for n := range 40 {
				r.start(r.owner(fmt.Sprint("cluster-", i, "-", n)), Call{
					Name: "do", Tenant: tenant, Lane: Lane{Name: fmt.Sprint(i, " ", n), Limit: 1}, Run: silent,
				})
			}
			if r.namespaces[tenant].calls == 0 {
				t.Fatalf("no call of namespace %d is under way", i)
			}
		}
		if r.running.calls > total+namespaces || r.namespaces["tenant-0"].calls != total/2 || r.namespaces["tenant-1"].calls != total/4 {
			t.Errorf("%d calls are under way: %v", r.running.calls, r.namespaces)
		}
	})
}

// TestBytesOfCalls: calls that may take much memory are fewer. One namespace has half of the bytes, the next one half
// of what is left; whoever has no call under way may start one, and what a call has taken is free once it has ended.
func TestBytesOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large = limits.CallBytes / 32
		r := newRig(t, 0)
		run := func(namespace string, n, bytes int) {
			for i := range n {
				r.start(r.owner(fmt.Sprint(namespace, "/", bytes, "-", i)), Call{
					Name: "do", Lane: Lane{Name: fmt.Sprint(namespace, i), Limit: 1, Bytes: bytes, Timeout: time.Minute}, Run: silent,
				})
			}
		}
		run("noisy", 100, large)
		run("next", 100, large)
		run("small", 100, 0)
		want := map[string]load{"noisy": {16, 16 * large}, "next": {8, 8 * large}, "small": {32, 32 * limits.OneCall}}
		if here, all := r.underWay(); !maps.Equal(here, want) || all.bytes > limits.CallBytes {
			t.Errorf("%v are under way, %v in all", here, all)
		}
		run("huge", 2, limits.CallBytes)
		if here, _ := r.underWay(); here["huge"].calls != 1 {
			t.Errorf("%v are under way", here)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if here, all := r.underWay(); all != (load{}) || len(here) != 0 {
			t.Errorf("%v are under way, %v in all, and all calls have ended", here, all)
		}
	})
}

// TestHalfOfTheCalls: one namespace has half of all calls under way, and half of their bytes.
func TestHalfOfTheCalls(t *testing.T) {
	// outcome is what becomes of calls that take so many bytes each.
	outcome := func(bytes ...int) (o limits.Outcome) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, limits.Calls)
			for i, n := range bytes {
				r.start(r.owner(fmt.Sprint("noisy/", i)), Call{Name: "do", Lane: Lane{Name: fmt.Sprint(i), Limit: 1, Bytes: n, Timeout: time.Minute}, Run: silent})
			}
			if here, _ := r.underWay(); here["noisy"].calls < len(bytes) {
				o = limits.Waiting
			} else {
				o = limits.Taken
			}
			time.Sleep(time.Hour)
		})
		return o
	}
	bounds.Holds(t, "calls of a namespace", func(n int) limits.Outcome { return outcome(slices.Repeat([]int{1}, n)...) })
	bounds.Holds(t, "bytes of a namespace's calls", func(n int) limits.Outcome { return outcome(limits.OneCall, n-limits.OneCall) })
}

// underWay returns the calls of each namespace, and of all.
func (r *rig) underWay() (map[string]load, load) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.namespaces), r.running
}

// TestTurnsInALane: the more urgent go first, then the namespaces take turns, then the older goes first.
func TestTurnsInALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		var order []string
		ready := make(chan struct{})
		r.do("other/first", "lane", 1, silent) // of two namespaces, each has one place
		r.do("first", "lane", 1, func(context.Context) (any, error) { <-ready; return nil, nil })
		put := func(object string, urgency int) {
			r.start(r.owner(object), Call{Name: "do", Urgency: urgency, Lane: Lane{Name: "lane", Limit: 1}, Run: func(context.Context) (any, error) {
				order = append(order, object)
				return nil, nil
			}})
		}
		for _, object := range []string{"many/1", "many/2", "many/3", "few/1", "few/2"} {
			put(object, 0)
		}
		put("many/urgent", 1)
		close(ready)
		synctest.Wait()
		if want := []string{"many/urgent", "few/1", "many/1", "few/2", "many/2", "many/3"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}

// TestGate: calls that were decided on before the gate closed are not sent, and their objects decide anew.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		var parked atomic.Bool
		var sent atomic.Int32
		for n := range 50 {
			r.start(r.owner(fmt.Sprintf("order-%d", n)), Call{Name: "do", Lane: Lane{Name: "account", Limit: 2},
				Gate: func(time.Time) bool { return !parked.Load() },
				Run: func(context.Context) (any, error) {
					sent.Add(1)
					time.Sleep(time.Second)
					parked.Store(true) // 429
					return nil, nil
				}})
		}
		time.Sleep(time.Minute)
		if n, woken := sent.Load(), r.woken.Load(); n != 2 || woken != 50 {
			t.Fatalf("%d were sent after the first refusal, %d objects woken", n, woken)
		}
		if o, ok := r.finished("order-40"); !ok || !errors.Is(o.Err, ErrDropped) {
			t.Errorf("one that was not sent: %+v, %v", o, ok)
		}
		parked.Store(false)
		r.do("order-40", "account", 2, func(context.Context) (any, error) { sent.Add(1); return nil, nil })
		synctest.Wait()
		if n := sent.Load(); n != 3 || len(r.lanes) != 0 {
			t.Errorf("%d were sent once the gate was open, %d lanes are kept", n, len(r.lanes))
		}
	})
}

func TestOtherInputsTakeThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		call := func(inputs string) Call {
			return Call{Name: "do", Inputs: inputs, Lane: Lane{Name: "lane", Limit: 2}, Run: func(context.Context) (any, error) {
				time.Sleep(time.Second)
				return inputs, nil
			}}
		}
		r.start(r.owner("a"), call("old"))
		synctest.Wait()
		r.start(r.owner("a"), call("new"))
		time.Sleep(time.Minute)
		if o, ok := r.finished("a"); !ok || o.Value != "new" || r.woken.Load() != 1 {
			t.Errorf("%+v, woken %d times", o, r.woken.Load())
		}
	})
}

// TestForgottenObject: nothing of an object that is gone is started or kept, nor is the object woken.
func TestForgottenObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		hold := make(chan struct{})
		for _, object := range []string{"a", "b"} {
			r.do(object, "lane", 1, func(context.Context) (any, error) { <-hold; return nil, nil })
		}
		synctest.Wait()
		r.forget(r.owner("a").uid)
		r.forget(r.owner("b").uid)
		close(hold)
		synctest.Wait()
		if r.woken.Load() != 0 || len(r.objects) != 0 || len(r.lanes) != 0 || r.running != (load{}) {
			t.Errorf("woken %d times, %d objects, %d lanes, %v under way", r.woken.Load(), len(r.objects), len(r.lanes), r.running)
		}
	})
}

func TestPanicsAndTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		r.do("panics", "lane", 1, func(context.Context) (any, error) { panic("no") })
		r.start(r.owner("silent"), Call{Name: "do", Lane: Lane{Name: "lane", Limit: 1, Timeout: time.Minute}, Run: silent})
		time.Sleep(2 * time.Minute)
		var bug *fault.Panic
		if o, ok := r.finished("panics"); !ok || !errors.As(o.Err, &bug) {
			t.Errorf("%+v, %v", o, ok)
		}
		if o, ok := r.finished("silent"); !ok || !errors.Is(o.Err, context.DeadlineExceeded) {
			t.Errorf("%+v, %v", o, ok)
		}
	})
}

// TestCallsOfAnotherKind: what another kind asks for the same object is not said to be what this one waits for.
func TestCallsOfAnotherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		r.do("a", "lane", 1, silent)
		this := r.owner("a")
		other := this
		other.kind = "notices"
		if mine, theirs := r.under(this), r.under(other); len(mine) != 1 || len(theirs) != 0 {
			t.Errorf("%q and %q", mine, theirs)
		}
	})
}

// BenchmarkQueuedLane is what a call costs while ten thousand others wait for the lane.
func BenchmarkQueuedLane(b *testing.B) {
	e := New(b.Context(), Options{Now: time.Now})
	n := 0
	more := func() {
		n++
		name := types.NamespacedName{Namespace: fmt.Sprint(n % 100), Name: fmt.Sprint(n)}
		e.calls.start(owner{uid: types.UID(name.Name), name: name, wake: func() {}},
			Call{Name: "do", Lane: Lane{Name: "account", Limit: 1}, Run: func(context.Context) (any, error) { return nil, nil }})
	}
	hold := make(chan struct{})
	e.calls.start(owner{uid: "first", wake: func() {}},
		Call{Name: "do", Lane: Lane{Name: "account", Limit: 1}, Run: func(context.Context) (any, error) { <-hold; return nil, nil }})
	for range 10000 {
		more()
	}
	close(hold)
	for b.Loop() {
		more()
	}
}

// TestNoCallAfterTheTerm: after the term of a leader no call is sent and those under way are cut off. Once the term
// goes on, all are made; what was cut off counts neither as a failure nor as an outcome.
func TestNoCallAfterTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewTerm(time.Now)
		r := newRig(t, 0)
		r.term = m
		m.Extend(time.Now(), 10*time.Second)
		var again atomic.Bool
		var mu sync.Mutex
		var sent []string
		run := func(name string) func(context.Context) (any, error) {
			return func(ctx context.Context) (any, error) {
				mu.Lock()
				sent = append(sent, name)
				mu.Unlock()
				if again.Load() {
					return name, nil
				}
				return silent(ctx)
			}
		}
		r.do("asked", "one", 1, run("asked"))
		r.do("started", "two", 1, run("started"))
		r.do("second", "two", 1, run("second"))
		synctest.Wait()
		time.Sleep(time.Hour)
		r.do("late", "three", 1, run("late"))
		synctest.Wait()
		if len(sent) != 2 || r.woken.Load() != 0 {
			t.Fatalf("sent after the term: %v, woken %d times", sent, r.woken.Load())
		}
		again.Store(true)
		m.Extend(time.Now(), time.Hour)
		synctest.Wait()
		slices.Sort(sent)
		if want := []string{"asked", "asked", "late", "second", "started", "started"}; !slices.Equal(sent, want) {
			t.Errorf("sent %v, want %v", sent, want)
		}
		for _, name := range []string{"asked", "started", "second", "late"} {
			if o, ok := r.finished(name); !ok || o.Err != nil || o.Value != name {
				t.Errorf("%s: %+v, %v", name, o, ok)
			}
		}
	})
}
