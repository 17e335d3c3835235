package stories_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/pebble"
)

// collected is a span as a collector gets it.
type collected struct {
	TraceID, SpanID, ParentSpanID, Name string
	Kind                                int
	Start                               string `json:"startTimeUnixNano"`
	End                                 string `json:"endTimeUnixNano"`
	Attributes                          []struct {
		Key   string
		Value struct{ StringValue string }
	}
	Status struct{ Message string }
}

// about is the object of a span.
func (c collected) about() string {
	for _, a := range c.Attributes {
		if a.Key == "object" {
			return a.Value.StringValue
		}
	}
	return ""
}

// collector is an OTLP/HTTP collector.
type collector struct {
	*httptest.Server

	mu    sync.Mutex
	spans []collected
	raw   strings.Builder
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got struct {
			ResourceSpans []struct{ ScopeSpans []struct{ Spans []collected } }
		}
		var raw json.RawMessage
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Tenant") != "a b" {
			http.Error(w, "not for a collector", http.StatusBadRequest)
			t.Errorf("%s %v", r.URL, r.Header)
			return
		}
		if json.NewDecoder(r.Body).Decode(&raw) != nil || json.Unmarshal(raw, &got) != nil {
			t.Errorf("the collector cannot read %s", raw)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(raw)
		for _, resource := range got.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// traceOf waits until a Certificate's first span has come, and returns all spans of that trace.
func (c *collector) traceOf(t *testing.T, w *rig.World, name string) (all []collected) {
	t.Helper()
	rig.Eventually(t, "the trace of "+name+" is there", func(context.Context) string {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.IndexFunc(c.spans, func(s collected) bool { return s.about() == "Certificate "+w.Namespace+"/"+name })
		if i < 0 {
			return fmt.Sprint(len(c.spans), " spans, not that of the Certificate")
		}
		all = slices.DeleteFunc(slices.Clone(c.spans), func(s collected) bool { return s.TraceID != c.spans[i].TraceID })
		return ""
	})
	return all
}

// tree returns the names of spans below a parent, each with its own, calls once each.
func tree(t *testing.T, all []collected, parent string) string {
	t.Helper()
	var out []string
	for _, s := range all {
		if s.ParentSpanID != parent || s.Name == "Fetch" { // which is made where the CA has not been quick
			continue
		}
		start, _ := strconv.ParseInt(s.Start, 10, 64)
		end, _ := strconv.ParseInt(s.End, 10, 64)
		if start <= 0 || end < start || len(s.TraceID) != 32 || len(s.SpanID) != 16 || s.Name == "" {
			t.Errorf("span %+v", s)
		}
		text := s.Name
		if below := tree(t, all, s.SpanID); below != "" {
			text += "(" + below + ")"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

const byDNS = "Certificate(CertificateRequest(Order(Challenge(Accept Check CleanUp Present queued) Create Download FetchAuthorizations Finalize)))"

// TestTraceOfAnIssuance: an issuance by DNS-01 is one trace, from Certificate to Secret, and has nothing secret in it.
func TestTraceOfAnIssuance(t *testing.T) {
	t.Parallel()
	w, c := newACMEWorld(t, nil), newCollector(t)
	cfg := w.Config()
	cfg.Tracing.Endpoint, cfg.Tracing.Headers = c.URL, "tenant=a%20b"
	stop := w.Run(t, cfg)
	w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "web.example.com"))
	awaitReady(t, w.World, "web")
	w.NothingLeft(t, w.dns.TXT)
	stop()
	if got := tree(t, c.traceOf(t, w.World, "web"), ""); got != byDNS {
		t.Errorf("the trace is %s\nand not      %s", got, byDNS)
	}
	noSecrets(t, w.World, []logLine{{Raw: c.raw.String()}}, tsigSecret)
}

// TestTraceOverARestart: the trace is one, although one process begins the issuance, and another one ends it.
func TestTraceOverARestart(t *testing.T) {
	t.Parallel()
	held, c := &gate{}, newCollector(t)
	w := newACMEWorld(t, func(o *pebble.Options) { o.Wrap = held.wrap })
	cfg := w.Config()
	cfg.Tracing.Endpoint, cfg.Tracing.Headers = c.URL, "tenant=a%20b"
	j, stop := runLogged(t, w.World, cfg, 0, nil)
	held.close()
	w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "web.example.com"))
	rig.Eventually(t, "the CA is asked to finalize the order", func(context.Context) string {
		if !held.reached() {
			return "not yet"
		}
		// The Order goes on when the watch shows the Challenge as valid, and the answer to that write may come later. The
		// process that has it ends the span.
		if !slices.ContainsFunc(j.lines(t), func(l logLine) bool {
			return strings.HasPrefix(l.Object, "Challenge ") && strings.Contains(l.Step, "state=valid")
		}) {
			return "the Challenge's controller does not know yet that it has written valid"
		}
		return ""
	})
	stop()
	held.open()
	w.Run(t, cfg)
	awaitReady(t, w.World, "web")
	all := c.traceOf(t, w.World, "web")
	if got := tree(t, all, ""); !strings.HasPrefix(got, "Certificate(CertificateRequest(Order(Challenge(") || !strings.Contains(got, " Present ") {
		t.Errorf("the trace is %s", got)
	}
}

// gate refuses to finalize orders while it is closed.
type gate struct {
	mu           sync.Mutex
	closed, seen bool
}

func (g *gate) close() { g.set(true) }

func (g *gate) open() { g.set(false) }

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
}

func (g *gate) reached() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen
}

func (g *gate) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		refuse := g.closed && strings.Contains(r.URL.Path, "finalize")
		g.seen = g.seen || refuse
		g.mu.Unlock()
		if refuse {
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TestTraceOfTheShortWay: a certificate by a CA is two spans, and a collector that is down holds nothing up and costs
// one line of the log.
func TestTraceOfTheShortWay(t *testing.T) {
	t.Parallel()
	w, c := rig.NewWorld(t), newCollector(t)
	cfg := w.Config()
	cfg.Tracing.Endpoint, cfg.Tracing.Headers = c.URL, "tenant=a%20b"
	stop := w.Run(t, cfg)
	withCA(t, w)
	w.Create(t, certificate(w, "web", "ca", "a.example.com"))
	awaitReady(t, w, "web")
	all := c.traceOf(t, w, "web") // a process that is stopped in the last write of an issuance has not told of its end
	stop()
	if got := tree(t, all, ""); got != "Certificate(CertificateRequest)" {
		t.Errorf("the trace is %s", got)
	}
	cfg.Tracing.Endpoint = "http://" + rig.FreeAddress(t).String()
	j, stop := runLogged(t, w, cfg, 0, nil)
	for i := range 5 {
		name := fmt.Sprint("down-", i)
		w.Create(t, certificate(w, name, "ca", "a.example.com"))
		awaitReady(t, w, name)
	}
	stop()
	lines := slices.DeleteFunc(j.lines(t), func(l logLine) bool { return !strings.Contains(l.Msg, "traces") })
	if len(lines) != 1 || lines[0].Level != "INFO" || !strings.Contains(lines[0].Cause, "connection refused") {
		t.Errorf("the log says of the collector: %+v", lines)
	}
}
