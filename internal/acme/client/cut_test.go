package client_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/acme/client"
)

// cut answers with a body that ends too early, as when a connection breaks.
func cut(status int, header ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Content-Length", "100")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"type":"urn:ietf:params:acme:error:bad`)
	}
}

// TestACutRefusalIsNone: what was refused, and why, stood in the part that is missing. It may
// have been the nonce, so nobody may take it for the CA's last word.
func TestACutRefusalIsNone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		status int
		after  time.Duration
	}{
		"cut 400":         {cut(400), 0, 0},
		"cut 403":         {cut(403), 0, 0},
		"broken 400":      {reply(400, "application/problem+json", `{"type":"urn:ietf`), 0, 0},
		"cut 429":         {cut(429, "Retry-After", "7"), 429, 7 * time.Second},
		"cut 503":         {cut(503, "Retry-After", "7"), 503, 7 * time.Second},
		"a page, not cut": {reply(403, "text/html", "<html>"), 403, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, tc.answer)
			_, err := f.client(t, client.Options{}).GetOrder(t.Context(), f.URL+"/order/1")
			if err == nil || client.StatusOf(err) != tc.status || client.RetryAfter(err) != tc.after || acme.ProblemOf(err) != nil {
				t.Errorf("status %d, retry after %s: %v", client.StatusOf(err), client.RetryAfter(err), err)
			}
		})
	}
}

// TestASlowBodyIsBounded: a body that comes drop by drop takes no longer than a request may.
func TestASlowBodyIsBounded(t *testing.T) {
	t.Parallel()
	f := startFake(t, func(w http.ResponseWriter, r *http.Request) {
		flusher, _ := w.(http.Flusher)
		for {
			_, _ = io.WriteString(w, " ")
			flusher.Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	slow, err := client.NewHTTPClient(client.HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slow.Timeout = 300 * time.Millisecond
	_, err = f.client(t, client.Options{HTTPClient: slow}).GetOrder(t.Context(), f.URL+"/order/1")
	var transport *client.TransportError
	var late net.Error
	if !errors.As(err, &transport) || !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("%T: %v", err, err)
	}
}

func TestKnownDirectory(t *testing.T) {
	t.Parallel()
	f := startFake(t, reply(200, "application/json", `{"status":"valid"}`))
	f.extra = `,"renewalInfo":"/ari"`
	c := f.client(t, client.Options{})
	if d := c.KnownDirectory(); d != nil {
		t.Errorf("known before anything was asked: %+v", d)
	}
	if _, err := c.Directory(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := c.KnownDirectory(); d == nil || d.RenewalInfo != f.URL+"/ari" || f.directories.Load() != 1 {
		t.Errorf("%+v after %d fetches", d, f.directories.Load())
	}
}
