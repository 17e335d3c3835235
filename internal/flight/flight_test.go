package flight_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/flight"
)

func call(object, lane string, run func(context.Context) (any, error), landed func()) flight.Call {
	return flight.Call{Key: flight.Key{Object: types.UID(object), Call: "x"}, Lane: lane, Run: run, Landed: landed}
}

func TestAskTakesTheOutcomeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flight.New(t.Context(), flight.Options{PerLane: 1})
		var runs, landed atomic.Int32
		c := call("a", "lane", func(context.Context) (any, error) {
			runs.Add(1)
			return 7, errors.New("no")
		}, func() { landed.Add(1) })
		if _, ok := f.Ask(c); ok {
			t.Fatal("an outcome before the call")
		}
		f.Ask(c)
		synctest.Wait()
		if got := runs.Load(); got != 1 {
			t.Fatalf("%d calls made, want 1", got)
		}
		if landed.Load() != 1 {
			t.Fatal("landing was not told")
		}
		out, ok := f.Ask(c)
		if !ok || out.Value != 7 || out.Err == nil {
			t.Fatalf("outcome %+v, %v", out, ok)
		}
		if _, ok := f.Ask(c); ok {
			t.Fatal("the outcome was given twice")
		}
		synctest.Wait()
		if got := runs.Load(); got != 2 {
			t.Fatalf("%d calls made after the outcome was taken, want 2", got)
		}
	})
}

func TestASilentLaneDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := flight.New(ctx, flight.Options{PerLane: 4})
		silent := func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
		for i := range 200 {
			f.Ask(call(fmt.Sprint("silent-", i), "silent", silent, nil))
		}
		healthy := call("healthy", "healthy", func(context.Context) (any, error) { return "ok", nil }, nil)
		f.Ask(healthy)
		synctest.Wait()
		if out, ok := f.Ask(healthy); !ok || out.Value != "ok" {
			t.Fatalf("the healthy call did not land: %+v, %v", out, ok)
		}
		if got := f.InAir(); got != 200 {
			t.Fatalf("%d calls under way, want 200", got)
		}
		cancel()
		synctest.Wait()
		if got := f.InAir(); got != 0 {
			t.Fatalf("%d calls outlived the group", got)
		}
	})
}

func TestALaneIsBoundedAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flight.New(t.Context(), flight.Options{PerLane: 2})
		var inAir, most atomic.Int32
		order := make(chan int, 10)
		for i := range 10 {
			f.Ask(call(fmt.Sprint(i), "lane", func(context.Context) (any, error) {
				order <- i
				most.Store(max(most.Load(), inAir.Add(1)))
				time.Sleep(time.Second)
				inAir.Add(-1)
				return nil, nil
			}, nil))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		if most.Load() != 2 {
			t.Fatalf("%d in the air at once, want 2", most.Load())
		}
		for i := range 10 {
			if got := <-order; got/2 != i/2 {
				t.Fatalf("call %d took off as number %d", got, i)
			}
		}
	})
}

func TestForgetAndTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flight.New(t.Context(), flight.Options{PerLane: 1, Timeout: time.Minute})
		told := false
		forgotten := call("a", "lane", func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }, func() { told = true })
		f.Ask(forgotten)
		waits := call("b", "lane", func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }, nil)
		f.Ask(waits)
		f.Forget("a")
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if told {
			t.Error("a forgotten object was queued")
		}
		if out, ok := f.Ask(waits); !ok || !errors.Is(out.Err, context.DeadlineExceeded) {
			t.Errorf("the call after it: %+v, %v", out, ok)
		}
	})
}

// TestPanic: a bug in one call is the end of that call only, and of nobody who waits behind it.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flight.New(t.Context(), flight.Options{PerLane: 1})
		landed := 0
		wrong := call("a", "lane", func(context.Context) (any, error) { panic("no such thing") }, func() { landed++ })
		right := call("b", "lane", func(context.Context) (any, error) { return 1, nil }, func() { landed++ })
		f.Ask(wrong)
		f.Ask(right)
		synctest.Wait()
		var p *fault.Panic
		if out, ok := f.Ask(wrong); !ok || !errors.As(out.Err, &p) || p.Value != "no such thing" {
			t.Errorf("the call that panicked: %+v, %v", out, ok)
		}
		if out, ok := f.Ask(right); !ok || out.Err != nil || landed != 2 {
			t.Errorf("the call after it: %+v, %v; %d landed", out, ok, landed)
		}
	})
}

func TestTheUrgentGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flight.New(t.Context(), flight.Options{PerLane: 1})
		var order []string
		for _, name := range []string{"a0", "b0", "c2", "d1", "e2", "f0"} {
			c := call(name, "lane", func(context.Context) (any, error) {
				order = append(order, name)
				time.Sleep(time.Second)
				return nil, nil
			}, nil)
			c.Urgency = int(name[1] - '0')
			f.Ask(c)
			synctest.Wait()
		}
		f.Forget("e2")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := fmt.Sprint(order), "[a0 c2 d1 b0 f0]"; got != want {
			t.Errorf("they took off in the order %s, not %s", got, want)
		}
	})
}
