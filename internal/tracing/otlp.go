package tracing

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// The JSON of OTLP 1.x: the mapping of protobuf, but with identifiers in hexadecimal.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name string `json:"name"`
	}
	span struct {
		TraceID    string      `json:"traceId"`
		SpanID     string      `json:"spanId"`
		Parent     string      `json:"parentSpanId,omitempty"`
		Name       string      `json:"name"`
		Kind       int         `json:"kind"`
		Start      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes,omitempty"`
		Status     *status     `json:"status,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		Text string `json:"stringValue"`
	}
)

// Kinds of span, and the code of a status, by their numbers in OTLP.
const (
	kindInternal, kindClient = 1, 3
	codeError                = 2
)

// payload is the body of a request.
func (e *Exporter) payload(batch []Span) request {
	spans := make([]span, 0, len(batch))
	for _, s := range batch {
		if s.Start.After(s.End) {
			s.Start = s.End // the API server's clock says when objects began
		}
		out := span{
			TraceID: s.Trace, SpanID: s.ID, Parent: s.Parent, Name: s.Name, Kind: kindInternal,
			Start: nanoseconds(s.Start), End: nanoseconds(s.End), Attributes: attributes(s.Attributes),
		}
		if s.Call {
			out.Kind = kindClient
		}
		if s.Problem != "" {
			out.Status = &status{codeError, s.Problem}
		}
		spans = append(spans, out)
	}
	return request{[]resourceSpans{{
		Resource:   resource{attributes(map[string]string{"service.name": e.service})},
		ScopeSpans: []scopeSpans{{scope{"chancery.dev"}, spans}},
	}}}
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func attributes(of map[string]string) []attribute {
	out := make([]attribute, 0, len(of))
	for _, key := range slices.Sorted(maps.Keys(of)) {
		out = append(out, attribute{key, value{of[key]}})
	}
	return out
}
