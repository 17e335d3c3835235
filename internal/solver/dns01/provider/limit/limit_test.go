package limit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver/dns01/provider/limit"
)

// call is a call with the credential key.
func call(key, id string) limit.Call { return limit.Call{Key: key, Provider: "acme", ID: id} }

// answer makes one call that comes back with err.
func answer(t *testing.T, l *limit.Limits, key string, err error) error {
	t.Helper()
	return l.Do(t.Context(), call(key, "id"), func() error { return err })
}

// delayOf is that of a fault.After with a reason.
func delayOf(t *testing.T, err error, reason string) time.Duration {
	t.Helper()
	f := fault.Of(err)
	if f == nil || f.Kind != fault.KindAfter || f.Reason != reason {
		t.Fatalf("got %v (%+v), want %s", err, f, reason)
	}
	return f.Delay
}

var errSilent = errors.New("no answer in time")

// Of ten calls at once, three are made, two wait for a moment, and five are sent away once,
// each with the time of its turn.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Options{QPS: 2, Burst: 3})
		start := time.Now()
		var mu sync.Mutex
		var made, turns []time.Duration
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				try := func() error {
					return l.Do(t.Context(), call("key", fmt.Sprint(i)), func() error {
						mu.Lock()
						defer mu.Unlock()
						made = append(made, time.Since(start))
						return nil
					})
				}
				err := try()
				if err == nil {
					return
				}
				wait := delayOf(t, err, limit.ReasonBusy)
				mu.Lock()
				turns = append(turns, wait)
				mu.Unlock()
				time.Sleep(wait) //nolint:forbidigo // the bubble's clock
				if err := try(); err != nil {
					t.Errorf("a call that came back for its turn was sent away again: %v", err)
				}
			})
		}
		synctest.Wait()
		if err := answer(t, l, "another", nil); err != nil || time.Since(start) != 0 {
			t.Errorf("another credential has to wait: %v", err)
		}
		all.Wait()
		slices.Sort(turns)
		ms := time.Millisecond
		if want := []time.Duration{1500 * ms, 2000 * ms, 2500 * ms, 3000 * ms, 3500 * ms}; !slices.Equal(turns, want) {
			t.Errorf("sent away for %s, want %s", turns, want)
		}
		if want := append([]time.Duration{0, 0, 0, 500 * ms, 1000 * ms}, turns...); !slices.Equal(made, want) {
			t.Errorf("calls made at %s, want %s", made, want)
		}
	})
}

func TestNoRate(t *testing.T) {
	l := limit.New(limit.Options{Burst: 1})
	var none *limit.Limits
	for range 1000 {
		if err := errors.Join(answer(t, l, "key", nil), answer(t, none, "key", nil)); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever gives up while it waits makes no call, and leaves nothing behind.
func TestGivingUpWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Options{QPS: 2, Burst: 1})
		if err := answer(t, l, "key", nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		delayOf(t, l.Do(ctx, call("key", "x"), func() error { t.Error("the call was made"); return nil }), limit.ReasonBusy)
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		if err := answer(t, l, "key", nil); err != nil {
			t.Error(err)
		}
	})
}

// clock is a clock to step.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) step(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.now = c.now.Add(d) }

