package tracing

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

// TestCollectorInTrouble: spans outlast a collector that is out of order, within bounds, and those that the collector
// refuses are dropped. The log has one line for each cause.
func TestCollectorInTrouble(t *testing.T) {
	code, got := http.StatusServiceUnavailable, []string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body request
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if code == http.StatusOK {
			for _, s := range body.ResourceSpans[0].ScopeSpans[0].Spans {
				got = append(got, s.Name)
			}
		}
		w.WriteHeader(code)
	}))
	defer server.Close()
	var said []string
	e, err := New(Options{Endpoint: server.URL, Log: funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	add := func(n int) {
		for i := range n {
			e.Add(Span{Trace: TraceOf("uid"), ID: SpanOf("uid"), Name: fmt.Sprint(i), Start: time.Unix(1, 0), End: time.Unix(2, 0)})
		}
	}
	add(most + 3)
	e.flush(t.Context())
	e.flush(t.Context())
	code = http.StatusOK
	e.flush(t.Context())
	if len(got) != most || got[0] != "0" || got[most-1] != fmt.Sprint(most-1) {
		t.Errorf("%d spans, from %s to %s", len(got), got[0], got[len(got)-1])
	}
	code = http.StatusBadRequest
	add(1)
	e.flush(t.Context())
	code, got = http.StatusOK, nil
	e.flush(t.Context())
	if len(got) != 0 {
		t.Errorf("refused spans are sent again: %q", got)
	}
	want := []string{"503", "sent again", "400"}
	if !slices.EqualFunc(said, want, strings.Contains) {
		t.Errorf("the log says %q", said)
	}
}

// TestOff: without an endpoint nothing is kept, and what is no URL is refused.
func TestOff(t *testing.T) {
	e, err := New(Options{})
	if e.Add(Span{}); e != nil || err != nil {
		t.Errorf("%v, %v", e, err)
	}
	e.Run(t.Context())
	for _, endpoint := range []string{"collector:4317", "ftp://collector", "http://"} {
		if _, err := New(Options{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), "--tracing-endpoint") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

// TestEnvironment: what a platform says to all its programs is followed, but an endpoint that is for others does not
// keep the controller from its work.
func TestEnvironment(t *testing.T) {
	var said []string
	log := funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{})
	for _, c := range []struct {
		flag, want string
		env        map[string]string
	}{
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, want: "http://c:4318/v1/traces"},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c/otlp/"}, want: "http://c/otlp/v1/traces"},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, flag: "http://own/x", want: "http://own/x"},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "True"}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}},
	} {
		e, err := New(Options{Endpoint: c.flag, Log: log}.Environment(func(name string) string { return c.env[name] }))
		if err != nil || e == nil && c.want != "" || e != nil && e.endpoint != c.want {
			t.Errorf("%v: %+v, %v", c.env, e, err)
		}
	}
	if len(said) != 1 || !strings.Contains(said[0], "OTEL_EXPORTER_OTLP_ENDPOINT is not") {
		t.Errorf("the log says %q", said)
	}
}

// TestNothingLeaks: no header goes to where the collector redirects to, and no line of the log has one, or the URL. A
// cause that differs by a port has one line.
func TestNothingLeaks(t *testing.T) {
	var said []string
	log := funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{})
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server gets %v", r.Header)
	}))
	defer elsewhere.Close()
	var drop atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Api-Key") != "hid den" {
			t.Errorf("the collector gets %v", r.Header)
		}
		if drop.Load() {
			panic(http.ErrAbortHandler)
		}
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	e, err := New(Options{Endpoint: server.URL + "/x?token=hidden", Headers: "api-key=hid%20den,Authorization: Bearer hidden,x y=hidden", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		e.Add(Span{})
		e.flush(t.Context())
		drop.Store(true)
	}
	server.Close()
	e.flush(t.Context())
	if text := strings.Join(said, "\n"); strings.Contains(text, "hid") || len(said) != 3 || !strings.Contains(text, "307") {
		t.Errorf("the log says %s", text)
	}
}

// TestClocks: a span does not end before it begins although two clocks differ.
func TestClocks(t *testing.T) {
	e := &Exporter{}
	s := e.payload([]Span{{Start: time.Unix(2, 0), End: time.Unix(1, 0)}}).ResourceSpans[0].ScopeSpans[0].Spans[0]
	if s.Start != s.End {
		t.Errorf("from %s to %s", s.Start, s.End)
	}
}
