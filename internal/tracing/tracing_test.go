package tracing

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
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
