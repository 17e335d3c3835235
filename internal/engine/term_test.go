package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"chancery.dev/internal/kube/leader/term"
)

// TestTermEndsAndGoesOn: what runs in a term ends with it, what is begun after it waits, and the term goes on once it
// is extended.
func TestTermEndsAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := NewTerm(time.Now)
		early, end := m.Within(t.Context())
		defer end()
		time.Sleep(time.Hour)
		if m.Over() || early.Err() != nil {
			t.Fatal("over before it has an end")
		}
		m.Extend(time.Now(), time.Minute)
		time.Sleep(30 * time.Second)
		m.Extend(time.Now(), time.Minute)
		<-early.Done()
		if at := time.Since(began); at != time.Hour+90*time.Second || !errors.Is(context.Cause(early), term.ErrOver) || !errors.Is(term.Check(early), term.ErrOver) {
			t.Errorf("ended after %s by %v, judged %v", at, context.Cause(early), term.Check(early))
		}
		late, end := m.Within(t.Context())
		defer end()
		if !errors.Is(context.Cause(late), term.ErrOver) {
			t.Errorf("what is begun after the term has the cause %v", context.Cause(late))
		}
		waited := make(chan error, 1)
		go func() { waited <- m.Wait(t.Context()) }()
		time.Sleep(time.Hour)
		select {
		case err := <-waited:
			t.Fatalf("waited until %v", err)
		default:
		}
		m.Extend(time.Now(), time.Minute)
		again, end := m.Within(t.Context())
		defer end()
		if err := <-waited; err != nil || again.Err() != nil || term.Check(again) != nil || late.Err() == nil {
			t.Errorf("waited: %v, runs again: %v, the context of before: %v", err, again.Err(), late.Err())
		}
		m.End()
		m.Extend(time.Now(), time.Hour)
		<-again.Done()
		if ctx, cancel := context.WithTimeout(t.Context(), time.Hour); !m.Over() || m.Wait(ctx) == nil {
			cancel()
			t.Error("it goes on after its end for good")
		} else {
			cancel()
		}
	})
}

// TestTermOfASuspendedMachine: the time for which the machine was suspended counts, although Go's monotonic clock
// stands still then, and the timers with it.
func TestTermOfASuspendedMachine(t *testing.T) {
	var slept time.Duration
	m := NewTerm(func() time.Time { return suspended(time.Now(), slept) })
	m.Extend(m.now(), time.Minute)
	ctx, end := m.Within(t.Context())
	defer end()
	if m.Over() {
		t.Fatal("over at once")
	}
	if slept = time.Hour; m.now().Sub(m.since) > time.Minute {
		t.Fatal("the monotonic clock has not stood still")
	}
	if err := term.Check(context.WithoutCancel(ctx)); !errors.Is(err, term.ErrOver) {
		t.Errorf("judged %v", err)
	}
	<-ctx.Done()
}

// suspended returns a time of which only the wall clock has gone on by d.
func suspended(at time.Time, d time.Duration) time.Time {
	on := at.Add(d)
	type reading struct { // as time.Time
		wall uint64
		ext  int64
		loc  *time.Location
	}
	(*reading)(unsafe.Pointer(&on)).ext = (*reading)(unsafe.Pointer(&at)).ext
	return on
}

// TestNoTermNeverEnds: a process without a lease acts always.
func TestNoTermNeverEnds(t *testing.T) {
	var none *Term
	ctx, end := none.Within(t.Context())
	defer end()
	if none.Over() || none.Wait(ctx) != nil || term.Check(ctx) != nil || ctx.Err() != nil {
		t.Error("over")
	}
}
