package conformance

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"chancery.dev/internal/fault"
)

// ProviderHarness is a DNS provider in a world where its effect can be seen. Values are
// numbered: n stands for the same value of one name each time.
type ProviderHarness struct {
	// Present and CleanUp write and remove value n.
	Present, CleanUp func(ctx context.Context, n int) error
	// Count returns how many times value n is there.
	Count func(n int) int
	// Forgets says that the server drops old values by itself and CleanUp does nothing.
	Forgets bool
	// Denied writes with a credential that the server does not accept; nil where there are none.
	Denied func(ctx context.Context) error
	// Throttle makes the server refuse requests for being too many, or ends that; nil where it cannot.
	Throttle func(on bool)
	// DeniedReason and ThrottledReason are those of the faults that Denied and Throttle lead
	// to; empty for any. A credential is paused by them, so they have to be told apart.
	DeniedReason, ThrottledReason string
	// Slow keeps the server from answering, or ends that.
	Slow func(on bool)
	// Secret MUST NOT be in any error.
	Secret string
}

// RunProvider runs the suite of DNS providers.
func RunProvider(t *testing.T, h ProviderHarness) {
	t.Helper()
	steps := []struct {
		name string
		run  func(*testing.T, ProviderHarness)
		skip bool
	}{
		{"clean up nothing", providerCleansNothing, false},
		{"present, present twice, clean up, clean up twice", providerTwice, false},
		{"two values, clean up of one", providerTwoValues, false},
		{"two values at once", providerAtOnce, false},
		{"wrong credential", providerDenied, h.Denied == nil},
		{"throttled", providerThrottled, h.Throttle == nil},
		{"slow", providerSlow, false},
	}
	for _, step := range steps {
		if !step.skip {
			t.Run(step.name, func(t *testing.T) { step.run(t, h) })
		}
	}
}

// must calls one of the harness's functions for value n.
func must(t *testing.T, call func(context.Context, int) error, n int) {
	t.Helper()
	if err := call(t.Context(), n); err != nil {
		t.Fatalf("value %d: %v", n, err)
	}
}

// counts says how many times the values 0 and 1 are to be there.
func (h ProviderHarness) counts(t *testing.T, want ...int) {
	t.Helper()
	for n, times := range want {
		if got := h.Count(n); got != times && (!h.Forgets || got < times) {
			t.Errorf("value %d is there %d times, want %d", n, got, times)
		}
	}
}

func providerCleansNothing(t *testing.T, h ProviderHarness) {
	must(t, h.CleanUp, 0)
	h.counts(t, 0, 0)
}

func providerTwice(t *testing.T, h ProviderHarness) {
	must(t, h.Present, 0)
	h.counts(t, 1, 0)
	must(t, h.Present, 0)
	h.counts(t, 1, 0)
	must(t, h.CleanUp, 0)
	h.counts(t, 0, 0)
	must(t, h.CleanUp, 0)
	h.counts(t, 0, 0)
}

func providerTwoValues(t *testing.T, h ProviderHarness) {
	must(t, h.Present, 0)
	must(t, h.Present, 1)
	must(t, h.Present, 0)
	h.counts(t, 1, 1)
	must(t, h.CleanUp, 0)
	h.counts(t, 0, 1)
	must(t, h.CleanUp, 1)
	h.counts(t, 0, 0)
}

func providerAtOnce(t *testing.T, h ProviderHarness) {
	for _, call := range []func(context.Context, int) error{h.Present, h.CleanUp} {
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for n := range errs {
			wg.Go(func() { errs[n] = call(t.Context(), n) })
		}
		wg.Wait()
		for n, err := range errs {
			if err != nil {
				t.Fatalf("value %d: %v", n, err)
			}
		}
		if want := h.Count(0); h.Count(1) != want {
			t.Errorf("value 0 is there %d times, value 1 %d times", want, h.Count(1))
		}
	}
	h.counts(t, 0, 0)
}

// fails checks an error that a person will read: it says when to come back, the same words each time, and no secret.
func (h ProviderHarness) fails(t *testing.T, err error, reason string) {
	t.Helper()
	f := fault.Of(err)
	if f == nil || f.Kind != fault.KindAfter || f.Delay <= 0 {
		t.Fatalf("got %v (%+v), want a fault to come back from", err, f)
	}
	if reason != "" && f.Reason != reason {
		t.Errorf("%v has the reason %s, want %s", err, f.Reason, reason)
	}
	if h.Secret != "" && strings.Contains(err.Error(), h.Secret) {
		t.Errorf("%q gives the secret away", err)
	}
	t.Logf("it says: %v", err)
}

func providerDenied(t *testing.T, h ProviderHarness) {
	first := h.Denied(t.Context())
	h.fails(t, first, h.DeniedReason)
	if again := h.Denied(t.Context()); again == nil || again.Error() != first.Error() {
		t.Errorf("first %q, then %q: a status would churn", first, again)
	}
	h.counts(t, 0, 0)
}

func providerThrottled(t *testing.T, h ProviderHarness) {
	h.Throttle(true)
	h.fails(t, h.Present(t.Context(), 0), h.ThrottledReason)
	h.Throttle(false)
	must(t, h.Present, 0)
	h.counts(t, 1, 0)
	must(t, h.CleanUp, 0)
}

// providerSlow: a caller gets its answer when its time is up, and the next one is served.
func providerSlow(t *testing.T, h ProviderHarness) {
	h.Slow(true)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.Present(ctx, 0) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("it says that it presented what nobody took")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it did not return although its context had ended")
	}
	h.Slow(false)
	must(t, h.Present, 0)
	h.counts(t, 1, 0)
	must(t, h.CleanUp, 0)
	h.counts(t, 0, 0)
}
