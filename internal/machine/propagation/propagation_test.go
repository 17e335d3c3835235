package propagation_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"chancery.dev/internal/machine/propagation"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func want(t *testing.T, l *propagation.Ledger, zone string, now time.Time, delay time.Duration) {
	t.Helper()
	if got := l.Delay(zone, now); got != delay {
		t.Errorf("%q has to wait %s, want %s", zone, got, delay)
	}
}

// TestWaitsDoubleUpToTheLimit: each failure in spite of the wait doubles it.
func TestWaitsDoubleUpToTheLimit(t *testing.T) {
	l := &propagation.Ledger{}
	want(t, l, "a.", start, 0)
	var waits []time.Duration
	for range 7 {
		l.Failed("a.", l.Delay("a.", start), start)
		waits = append(waits, l.Delay("a.", start))
	}
	const s = time.Second
	if expected := []time.Duration{5 * s, 10 * s, 20 * s, 40 * s, 80 * s, propagation.Limit, propagation.Limit}; !slices.Equal(waits, expected) {
		t.Errorf("waits of %v, want %v", waits, expected)
	}
	want(t, l, "b.", start, 0) // of another zone nothing is known
	l.Succeeded("b.", start)
	want(t, l, "b.", start, 0)
}

// TestWhatFailsTogetherCountsOnce: those that had not waited as long teach nothing new.
func TestWhatFailsTogetherCountsOnce(t *testing.T) {
	l := &propagation.Ledger{}
	for range 50 {
		l.Failed("a.", 0, start)
	}
	want(t, l, "a.", start, propagation.First)
	// Who has waited longer of its own accord has.
	l.Failed("a.", 30*time.Second, start)
	want(t, l, "a.", start, time.Minute)
	l.Failed("a.", time.Hour, start)
	want(t, l, "a.", start, propagation.Limit)
}

// TestSuccessesAndTimeForget: three in a row halve the wait, a failure between them does not
// count as one of them, and a day without a failure ends it.
func TestSuccessesAndTimeForget(t *testing.T) {
	l := &propagation.Ledger{}
	l.Failed("a.", 0, start)
	l.Failed("a.", propagation.First, start)
	l.Succeeded("a.", start)
	l.Succeeded("a.", start)
	l.Failed("a.", 0, start)
	want(t, l, "a.", start, 2*propagation.First)
	for _, wait := range []time.Duration{2 * propagation.First, 2 * propagation.First, propagation.First, propagation.First, propagation.First, 0, 0} {
		l.Succeeded("a.", start)
		want(t, l, "a.", start, wait)
	}
	l.Failed("a.", 0, start)
	want(t, l, "a.", start.Add(24*time.Hour-1), propagation.First)
	want(t, l, "a.", start.Add(24*time.Hour), 0)
	l.Failed("a.", 0, start.Add(24*time.Hour)) // begins anew
	want(t, l, "a.", start.Add(24*time.Hour), propagation.First)
}

// TestBounded: what is oldest makes room.
func TestBounded(t *testing.T) {
	l := &propagation.Ledger{}
	const many = 10_000
	for i := range many + 2 {
		l.Failed(fmt.Sprint(i), 0, start.Add(time.Duration(i)))
	}
	now := start.Add(time.Minute)
	for zone, delay := range map[int]time.Duration{0: 0, 1: 0, 2: propagation.First, many + 1: propagation.First} {
		want(t, l, fmt.Sprint(zone), now, delay)
	}
}
