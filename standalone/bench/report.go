package bench

import (
	"cmp"
	"slices"
)

// Report is the result of a run. Its JSON form is for programs. "Each" means: for one certificate.
type Report struct {
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetes"`
	// CPUs is how many this machine has.
	CPUs int `json:"cpus"`
	// Certificates of each scenario, and how many were under way at once.
	Certificates int `json:"certificates"`
	Concurrency  int `json:"concurrency"`
	// Scenarios that were finished.
	Scenarios []Scenario `json:"scenarios"`
}

// Pace is how fast something goes.
type Pace struct {
	// P50Millis and P99Millis are quantiles of the latency in milliseconds.
	P50Millis float64 `json:"p50Millis"`
	P99Millis float64 `json:"p99Millis"`
	// PerSecond is how many there were in a second.
	PerSecond float64 `json:"perSecond"`
}

// Scenario is the result of one scenario.
type Scenario struct {
	// Name is that of the option, Title is for people.
	Name  string `json:"name"`
	Title string `json:"title"`
	// Controller is the program of the other controller, which was measured; empty for ours. Failure is why it could not
	// be.
	Controller string `json:"controller,omitempty"`
	Failure    string `json:"failure,omitempty"`
	// Certificates is how many were issued.
	Certificates int `json:"certificates"`
	// Requests that certificates cost, the user's own creation and all events included.
	Requests []RequestRow `json:"requests"`
	// RequestsEach is their sum, beside the budget of docs/performance.md.
	RequestsEach  float64 `json:"requestsEach"`
	RequestBudget int     `json:"requestBudget"`
	// Settled is false if requests went on after all certificates were issued.
	Settled bool `json:"settled"`
	// CacheRequests are LISTs and WATCHes in the same time, the one of this program included.
	CacheRequests []RequestRow `json:"cacheRequests"`
	// BackgroundRequests are what an idle cluster does too.
	BackgroundRequests []RequestRow `json:"backgroundRequests"`
	// OtherReads are GETs of the control plane's own controllers.
	OtherReads []RequestRow `json:"otherReads"`
	// ControllerRequestsEach is what the controller says it has sent, by HTTP method. What the API server counts beyond
	// that and the user's creation comes from the control plane's own controllers.
	ControllerRequestsEach map[string]float64 `json:"controllerRequestsEach"`
	// Pace runs from before the creation until a watch shows that the certificate is issued.
	Pace Pace `json:"pace"`
	// CPUMillisEach is the controller's CPU time in milliseconds.
	CPUMillisEach float64 `json:"cpuMillisEach"`
	// ServerCPUMillisEach is the CPU time of API server and etcd, in milliseconds.
	ServerCPUMillisEach float64 `json:"serverCPUMillisEach"`
	// ResidentBytes is the controller's memory at the end.
	ResidentBytes int64 `json:"residentBytes"`
	// Ceilings measured on the same control plane.
	Ceilings []Ceiling `json:"ceilings"`
	// Ratios compare with them.
	Ratios []Ratio `json:"ratios"`
	// Parts are the run in sequence, to see whether the last certificates cost what the first did.
	Parts []Part `json:"parts"`
	// Rest is what they cost when they are in order; nil in other scenarios.
	Rest *Rest `json:"rest,omitempty"`
	// Shims is what the Ingresses and Gateways cost that ask for them; nil in other scenarios.
	Shims *Shims `json:"shims,omitempty"`
	// Waiting is what they cost while they cannot be issued; nil in other scenarios, and nothing is issued in this one.
	Waiting *Waiting `json:"waiting,omitempty"`
	// Hanging is what they take beside a namespace whose servers never answer; nil in other scenarios.
	Hanging *Hanging `json:"hanging,omitempty"`
	// Hostile is what they take beside a namespace that attacks; nil in other scenarios.
	Hostile *Hostile `json:"hostile,omitempty"`
	// Injection is what the CA injector costs; nil in other scenarios, and nothing is issued in this one.
	Injection *Injection `json:"injection,omitempty"`
}

// RequestRow counts one kind of request.
type RequestRow struct {
	// Verb is the API server's: APPLY is a server-side apply, LIST and WATCH are reads of many.
	Verb string `json:"verb"`
	// Resource is in the plural, with the subresource after a slash.
	Resource string `json:"resource"`
	// Code is the HTTP status of refused requests; 0 for those that were carried out.
	Code  int     `json:"code,omitempty"`
	Count int     `json:"count"`
	Each  float64 `json:"each"`
}

// Ceiling is what the parts that we build on reach without us.
type Ceiling struct {
	// Name says what does what; Unit is what is counted.
	Name string `json:"name"`
	Unit string `json:"unit"`
	Pace Pace   `json:"pace"`
}

// Ratio compares a result with a ceiling.
type Ratio struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Part is some of the certificates of a run, counted from 1.
type Part struct {
	From          int     `json:"from"`
	To            int     `json:"to"`
	RequestsEach  float64 `json:"requestsEach"`
	CPUMillisEach float64 `json:"cpuMillisEach"`
	Pace          Pace    `json:"pace"`
}

// rows orders counts: the most frequent first.
func rows(c counts, n float64) []RequestRow {
	out := make([]RequestRow, 0, len(c))
	for r, count := range c {
		out = append(out, RequestRow{Verb: r.verb, Resource: r.resource, Code: r.code, Count: count, Each: float64(count) / n})
	}
	slices.SortFunc(out, func(a, b RequestRow) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Code, b.Code))
	})
	return out
}

// ratios compares a scenario with its ceilings.
func ratios(s *Scenario) []Ratio {
	var out []Ratio
	for i, c := range s.Ceilings {
		if i == 0 {
			// Each request costs about a Secret: this is how close we come to the limit that their number sets.
			out = append(out, Ratio{"share of the rate that the API server allows for that many requests", s.Pace.PerSecond * s.RequestsEach / c.Pace.PerSecond})
			continue
		}
		out = append(out,
			Ratio{"latency p50, times the bare client's", s.Pace.P50Millis / c.Pace.P50Millis},
			Ratio{"latency p99, times the bare client's", s.Pace.P99Millis / c.Pace.P99Millis},
			Ratio{"rate, share of the bare client's", s.Pace.PerSecond / c.Pace.PerSecond},
		)
	}
	if s.ServerCPUMillisEach > 0 {
		out = append(out, Ratio{"controller's CPU, times the API server's and etcd's", s.CPUMillisEach / s.ServerCPUMillisEach})
	}
	return out
}
