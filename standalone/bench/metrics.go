package bench

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"chancery.dev/standalone/bench/usage"
)

const (
	// apiserverRequests counts requests at the API server; see KEP-1209 for its stability.
	apiserverRequests = "apiserver_request_total"
	// clientRequests counts requests at a client made with client-go.
	clientRequests = "rest_client_requests_total"

	// settleEvery is how often the counters are read until they stand still, quietFor in sequence.
	settleEvery = 400 * time.Millisecond
	quietFor    = 3
	// settleWithin bounds that: counters that never stand still are a busy loop.
	settleWithin = 2 * time.Minute
)

// request is a kind of request, as far as the report tells them apart.
type request struct {
	verb, resource string
	// code is the HTTP status of a refusal; 0 if the request was carried out.
	code int
}

func (r request) String() string {
	text := strings.TrimSpace(r.verb + " " + r.resource)
	if r.code != 0 {
		text += ", refused with " + strconv.Itoa(r.code)
	}
	return text
}

// class says in which part of the report a request stands.
type class int

const (
	// classWork is what certificates cost.
	classWork class = iota
	// classCache is a LIST or WATCH: it feeds caches and is not repeated for each certificate.
	classCache
	// classBackground is what an idle cluster does too.
	classBackground
)

func (r request) class() class {
	switch {
	case r.verb == "LIST" || r.verb == "WATCH":
		return classCache
	case strings.HasPrefix(r.resource, "leases"), strings.HasPrefix(r.resource, "apiservices"), strings.HasPrefix(r.resource, "flowschemas"),
		strings.HasPrefix(r.resource, "prioritylevelconfigurations"),
		strings.HasPrefix(r.resource, "selfsubjectreviews"): // once for each process, before it makes its first request
		return classBackground
	default:
		return classWork
	}
}

// counts are requests since the start of the API server.
type counts map[request]int

// since is how much more there is than before.
func (c counts) since(before counts) counts {
	out := counts{}
	for r, n := range c {
		if d := n - before[r]; d != 0 {
			out[r] = d
		}
	}
	return out
}

// of selects a class.
func (c counts) of(class class) counts {
	out := maps.Clone(c)
	maps.DeleteFunc(out, func(r request, _ int) bool { return r.class() != class })
	return out
}

// takeReads takes out the GETs, if somebody else than the controller has made them: it says itself that it made none,
// and this program makes none while certificates are under way. It is the control plane's garbage collector that looks
// up an owner which it does not know yet.
func (c counts) takeReads(others bool) counts {
	out := counts{}
	for r, n := range c {
		if others && r.verb == "GET" && r.class() == classWork {
			out[r] = n
			delete(c, r)
		}
	}
	return out
}

// total adds up.
func (c counts) total() int {
	total := 0
	for _, n := range c {
		total += n
	}
	return total
}

// sorted is what there is, the most frequent first.
func (c counts) sorted() []request {
	return slices.SortedFunc(maps.Keys(c), func(a, b request) int {
		return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb), cmp.Compare(a.code, b.code))
	})
}

// row tells how many there are, and in words which.
func (c counts) row(name string) Row {
	var words []string
	for _, kind := range c.sorted() {
		words = append(words, fmt.Sprintf("%d %s", c[kind], kind))
	}
	return Row{Name: name, Value: float64(c.total()), Words: strings.Join(words, ", ")}
}

// none is the row of requests that should not be.
func (c counts) none(name string) Row {
	row := c.row(name)
	row.Budget = new(0.0)
	return row
}

// counted reads the API server's counters.
func (p *plane) counted(ctx context.Context) (counts, error) {
	text, err := p.set.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return parseCounts(text)
}

func parseCounts(text []byte) (counts, error) {
	metrics, err := series(text, apiserverRequests)
	if err != nil {
		return nil, err
	}
	out := counts{}
	for _, m := range metrics {
		label := labels(m)
		if label["resource"] == "" {
			continue // health, metrics, discovery
		}
		r := request{verb: label["verb"], resource: label["resource"]}
		if sub := label["subresource"]; sub != "" {
			r.resource += "/" + sub
		}
		if code, err := strconv.Atoi(label["code"]); err == nil && code >= http.StatusBadRequest {
			r.code = code
		}
		out[r] += int(m.GetCounter().GetValue())
	}
	return out, nil
}

// series parses the samples of one metric out of a page: pages of the API server have a hundred thousand others.
func series(page []byte, name string) ([]*dto.Metric, error) {
	var lines bytes.Buffer
	lines.WriteString("# TYPE " + name + " counter\n")
	for line := range bytes.Lines(page) {
		if bytes.HasPrefix(line, []byte(name+"{")) {
			lines.Write(line)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&lines)
	if err != nil {
		return nil, fmt.Errorf("parse the metric %s: %w", name, err)
	}
	return families[name].GetMetric(), nil
}

func labels(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, pair := range m.GetLabel() {
		out[pair.GetName()] = pair.GetValue()
	}
	return out
}

// settled waits until no more work is counted. If that does not come about, it tells how much was counted meanwhile.
func (p *plane) settled(ctx context.Context) (now counts, goingOn int, err error) {
	deadline := time.Now().Add(settleWithin)
	first, err := p.counted(ctx)
	now = first
	for quiet := 0; err == nil && quiet < quietFor; quiet++ {
		if time.Now().After(deadline) {
			return now, max(1, now.since(first).of(classWork).total()), nil
		}
		if err := sleep(ctx, settleEvery); err != nil {
			return nil, 0, err
		}
		last := now
		if now, err = p.counted(ctx); now.since(last).of(classWork).total() > 0 {
			quiet = -1
		}
	}
	return now, 0, err
}

// requests reads the controller's own counters, which tell requests apart by their HTTP method alone.
func (c *controller) requests(ctx context.Context) (counts, error) {
	page, err := usage.Page(ctx, c.metrics)
	if err != nil {
		return nil, fmt.Errorf("read the controller's metrics: %w", err)
	}
	metrics, err := series(page, clientRequests)
	if err != nil {
		return nil, err
	}
	out := counts{}
	for _, m := range metrics {
		out[request{verb: labels(m)["method"]}] += int(m.GetCounter().GetValue())
	}
	return out, nil
}
