package exec_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/solver/conformance"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/internal/solver/dns01/provider/exec"
	"chancery.dev/internal/solver/dns01/wire"
)

// api is the server of the example: PUT and DELETE of /name/value.
type api struct {
	mu        sync.Mutex
	records   []string
	throttled bool
	slow      chan struct{}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	slow := a.slow
	a.mu.Unlock()
	if slow != nil {
		<-slow
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.records, r.URL.Path)
	switch {
	case a.throttled:
		w.WriteHeader(http.StatusTooManyRequests)
	case r.Header.Get("X-Key") != secret:
		w.WriteHeader(http.StatusForbidden)
	case r.Method == http.MethodPut && i < 0:
		a.records = append(a.records, r.URL.Path)
	case r.Method == http.MethodDelete && i >= 0:
		a.records = slices.Delete(a.records, i, i+1)
	}
}

// The program of docs/dns-providers.md keeps the contract, word for word.
func TestDocumentedProgram(t *testing.T) {
	for _, name := range []string{"jq", "curl"} {
		tool.Path(t, name)
	}
	doc, err := os.ReadFile("../../../../../docs/dns-providers.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```sh\n(#!/bin/sh\n.*?)```").FindSubmatch(doc)
	if m == nil {
		t.Fatal("the documentation has no program")
	}
	if lines := strings.Count(string(m[1]), "\n"); lines > 11 {
		t.Errorf("the example has %d lines", lines)
	}
	script := tool.Script(t, string(m[1]))
	a := &api{}
	server := httptest.NewServer(a)
	defer server.Close()
	w := newWorld(t, "well", func(o *exec.Options) { o.Programs = map[string]string{"corp": script} })
	with := func(key string) *exec.Provider {
		return w.provider(t, exec.Config{Configuration: wire.Configuration{
			Provider: "corp", Config: map[string]string{"url": server.URL}, Secrets: map[string]string{"key": key},
		}})
	}
	values := []string{strings.Repeat("a", 43), strings.Repeat("b", 43), strings.Repeat("c", 43)}
	conformance.RunProvider(t, conformance.ProviderHarness{
		Secret:  secret,
		Present: func(ctx context.Context, n int) error { return with(secret).Present(ctx, record(values[n])) },
		CleanUp: func(ctx context.Context, n int) error { return with(secret).CleanUp(ctx, record(values[n])) },
		Denied:  func(ctx context.Context) error { return with("wrong"+secret).Present(ctx, record(values[2])) },
		Count: func(n int) (times int) {
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, r := range a.records {
				if r == "/"+record("").FQDN+"/"+values[n] {
					times++
				}
			}
			return times
		},
		Throttle: func(on bool) { a.mu.Lock(); defer a.mu.Unlock(); a.throttled = on },
		Slow: func(on bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if on {
				a.slow = make(chan struct{})
				return
			}
			close(a.slow)
			a.slow = nil
		},
	})
	if err := with("wrong").Present(t.Context(), record(values[0])); fault.Of(err) == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a refusal says %v", err)
	}
}
