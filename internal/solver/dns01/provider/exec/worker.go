package exec

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"chancery.dev/internal/fairshare"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/limit"
	"chancery.dev/internal/solver/dns01/wire"
)

const (
	// busyPeriod is the wait before a call is repeated that takes longer than its caller has time.
	busyPeriod = 5 * time.Second
	// maxAge is how long secrets that Late fetched are used.
	maxAge = 8 * time.Minute
	// maxRetryAfter is the longest that a program can make its credential wait.
	maxRetryAfter = 10 * time.Minute
	// maxBound is how long a program that remembers what to clean up is kept for it.
	maxBound = time.Hour
)

// worker does the requests of one program with one credential, one at a time.
type worker struct {
	pool *Pool
	// key tells it from other workers, and credential tells the credential from others, whoever uses it.
	key, credential string
	path            string
	config          Config

	// refs is guarded by the pool's mutex.
	refs int

	// turn is held while the fields below are used.
	turn    *fairshare.Places
	session *session
	// holder is the tenant whose place the process has.
	holder   string
	stateful bool
	// open are the records that were presented and not cleaned up.
	open map[string]struct{}
	used time.Time
	idle *time.Timer
}

// do makes one request, unless the credential is paused. If ctx ends, a request that has begun goes on, within its own
// time limit: when the caller repeats the request, the work may be done already.
func (w *worker) do(ctx context.Context, tenant string, q wire.Request) error {
	limits := w.pool.o.Limits
	call := limit.Call{Key: w.credential, Provider: w.config.Provider, ID: string(q.Op) + " " + q.FQDN + " " + q.Value}
	if err := limits.Paused(call); err != nil {
		return err
	}
	busy := fault.After(busyPeriod, limit.ReasonBusy, "%s: other requests with this credential come first, or this one takes long", w.config.Provider)
	if w.turn.Take(ctx, tenant, nil) != nil {
		return busy
	}
	note, err := limits.Enter(ctx, call) // the requests before this one may have failed
	if err != nil {
		if w.session == nil {
			w.restTimer()
		}
		w.turn.Free(tenant)
		return err
	}
	done := make(chan error, 1)
	w.pool.mu.Lock()
	w.refs++ // the work may outlive its caller
	w.pool.mu.Unlock()
	go func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.pool.o.Timeout) // of the same term
		defer cancel()
		defer context.AfterFunc(w.pool.ctx, cancel)()
		err := w.work(within, tenant, q)
		note(err)
		w.used = time.Now()
		if w.pool.places.Wanted(w.holder) && !w.bound() {
			w.end() // another worker waits for a place
		}
		w.restTimer()
		w.turn.Free(tenant)
		w.pool.release(w)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return busy
	}
}

// work does a request with a process, new or old. If an old one has ended since its last answer, a new one is started.
func (w *worker) work(ctx context.Context, tenant string, q wire.Request) error {
	fresh := false
	if w.session != nil && w.config.Late != nil && time.Since(w.session.began) > maxAge {
		w.end()
	}
	for {
		if w.session == nil {
			fresh = true
			if err := w.begin(ctx, tenant); err != nil {
				w.end()
				return err
			}
		}
		a, err := w.session.ask(ctx, q)
		if err != nil {
			words := w.session.explain(ctx, err)
			w.end()
			if !fresh && errors.Is(err, errEnded) {
				continue
			}
			return fault.ClassUnavailable.After(busyPeriod, ReasonProgram, "%s: %s", w.config.Provider, words)
		}
		return w.judge(q, a)
	}
}

// begin starts a process and configures it.
func (w *worker) begin(ctx context.Context, tenant string) error {
	if w.pool.places.Take(ctx, tenant, func() { w.pool.makeRoom(tenant) }) != nil {
		return fault.After(busyPeriod, limit.ReasonBusy, "%s: as many processes run as may at once", w.config.Provider)
	}
	w.holder = tenant
	c := w.config.Configuration
	if w.config.Late != nil {
		late, err := w.config.Late(ctx)
		if err != nil {
			w.pool.places.Free(tenant)
			return fault.ClassCredential.After(dns01.MendPeriod, ReasonCredential, "%s: %w", c.Provider, err)
		}
		c.Secrets = maps.Clone(c.Secrets)
		if c.Secrets == nil {
			c.Secrets = map[string]string{}
		}
		maps.Copy(c.Secrets, late)
	}
	s, err := w.pool.start(ctx, w.path, c)
	if err != nil {
		w.pool.places.Free(tenant)
		return fault.ClassUnavailable.After(dns01.MendPeriod, ReasonProgram, "%s: %w", c.Provider, err)
	}
	w.session, w.stateful = s, false
	var a wire.Response // of capabilities, which is not needed, then of configure
	for _, q := range []wire.Request{{Op: wire.OpCapabilities}, {Op: wire.OpConfigure, Configuration: c}} {
		if a, err = s.ask(ctx, q); err != nil {
			return fault.ClassUnavailable.After(busyPeriod, ReasonProgram, "%s: %s", c.Provider, s.explain(ctx, err))
		}
	}
	w.stateful = a.Stateful
	return w.judge(wire.Request{Op: wire.OpConfigure}, a)
}

// judge says what a response means, and remembers which records have to be cleaned up.
func (w *worker) judge(q wire.Request, a wire.Response) error {
	if a.OK {
		switch record := q.FQDN + " " + q.Value; q.Op {
		case wire.OpPresent:
			w.open[record] = struct{}{}
		case wire.OpCleanUp:
			delete(w.open, record)
		case wire.OpCapabilities, wire.OpConfigure:
		}
		return nil
	}
	prefix := w.config.Provider + ": "
	// Secrets are taken out first: a secret that was cut or changed would not be found.
	words := errors.New(prefix + strings.TrimPrefix(steady(w.session.redact(a.Error)), prefix))
	class, reason := fault.Class(""), dns01.ReasonRefused
	switch a.Class {
	case wire.ClassCredential:
		class, reason = fault.ClassCredential, ReasonCredential
	case wire.ClassThrottled:
		class, reason = fault.ClassRateLimited, ReasonThrottled
	case wire.ClassConfig:
		reason = dns01.ReasonInvalidConfig
	}
	if delay := time.Duration(min(a.RetryAfter, int(maxRetryAfter/time.Second))) * time.Second; delay > dns01.MendPeriod {
		return class.AfterExactly(delay, reason, "%w", words)
	}
	return class.After(dns01.MendPeriod, reason, "%w", words)
}

// bound reports whether the process remembers what it has to clean up.
func (w *worker) bound() bool {
	if w.session == nil || !w.stateful || len(w.open) == 0 {
		return false
	}
	select {
	case <-w.session.ended:
		return false
	default:
		return time.Since(w.session.began) < maxBound
	}
}

// restTimer ends the process after a while without work.
func (w *worker) restTimer() {
	if w.idle != nil {
		w.idle.Stop()
	}
	if w.session == nil {
		w.idle = time.AfterFunc(w.pool.o.Idle, func() { w.pool.forget(w) })
		return
	}
	w.idle = time.AfterFunc(w.pool.o.Idle, func() {
		_ = w.turn.Take(context.Background(), "", nil) // which does not end
		defer w.turn.Free("")
		switch {
		case time.Since(w.used) < w.pool.o.Idle: // it worked meanwhile, and has another timer
		case w.bound():
			w.restTimer()
		default:
			w.end()
			w.pool.forget(w)
		}
	})
}

// end ends the process, if there is one.
func (w *worker) end() {
	if w.session == nil {
		return
	}
	w.session.close()
	w.session = nil
	clear(w.open)
	w.pool.places.Free(w.holder)
}
