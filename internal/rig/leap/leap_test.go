package leap_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/rig/leap"
)

// TestNoLeapBeforeTheNews: an API server that is slow to tell of a write is no reason to
// leap over what would follow from it.
func TestNoLeapBeforeTheNews(t *testing.T) {
	tell := make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			_, _ = io.WriteString(w, `{"metadata":{"name":"x","resourceVersion":"77"}}`)
			return
		}
		for event := range tell {
			for _, piece := range strings.SplitAfter(event, ":") { // as the network may cut it
				_, _ = io.WriteString(w, piece)
				_ = http.NewResponseController(w).Flush()
			}
		}
	}))
	t.Cleanup(server.Close)
	clock := leap.New(t.Context())
	client := &http.Client{Transport: clock.Wrap(http.DefaultTransport)}
	request := func(method, query string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}

	watched := make(chan error)
	go func() {
		response := request(http.MethodGet, "/?watch=true")
		defer func() { _ = response.Body.Close() }()
		_, err := io.Copy(io.Discard, response.Body)
		watched <- err
	}()
	patched := request(http.MethodPatch, "/")
	if body, err := io.ReadAll(patched.Body); err != nil || !strings.Contains(string(body), "77") {
		t.Fatalf("the answer is %s, %v", body, err)
	}
	_ = patched.Body.Close()
	leapt := make(chan struct{})
	clock.AfterFunc(time.Hour, func() { close(leapt) })
	event := func(version int) string {
		return fmt.Sprintf(`{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"%d"}}}`, version)
	}
	tell <- event(76)
	select {
	case <-leapt:
		t.Fatal("the clock has leapt, and the write was not told of")
	case <-time.After(time.Second):
	}
	tell <- event(77)
	<-leapt
	close(tell)
	if err := <-watched; err != nil {
		t.Error(err)
	}
}
