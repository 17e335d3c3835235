package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"chancery.dev/internal/fault"
)

func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		var tries int
		var err error
		ask := func(inputs string) Answer {
			a := r.ask(r.owner("a"), Call{Name: "sign", Inputs: inputs, Lane: Lane{Name: "vault", Limit: 1},
				Run: func(context.Context) (any, error) { tries++; return inputs, err }}, 0.5)
			synctest.Wait()
			return a
		}
		unavailable := fault.ClassUnavailable.After(0, "Down", "connection refused")
		err = unavailable
		if a := ask("spec"); a.Given || a.Err != nil {
			t.Fatalf("before the first try: %+v", a)
		}
		wait := time.Second
		for failures := 1; failures <= 12; failures++ {
			a := ask("spec")
			if a.Given || !errors.Is(a.Err, unavailable) || a.Failures != failures || time.Until(a.Until) != wait || tries != failures {
				t.Fatalf("failure %d: %+v in %s after %d tries, want %s", failures, a, time.Until(a.Until), tries, wait)
			}
			time.Sleep(wait)
			if a := ask("spec"); a.Given || !errors.Is(a.Err, unavailable) || !a.Until.IsZero() {
				t.Fatalf("while the next try is made: %+v", a)
			}
			wait = min(2*wait, 48*time.Second)
		}
		err = nil
		if a := ask("changed"); a.Given || a.Err != nil {
			t.Fatalf("failures with other inputs count: %+v", a)
		}
		tries = 0
		for range 3 {
			if a := ask("changed"); !a.Given || a.Value != "changed" || tries != 0 {
				t.Fatalf("%+v after %d more tries", a, tries)
			}
		}
		r.forgetCall(r.owner("a").uid, "sign")
		if a := ask("changed"); a.Given || tries != 1 {
			t.Fatalf("after it was forgotten: %+v, %d tries", a, tries)
		}
	})
}

// TestUnsentIsNoFailure: a try that was not sent, because the other side has asked to be left alone, does not begin the
// back-off anew.
func TestUnsentIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		var err error
		ask := func() Answer {
			a := r.ask(r.owner("a"), Call{Name: "revoke", Lane: Lane{Name: "ca"}, Run: func(context.Context) (any, error) { return nil, err }}, 0.5)
			synctest.Wait()
			return a
		}
		limited := fault.ClassRateLimited.After(0, "Busy", "too many requests")
		unsent := &fault.Fault{Kind: fault.KindAfter, Class: fault.ClassNotProcessed, Delay: time.Second, Unsent: true, Err: errors.New("left alone")}
		err = limited
		ask()
		for failures, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
			if a := ask(); a.Failures != failures+1 || time.Until(a.Until) != want {
				t.Errorf("failure %d: %+v in %s, want %s", failures+1, a, time.Until(a.Until), want)
			}
			time.Sleep(want)
			err = unsent
			ask()
			if a := ask(); a.Failures != failures+1 || time.Until(a.Until) != time.Second {
				t.Errorf("not sent after failure %d: %+v in %s", failures+1, a, time.Until(a.Until))
			}
			time.Sleep(time.Second)
			err = limited
			ask()
		}
	})
}

// TestRepeat: what a call has brought is asked for again once somebody asks to repeat it, and a call that has not
// succeeded is left alone.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		tries := 0
		var err error
		o := r.owner("a")
		ask := func() Answer {
			a := r.ask(o, Call{Name: "probe", Lane: Lane{Name: "vault"}, Run: func(context.Context) (any, error) { tries++; return nil, err }}, 0.5)
			synctest.Wait()
			return a
		}
		ask()
		r.repeat(o.uid, "probe")
		if a := ask(); r.woken.Load() != 3 || a.Given || tries != 2 {
			t.Errorf("after a repeat: woken %d times, %+v, %d tries", r.woken.Load(), a, tries)
		}
		err = errors.New("no")
		r.repeat(o.uid, "probe")
		ask()
		r.repeat(o.uid, "probe")
		r.repeat(o.uid, "other")
		if a := ask(); a.Err == nil || a.Until.IsZero() || tries != 3 {
			t.Errorf("a repeat shortened the back-off: %+v, %d tries", a, tries)
		}
	})
}

// TestRepeatWhileUnderWay: what a call brings is not taken for true if somebody has asked to repeat the call meanwhile.
func TestRepeatWhileUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		tries, release := 0, make(chan error)
		o := r.owner("a")
		ask := func() Answer {
			a := r.ask(o, Call{Name: "probe", Lane: Lane{Name: "vault"}, Run: func(context.Context) (any, error) { tries++; return nil, <-release }}, 0.5)
			synctest.Wait()
			return a
		}
		ask()
		r.repeat(o.uid, "probe")
		release <- nil
		synctest.Wait()
		if a := ask(); a.Given || tries != 2 || r.woken.Load() != 1 {
			t.Errorf("after a success that was to be repeated: %+v, %d tries, woken %d times", a, tries, r.woken.Load())
		}
		r.repeat(o.uid, "probe")
		release <- errors.New("no")
		synctest.Wait()
		if a := ask(); a.Err == nil || a.Until.IsZero() || tries != 2 {
			t.Errorf("a failure was not taken for true: %+v, %d tries", a, tries)
		}
	})
}

