// Package tracing sends spans to an OpenTelemetry collector: OTLP over HTTP, in JSON.
//
// Many passes, and more than one process, may work on one issuance. So the package makes a span when a step has ended,
// and the span has the time at which the step began. The package computes the identifiers of a span only from the UIDs
// of objects and the names of steps. So the span is in the same trace, whichever process ends the step.
//
// Nothing waits for the collector. If a span cannot be sent, the package keeps the span for a while, and then drops it.
package tracing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

const (
	// most spans are kept until they are sent: further ones are dropped.
	most = 4096
	// atOnce is how many spans go into one request.
	atOnce = 512
	// every is how often spans are sent.
	every = time.Second
	// patience is how long the collector may take to answer, lastPatience how long at the end of the process.
	patience, lastPatience = 10 * time.Second, 2 * time.Second
	// maxAnswer bounds the headers and the body of an answer, in bytes.
	maxAnswer = 64 << 10
)

// Span is a step that has ended.
type Span struct {
	// Trace, ID and Parent are made by TraceOf and SpanOf. Parent is empty for the first span of a trace.
	Trace, ID, Parent string
	// Name of the step: the same for all objects.
	Name string
	// Call says that the step is a call that leaves the process.
	Call bool
	// Start and End of the step.
	Start, End time.Time
	// Attributes are for people. They MUST NOT be secret.
	Attributes map[string]string
	// Problem says what has gone wrong; empty if nothing has.
	Problem string
}

// TraceOf returns the identifier of the trace of an issuance. request is the UID of the issuance's request.
func TraceOf(request string) string { return digest(16, "trace", request) }

// SpanOf returns the identifier of a span. The parts are unique in the trace: the UID of an object and, for a step of
// the object, the name of the step.
func SpanOf(parts ...string) string { return digest(8, append([]string{"span"}, parts...)...) }

func digest(length int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:length])
}

// Options configure an Exporter.
type Options struct {
	// Endpoint is the URL of the collector. If it has no path, New adds /v1/traces.
	Endpoint string
	// Headers of each request, as in OTEL_EXPORTER_OTLP_HEADERS: name=value, with commas between, percent-encoded.
	Headers string
	// Given says that Endpoint comes from an environment variable for every program. Then New logs an Endpoint that
	// cannot be used, and traces nothing, in place of an error.
	Given bool
	// Service is the name of the process for the collector.
	Service string
	Log     logr.Logger
}

// Environment returns the options with the values of OpenTelemetry's environment variables. Their endpoint counts only
// if the options have none.
func (o Options) Environment(getenv func(string) string) Options {
	o.Headers = getenv("OTEL_EXPORTER_OTLP_HEADERS")
	at := strings.TrimRight(getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/")
	off := strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none"
	if o.Endpoint == "" && at != "" && !off {
		o.Endpoint, o.Given = at+"/v1/traces", true
	}
	return o
}

// Exporter sends spans. A nil Exporter drops them.
type Exporter struct {
	endpoint, service string
	headers           http.Header
	log               logr.Logger
	client            *http.Client

	spans chan Span
	// batch is what could not be sent, and trouble says that the last request has failed.
	batch   []Span
	trouble bool
}

// New returns an Exporter, which sends nothing before Run; nil if there is no endpoint.
func New(o Options) (*Exporter, error) {
	if o.Endpoint == "" {
		return nil, nil //nolint:nilnil // nothing is traced
	}
	at, err := url.Parse(o.Endpoint)
	if wrong := err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https"; wrong && o.Given {
		o.Log.Info("nothing is traced", "cause", "OTEL_EXPORTER_OTLP_ENDPOINT is not the URL of a collector, such as http://collector.monitoring:4318")
		return nil, nil //nolint:nilnil // nothing is traced
	} else if wrong {
		return nil, fmt.Errorf("--tracing-endpoint: %q is not the URL of a collector, such as http://collector.monitoring:4318", o.Endpoint)
	}
	if strings.Trim(at.Path, "/") == "" {
		at.Path = "/v1/traces"
	}
	through := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer}
	return &Exporter{
		endpoint: at.String(), service: o.Service, headers: o.header(), log: o.Log,
		// The headers are for this collector, and for no other.
		client: &http.Client{Transport: through, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		spans:  make(chan Span, most),
	}, nil
}

// header reads Headers. A part that is no name=value may be a secret that is written in another way: the log does not
// quote it.
func (o Options) header() http.Header {
	header := http.Header{"Content-Type": {"application/json"}}
	for pair := range strings.SplitSeq(o.Headers, ",") {
		name, value, is := strings.Cut(strings.TrimSpace(pair), "=")
		text, err := url.PathUnescape(strings.TrimSpace(value))
		switch name = strings.TrimSpace(name); {
		case name == "" && !is:
		case !is || err != nil || strings.ContainsFunc(name, notInName) || name == "":
			o.Log.Info("a header for traces is left out", "cause", "a part of OTEL_EXPORTER_OTLP_HEADERS is not name=value")
		default:
			header.Set(name, text)
		}
	}
	return header
}

func notInName(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("-_.", r)
}

// Add hands a span in to be sent. It never waits.
func (e *Exporter) Add(s Span) {
	if e == nil {
		return
	}
	select {
	case e.spans <- s:
	default:
	}
}

// Run sends spans until ctx ends, and then those that are left.
func (e *Exporter) Run(ctx context.Context) {
	if e == nil {
		return
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPatience)
			defer cancel()
			e.flush(last)
			return
		case <-ticker.C:
			e.flush(ctx)
		}
	}
}

// flush sends what there is, until the collector does not take it.
func (e *Exporter) flush(ctx context.Context) {
	for {
		for len(e.batch) < atOnce && len(e.spans) > 0 {
			e.batch = append(e.batch, <-e.spans)
		}
		if len(e.batch) == 0 {
			return
		}
		again, err := e.send(ctx, e.batch)
		e.tell(err)
		if again {
			return
		}
		e.batch = nil
	}
}

// tell logs that spans cannot be sent, and that they can again. The cause is told once: the next one may differ by the
// number of a port alone.
func (e *Exporter) tell(err error) {
	before := e.trouble
	e.trouble = err != nil
	switch {
	case e.trouble == before:
	case err == nil:
		e.log.Info("traces are sent again")
	default:
		e.log.Info("traces cannot be sent", "cause", err.Error(), "next", "tried again every second, issuances go on")
	}
}

// send makes one request, and says whether the same spans are worth another one.
func (e *Exporter) send(ctx context.Context, batch []Span) (again bool, err error) {
	text, err := json.Marshal(e.payload(batch))
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.endpoint, bytes.NewReader(text))
	if err != nil {
		return false, err
	}
	req.Header = e.headers.Clone()
	resp, err := e.client.Do(req)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = fmt.Errorf("send traces to %s: %w", req.URL.Host, wrapped.Err) // the URL may have a token in it
	}
	if err != nil {
		return true, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // so that the connection is used again
	switch {
	case resp.StatusCode < http.StatusMultipleChoices:
		return false, nil
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode >= http.StatusInternalServerError:
		return true, fmt.Errorf("the collector answers %s", resp.Status)
	default:
		return false, fmt.Errorf("the collector refuses traces: %s", resp.Status)
	}
}
