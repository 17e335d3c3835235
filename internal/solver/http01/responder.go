package http01

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"chancery.dev/internal/limits"
)

// wellKnown is where CAs look (RFC 8555 §8.3).
const wellKnown = "/.well-known/acme-challenge/"

// ResponderOptions configure a Responder.
type ResponderOptions struct {
	// Index has the answers.
	Index *Index
	// Wait is how long a request waits for an answer that is not there yet: the CA may
	// be faster than the watch. 0 means 2 s.
	Wait time.Duration
	// MaxWaiters bounds how many requests wait at once; more are answered 404 at once. 0 means 256.
	MaxWaiters int
	// Answered is called with the status of each answer to a request for a challenge; may be nil.
	Answered func(status int)
}

// Responder answers HTTP-01 challenges. It answers nothing else but /healthz.
type Responder struct {
	index *Index
	queue *Queue
	told  func(status int)
}

// NewResponder makes a Responder.
func NewResponder(o ResponderOptions) *Responder {
	if o.Answered == nil {
		o.Answered = func(int) {}
	}
	return &Responder{index: o.Index, queue: NewQueue(o.Index, o.Wait, o.MaxWaiters), told: o.Answered}
}

// Serve answers challenges until ctx ends, with the limits that a port open to the internet needs, limits.Connections
// among them. When ctx ends, the requests that are under way have two more
// seconds. Then Serve closes the connections without an answer, which is no error.
func Serve(ctx context.Context, listener net.Listener, answers http.Handler) error {
	server := &http.Server{
		Handler:           answers,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ConnState:         NewConnections(limits.Connections).Track,
	}
	done := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		done <- server.Shutdown(within)
	})()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
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
	var answer string
	r.queue.Find(req.Context(), func() bool {
		answer, ok = r.index.Lookup(Host(req.Host), token)
		return ok
	})
	if !ok {
		r.told(http.StatusNotFound)
		http.NotFound(w, req)
		return
	}
	r.told(http.StatusOK)
	writeAnswer(w, answer)
}

// writeAnswer answers with the media type of RFC 8555 §8.3. No cache may answer for us later.
func writeAnswer(w http.ResponseWriter, answer string) {
	w.Header().Set("Cache-Control", "no-cache, no-store, must-revalidate")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	write(w, "application/octet-stream", answer)
}

func write(w http.ResponseWriter, mediaType, body string) {
	w.Header().Set("Content-Type", mediaType)
	// A client that is gone does not want the answer.
	_, _ = io.WriteString(w, body)
}

// Queue holds requests that wait for an answer: a watch may soon bring the answer. Their time and number are bounded.
type Queue struct {
	index *Index
	wait  time.Duration
	slots chan struct{}
}

// NewQueue makes a Queue in which at most slots requests (0 means 256) wait at once for a change of an Index, each for
// no longer than wait (0 means 2 s).
func NewQueue(x *Index, wait time.Duration, slots int) *Queue {
	return &Queue{x, cmp.Or(wait, 2*time.Second), make(chan struct{}, cmp.Or(slots, 256))}
}

// Find calls look until it returns true: at once, and after each change of the Index. It gives up when the time is
// over, ctx has ended or the Queue is full.
func (q *Queue) Find(ctx context.Context, look func() bool) {
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
		next := q.index.Changed() // before look, so that no change is missed
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