// TestFinish: a call that brings something to remember comes back before one with other inputs is made, and what it
// has brought can be looked at then. One that has not been sent is replaced at once.
func TestFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		o := r.owner("a")
		var sent []string
		ask := func(inputs string) Answer {
			a := r.ask(o, Call{Name: "sign", Inputs: inputs, Finish: true, Lane: Lane{Name: "ca", Limit: 1}, Run: func(context.Context) (any, error) {
				sent = append(sent, inputs)
				time.Sleep(time.Second)
				return "the id of " + inputs, errors.New("not issued yet")
			}}, 0.5)
			synctest.Wait()
			return a
		}
		ask("old")
		if a := ask("new"); a.Given || a.Err != nil || len(sent) != 1 {
			t.Fatalf("while the old one is under way: %+v, sent %q", a, sent)
		}
		if _, ok := r.last(o.uid, "sign"); ok {
			t.Fatal("an outcome before the call has come back")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for range 2 {
			if o, ok := r.last(o.uid, "sign"); !ok || o.Value != "the id of old" || o.Err == nil {
				t.Fatalf("the old one brought %+v, %v", o, ok)
			}
		}
		if ask("new"); len(sent) != 2 || sent[1] != "new" || r.woken.Load() != 1 {
			t.Fatalf("once the old one has come back: sent %q, woken %d times", sent, r.woken.Load())
		}
		other := r.owner("b")
		for _, inputs := range []string{"old", "new"} {
			r.ask(other, Call{Name: "sign", Inputs: inputs, Finish: true, Lane: Lane{Name: "ca", Limit: 1},
				Run: func(context.Context) (any, error) { sent = append(sent, "b "+inputs); return nil, nil }}, 0.5)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(sent) != 3 || sent[2] != "b new" {
			t.Errorf("one that waits for its turn is not replaced: sent %q", sent)
		}
	})
}

// TestLandedInTheMidstOfAPass: a pass may look for what a call has brought, decide on other inputs, and ask, while the
// call comes back. What it has brought is there for the next pass, and the call is not replaced before.
func TestLandedInTheMidstOfAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0)
		o := r.owner("a")
		var sent []string
		ask := func(inputs string) {
			r.ask(o, Call{Name: "sign", Inputs: inputs, Finish: true, Lane: Lane{Name: "ca", Limit: 1}, Run: func(context.Context) (any, error) {
				sent = append(sent, inputs)
				return "the id of " + inputs, errors.New("not issued yet")
			}}, 0.5)
		}
		ask("old") // the pass that looked before has seen nothing
		synctest.Wait()
		ask("new")
		synctest.Wait()
		if o, ok := r.last(o.uid, "sign"); !ok || o.Value != "the id of old" || r.woken.Load() != 2 {
			t.Fatalf("the next pass sees %+v, %v; woken %d times", o, ok, r.woken.Load())
		}
		ask("new")
		synctest.Wait()
		if len(sent) != 2 {
			t.Errorf("sent %q", sent)
		}
	})
}

func TestBackOff(t *testing.T) {
	cause := errors.New("no")
	for what, c := range map[string]struct {
		err      error
		failures int
		want     time.Duration
	}{
		"unknown":          {cause, 1, time.Second},
		"doubles":          {cause, 4, 8 * time.Second},
		"to a limit":       {cause, 40, 5 * time.Minute},
		"terminal":         {fault.Failed(fault.ClassPermanent, "No", "no"), 1, 0},
		"an event first":   {fault.Pending("Missing", "no"), 1, 0},
		"by its own word":  {fault.ClassUnavailable.After(7*time.Minute, "Later", "no"), 9, 7 * time.Minute},
		"for an hour":      {fault.ClassRateLimited.AfterExactly(time.Hour, "Busy", "no"), 1, time.Hour},
		"a little longer":  {fault.ClassRateLimited.AfterExactly(62*time.Minute, "Busy", "no"), 1, 62 * time.Minute},
		"for a year":       {fault.ClassRateLimited.AfterExactly(8760*time.Hour, "Busy", "no"), 1, 63 * time.Minute},
		"asked to be left": {fault.ClassRateLimited.After(0, "Busy", "no"), 1, time.Minute},
		"a credential":     {fault.ClassCredential.After(0, "Denied", "no"), 2, 4 * time.Minute},
	} {
		if got := BackOff(c.err, c.failures, 0.5); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
	if least, most := BackOff(cause, 4, 0), BackOff(cause, 4, 0.999); least != 6*time.Second || most < 9*time.Second || most > 10*time.Second {
		t.Errorf("spread from %s to %s", least, most)
	}
	for class, limit := range map[fault.Class]time.Duration{fault.ClassCredential: 5 * time.Minute, fault.ClassUnavailable: time.Minute} {
		if wait := BackOff(class.After(0, "No", "no"), 40, 0.999); wait > limit || wait < limit*9/10 {
			t.Errorf("%s: %s, want %s at most", class, wait, limit)
		}
	}
}