// Three failures in a row pause a credential, longer each time; one call at a time tries
// whether it is over, and a success ends it. Its words are the same all the while.
func TestPause(t *testing.T) {
	c := &clock{now: time.Unix(1_700_000_000, 0)}
	l := limit.New(limit.Options{Now: c.Now})
	for range 2 {
		if err := answer(t, l, "key", errSilent); !errors.Is(err, errSilent) {
			t.Fatal(err)
		}
	}
	_ = answer(t, l, "key", nil)
	for range 3 {
		if err := answer(t, l, "key", errSilent); !errors.Is(err, errSilent) {
			t.Fatalf("paused too early: %v", err)
		}
	}
	for _, pause := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute} {
		first := answer(t, l, "key", nil)
		if d := delayOf(t, first, limit.ReasonPaused); d != pause {
			t.Errorf("pause of %s, want %s", d, pause)
		}
		until := c.Now().Add(pause).UTC().Format("15:04:05 UTC")
		if !strings.Contains(first.Error(), until) || !strings.Contains(first.Error(), errSilent.Error()) {
			t.Errorf("%q does not say until %s, or why", first, until)
		}
		c.step(pause - time.Second)
		if again := l.Paused(call("key", "")); again == nil || again.Error() != first.Error() {
			t.Errorf("first %v, then %v", first, again)
		}
		c.step(time.Second)
		done, err := l.Enter(t.Context(), call("key", "probe"))
		if err != nil {
			t.Fatal(err)
		}
		second := answer(t, l, "key", nil)
		if d := delayOf(t, second, limit.ReasonPaused); d > 10*time.Second || second.Error() != first.Error() {
			t.Errorf("while one call tries: %v in %s", second, d)
		}
		done(errSilent)
	}
	c.step(10 * time.Minute)
	for range 3 { // the first of them ends the pause
		if err := answer(t, l, "key", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := answer(t, l, "key", errSilent); !errors.Is(err, errSilent) || l.Paused(call("key", "")) != nil {
		t.Errorf("after a success the first failure pauses: %v", err)
	}
}

// What counts is trouble that others with the same credential have too.
func TestWhatCounts(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		after  int
		paused time.Duration
	}{
		"nothing known":   {errSilent, 3, 30 * time.Second},
		"out of order":    {fault.ClassUnavailable.After(time.Second, "R", "503"), 3, 30 * time.Second},
		"credential":      {fault.ClassCredential.After(time.Second, "R", "401"), 3, 30 * time.Second},
		"throttled":       {fault.ClassRateLimited.After(90*time.Second, "R", "429"), 1, 90 * time.Second},
		"for a year":      {fault.ClassRateLimited.After(8760*time.Hour, "R", "429"), 1, 10 * time.Minute},
		"about one name":  {fault.After(time.Second, "R", "no such zone"), 0, 0},
		"one, for ever":   {fault.Terminal("R", "no"), 0, 0},
		"called off":      {context.Canceled, 0, 0},
		"no more waiting": {fmt.Errorf("asking: %w", context.Canceled), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_700_000_000, 0)
			l := limit.New(limit.Options{Now: func() time.Time { return now }})
			for i := range 5 {
				err := answer(t, l, "key", c.err)
				if c.after == 0 || i < c.after {
					if err.Error() != c.err.Error() {
						t.Fatalf("call %d: %v", i+1, err)
					}
					continue
				}
				if d := delayOf(t, err, limit.ReasonPaused); d != c.paused {
					t.Errorf("paused for %s, want %s", d, c.paused)
				}
			}
			if err := answer(t, l, "changed", nil); err != nil {
				t.Errorf("a changed credential is paused too: %v", err)
			}
		})
	}
}

// Calls that began before a pause, and fail in it, do not prolong it. Nor does one whose
// caller has gone away.
func TestStragglers(t *testing.T) {
	c := &clock{now: time.Unix(1_700_000_000, 0)}
	l := limit.New(limit.Options{Now: c.Now})
	var all []func(error)
	for i := range 16 {
		done, err := l.Enter(t.Context(), call("key", fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, done)
	}
	for _, done := range all {
		done(errSilent)
	}
	if d := delayOf(t, answer(t, l, "key", nil), limit.ReasonPaused); d != 30*time.Second {
		t.Errorf("16 failures at once pause for %s, want 30s", d)
	}
	c.step(30 * time.Second)
	gone, cancel := context.WithCancel(t.Context())
	err := l.Do(gone, call("key", "id"), func() error { cancel(); return errSilent })
	if !errors.Is(err, errSilent) {
		t.Fatal(err)
	}
	if err := answer(t, l, "key", nil); err != nil {
		t.Errorf("a call that was called off prolongs the pause: %v", err)
	}
}

// A probe that never comes back does not keep the others out for ever.
func TestLostProbe(t *testing.T) {
	c := &clock{now: time.Unix(1_700_000_000, 0)}
	l := limit.New(limit.Options{Now: c.Now})
	_ = answer(t, l, "key", fault.ClassRateLimited.After(time.Minute, "R", "429"))
	c.step(time.Minute)
	if _, err := l.Enter(t.Context(), call("key", "lost")); err != nil {
		t.Fatal(err)
	}
	delayOf(t, answer(t, l, "key", nil), limit.ReasonPaused)
	c.step(2 * time.Minute)
	if err := answer(t, l, "key", nil); err != nil {
		t.Error(err)
	}
}

// Any tenant can make up credentials that fail: what is remembered of them is bounded, and
// that of a credential in use stays.
func TestBounded(t *testing.T) {
	l := limit.New(limit.Options{QPS: 1, Burst: 1})
	inUse, err := l.Enter(t.Context(), call("in use", ""))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3_000 {
		_ = answer(t, l, fmt.Sprint("made up ", i), errSilent)
	}
	if n := limit.Remembered(l); n > 1_000 {
		t.Errorf("%d credentials are remembered", n)
	}
	inUse(fault.ClassRateLimited.After(time.Minute, "R", "429"))
	if l.Paused(call("in use", "")) == nil {
		t.Error("a credential was forgotten while it was used")
	}
}

func TestKeyGivesNothingAway(t *testing.T) {
	one, err := limit.KeyOf("rfc2136", "server", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := limit.KeyOf("rfc2136", "server", []byte("changed"))
	if err != nil || one == other || strings.Contains(one, "secret") {
		t.Errorf("%s, %s, %v", one, other, err)
	}
}
