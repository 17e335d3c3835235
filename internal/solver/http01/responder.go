package http01

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// wellKnown is where CAs look (RFC 8555 §8.3).
const wellKnown = "/.well-known/acme-challenge/"

// ResponderOptions configure a Responder.
type ResponderOptions struct {
	// Lookup finds the answers.
	Lookup Lookup
	// Wait is how long a request waits for an answer that is not there yet: the CA may
	// be faster than the watch. 0 means 2 s.
	Wait time.Duration
	// MaxWaiters bounds how many requests wait at once; more are answered 404 at
	// once. 0 means 256.
	MaxWaiters int
	// Answered is told the status of each answer to a request for a challenge; may be nil.
	Answered func(status int)
}

// Responder answers HTTP-01 challenges. It answers nothing else but /healthz.
type Responder struct {
	lookup Lookup
	queue  *Queue
	told   func(status int)
}

// NewResponder makes a Responder.
func NewResponder(o ResponderOptions) *Responder {
	if o.Answered == nil {
		o.Answered = func(int) {}
	}
	return &Responder{lookup: o.Lookup, queue: NewQueue(o.Wait, o.MaxWaiters), told: o.Answered}
}

// NewServer returns an HTTP server for a Responder, with the limits that a port open
// to the internet needs.
func NewServer(r *Responder) *http.Server {
	return &http.Server{
		Handler:           r,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
}

// ServeHTTP implements http.Handler.
func (r *Responder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		http.NotFound(w, req)
		return
	}
	if req.URL.Path == "/healthz" {
		write(w, "text/plain; charset=utf-8", "ok\n")
		return
	}
	token, ok := strings.CutPrefix(req.URL.Path, wellKnown)
	if !ok || !isBase64URL(token) {
		http.NotFound(w, req)
		return
	}
	answer, ok := r.find(req.Context(), Host(req.Host), token)
	if !ok {
		r.told(http.StatusNotFound)
		http.NotFound(w, req)
		return
	}
	r.told(http.StatusOK)
	// RFC 8555 §8.3 shows this media type; no cache may answer for us later.
	w.Header().Set("Cache-Control", "no-cache, no-store, must-revalidate")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	write(w, "application/octet-stream", answer)
}

func write(w http.ResponseWriter, mediaType, body string) {
	w.Header().Set("Content-Type", mediaType)
	// A client that is gone does not want the answer.
	_, _ = io.WriteString(w, body)
}

// find looks for an answer and, if there is none, waits a little for one.
func (r *Responder) find(ctx context.Context, host, token string) (answer string, ok bool) {
	r.queue.Find(ctx, r.lookup.Changed, func() bool {
		answer, ok = r.lookup.Lookup(host, token)
		return ok
	})
	return answer, ok
}

// Queue is where questions wait for answers that the watch may be about to bring, bounded in time
// and in number.
type Queue struct {
	wait  time.Duration
	slots chan struct{}
}

// NewQueue makes a Queue in which at most slots questions (0 means 256) wait at once, each for no
// longer than wait (0 means 2 s).
func NewQueue(wait time.Duration, slots int) *Queue {
	return &Queue{cmp.Or(wait, 2*time.Second), make(chan struct{}, cmp.Or(slots, 256))}
}

// Find calls look until it has found the answer, at once and after each change; it ends without when
// the time is over, ctx has ended or the Queue is full. changed is as in Lookup.
func (q *Queue) Find(ctx context.Context, changed func() <-chan struct{}, look func() bool) {
	if look() {
		return
	}
	select {
	case q.slots <- struct{}{}:
		defer func() { <-q.slots }()
	default:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	for {
		// The channel first: a change between the two is then not missed.
		next := changed()
		if look() {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}
