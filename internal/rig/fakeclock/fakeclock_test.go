package fakeclock

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
		for {
			select {
			case <-r.Context().Done():
				return
			case event := <-tell:
				for _, piece := range strings.SplitAfter(event, ":") { // as the network may cut it
					_, _ = io.WriteString(w, piece)
					_ = http.NewResponseController(w).Flush()
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	clock := New(t.Context())
	clock.mu.Lock()
	clock.news.overdue = time.Hour
	clock.mu.Unlock()
	client := &http.Client{Transport: clock.Wrap(http.DefaultTransport)}
	request := func(method, query string) (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+query, nil)
		if err != nil {
			return "", err
		}
		response, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	go func() { _, _ = request(http.MethodGet, "/?watch=true") }()
	event := func(version int) string {
		return fmt.Sprintf(`{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"%d"}}}`, version)
	}
	tell <- event(75)
	if body, err := request(http.MethodPatch, "/"); err != nil || !strings.Contains(body, "77") {
		t.Fatalf("the answer is %s, %v", body, err)
	}
	leapt := make(chan struct{})
	clock.AfterFunc(time.Hour, func() { close(leapt) })
	tell <- event(76)
	select {
	case <-leapt:
		t.Fatal("the clock has leapt, and the write was not told of")
	case <-time.After(time.Second):
	}
	tell <- event(77)
	<-leapt
}

// TestSteady: a steady clock counts the waits that end, and leaps over none.
func TestSteady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Steady()
		began := time.Now()
		var ended atomic.Int32
		c.AfterFunc(time.Hour, func() { ended.Add(1) })
		c.AfterFunc(0, func() { ended.Add(1) })
		c.AfterFunc(time.Minute, func() { t.Error("a wait that is taken back ends") })()
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		synctest.Wait()
		if n := c.Ended(); n != 0 || ended.Load() != 1 {
			t.Errorf("%d waits have ended, %d are counted", ended.Load(), n)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // the bubble's time
		synctest.Wait()
		if n := c.Ended(); n != 1 || ended.Load() != 2 || c.Ahead() != 0 || c.Now().Sub(began) != time.Hour+time.Minute {
			t.Errorf("%d waits have ended, %d are counted, the clock is %s ahead", ended.Load(), n, c.Ahead())
		}
	})
}
