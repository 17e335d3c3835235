package app

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"chancery.dev/internal/engine"
)

func serving(address string, leads bool, list func() []engine.Wait) *waits {
	return newWaits(address, list, func() bool { return leads }, logr.Discard())
}

func oneWait() []engine.Wait {
	return []engine.Wait{{
		Kind: "Certificate", Namespace: "shop", Name: "web", For: engine.For{What: engine.WaitTime, Detail: "renewal"},
		Until: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}}
}

// TestWhoReadsTheWaits: the list is given to GET requests for this machine by a process that leads, to few at a time.
func TestWhoReadsTheWaits(t *testing.T) {
	t.Parallel()
	const list = `{"items":[{"kind":"Certificate","namespace":"shop","name":"web","for":"Time","detail":"renewal","until":"2026-01-02T03:04:05Z"}]}`
	leader := serving("", true, oneWait)
	full := serving("", true, oneWait)
	for range waitsAtOnce {
		full.places <- struct{}{}
	}
	for _, c := range []struct {
		server            *waits
		method, host, url string
		status            int
		body              string
	}{
		{leader, "GET", "localhost", "/waits", 200, list},
		{leader, "GET", "127.0.0.1:9412", "/waits", 200, list},
		{leader, "GET", "[::1]:9412", "/waits", 200, list},
		{serving("", true, func() []engine.Wait { return nil }), "GET", "localhost", "/waits", 200, `{"items":[]}`},
		{leader, "GET", "rebound.example.com:9412", "/waits", 403, "localhost"},
		{leader, "GET", "10.0.0.1", "/waits", 403, "localhost"},
		{leader, "GET", "", "/waits", 403, "localhost"},
		{leader, "POST", "localhost", "/waits", 405, "only GET"},
		{leader, "GET", "localhost", "/", 404, ""},
		{serving("", false, oneWait), "GET", "localhost", "/waits", 421, "does not lead"},
		{full, "GET", "localhost", "/waits", 429, "ask again"},
	} {
		req := httptest.NewRequestWithContext(t.Context(), c.method, c.url, http.NoBody)
		req.Host = c.host
		w := httptest.NewRecorder()
		c.server.ServeHTTP(w, req)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s %s at %q: %d %s, want %d %s", c.method, c.url, c.host, w.Code, w.Body, c.status, c.body)
		}
	}
}

// TestWaitsAddress: what other machines could reach is refused.
func TestWaitsAddress(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"127.0.0.1:9412": true, "[::1]:9412": true, "": true, "unix:/run/waits.sock": true,
		"0.0.0.0:9412": false, ":9412": false, "localhost:9412": false, "[::]:9412": false, "10.1.2.3:9412": false, "127.0.0.1": false, "unix:": false, "0": false,
	} {
		cfg := DefaultConfig()
		cfg.WaitsAddress = address
		if err := cfg.Validate(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "--waits-address: must") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestWaitsSocket: a Unix socket is for its user alone, and takes the place of one that was left behind, but of no
// other file.
func TestWaitsSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "waits") // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "waits.sock")
	left, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = left.Close()
	listener, closed, err := listenPrivately(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, error %v", info.Mode(), err)
	}
	server := &http.Server{Handler: serving("", true, oneWait), ReadTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/waits", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	_ = server.Close()
	closed()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := listenPrivately(t.Context(), path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file is replaced: %v", err)
	}
}

// TestWaitsAreNotNeeded: a process whose list cannot be served goes on.
func TestWaitsAreNotNeeded(t *testing.T) {
	t.Parallel()
	if err := serving("unix:"+t.TempDir(), true, oneWait).Start(t.Context()); err != nil {
		t.Error(err)
	}
}
