package bench

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestOptionsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	o := Options{Scenarios: []string{"ca", "moon"}, Window: -1}
	_, err := Run(t.Context(), o)
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{"--certificates: must be at least 1", "--concurrency: must be at least 1", "--window: must not be negative", `there is no "moon"`, "acme-dns01"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// TestManyAtRestGetTheirTime: a hundred thousand certificates take over a minute to seed, and as long at each start of
// a controller.
func TestManyAtRestGetTheirTime(t *testing.T) {
	t.Parallel()
	few, many := Options{Certificates: 100}, Options{Certificates: 100, AtRest: 100_000}
	if got := many.scenarioWithin(); got < 30*time.Minute {
		t.Errorf("a scenario with 100,000 at rest ends after %s", got)
	}
	if got := few.scenarioWithin(); got > 10*time.Minute {
		t.Errorf("a scenario of 100 that hangs, hangs for %s", got)
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	const before = `# HELP apiserver_request_total Requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",resource="secrets",scope="namespace",subresource="",verb="POST",version="v1"} 5
apiserver_request_total{code="200",component="apiserver",resource="",scope="",subresource="/metrics",verb="GET",version=""} 7
other{verb="POST"} 1
`
	const after = `apiserver_request_total{code="201",component="apiserver",resource="secrets",scope="resource",subresource="",verb="POST",version="v1"} 2
apiserver_request_total{code="409",component="apiserver",resource="certificates",subresource="status",verb="PATCH"} 3
apiserver_request_total{code="0",resource="certificates",subresource="",verb="WATCH"} 1
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 4
apiserver_request_total{code="200",resource="certificates",subresource="",verb="GET"} 6
`
	first, err := parseCounts([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	second, err := parseCounts([]byte(before + after))
	if err != nil {
		t.Fatal(err)
	}
	diff := second.since(first)
	if got := diff.takeReads(true); !reflect.DeepEqual(got, counts{{"GET", "certificates", 0}: 6}) {
		t.Errorf("reads of others: %v", got)
	}
	want := counts{{"POST", "secrets", 0}: 2, {"PATCH", "certificates/status", 409}: 3}
	if got := diff.of(classWork); !reflect.DeepEqual(got, want) || got.total() != 5 {
		t.Errorf("work: %v, %d, want %v", got, got.total(), want)
	}
	if got := diff.of(classCache); !reflect.DeepEqual(got, counts{{"WATCH", "certificates", 0}: 1}) {
		t.Errorf("caches: %v", got)
	}
	if got := diff.of(classBackground); !reflect.DeepEqual(got, counts{{"PUT", "leases", 0}: 4}) {
		t.Errorf("background: %v", got)
	}
	wantRows := []RequestRow{{"PATCH", "certificates/status", 409, 3, 1.5}, {"POST", "secrets", 0, 2, 1}}
	if got := rows(diff.of(classWork), 2); !slices.Equal(got, wantRows) {
		t.Errorf("rows: %v, want %v", got, wantRows)
	}
	if _, err := parseCounts([]byte(`apiserver_request_total{verb="POST" 1`)); err == nil {
		t.Error("broken metrics are taken")
	}
}
func TestPace(t *testing.T) {
	t.Parallel()
	var took timing
	for i := range 100 {
		took.add(timing{each: []time.Duration{time.Duration(100-i) * time.Millisecond}, all: 20 * time.Millisecond})
	}
	if got, want := took.pace(), (Pace{P50Millis: 50, P99Millis: 99, PerSecond: 50}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := quantile([]time.Duration{7}, 0.99); got != 7 {
		t.Errorf("the quantile of one value is %d", got)
	}
}

func TestPartsCoverEveryCertificateOnce(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 199, 200, 205, 1000, 1009} {
		next := 0
		all := parts(count)
		for _, p := range all {
			if p.from != next || p.to <= p.from {
				t.Errorf("of %d: %v", count, all)
			}
			next = p.to
		}
		if next != count || (count >= flatnessFrom) != (len(all) == 11) {
			t.Errorf("of %d: %v", count, all)
		}
	}
}

func TestLoop(t *testing.T) {
	t.Parallel()
	var under, most, done atomic.Int64
	took, err := loop(t.Context(), 50, 4, func(context.Context, int) error {
		most.Store(max(most.Load(), under.Add(1)))
		done.Add(1)
		under.Add(-1)
		return nil
	})
	if err != nil || done.Load() != 50 || len(took.each) != 50 || most.Load() > 4 {
		t.Errorf("%v: %d done, %d at once", err, done.Load(), most.Load())
	}
	bad := errors.New("bad")
	if _, err := loop(t.Context(), 1000, 3, func(_ context.Context, i int) error {
		if i == 5 {
			return bad
		}
		return nil
	}); !errors.Is(err, bad) {
		t.Errorf("the error of a piece of work is lost: %v", err)
	}
}

func TestTextSaysWhatIsExceeded(t *testing.T) {
	t.Parallel()
	report := Report{Scenarios: []Scenario{{
		Name: "ca", RequestsEach: 11, RequestBudget: 10, Settled: true, Requests: []RequestRow{{"PATCH", "certificates/status", 409, 3, 1.5}},
		Ceilings: []Ceiling{{Name: "the sky"}}, Parts: []Part{{From: 1, To: 10}, {From: 11, To: 100}},
	}, {Name: "csr", Title: "requests", Controller: "/other", Failure: "it ended by itself"}}}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"certificates/status, refused with 409", "budget 10: EXCEEDED", "the sky", "11 to 100", "csr: requests, by /other", "NOT MEASURED: it ended by itself"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, &text)
		}
	}
}

func TestTextOfWaiting(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		waiting Waiting
		want    string
	}{
		{Waiting{CPUPercent: 4.2, CPUBudgetPercent: 5}, "4.20 % of a core, budget 5 % for 1,000\n"},
		{Waiting{CPUPercent: 5.1, CPUBudgetPercent: 5}, "budget 5 % for 1,000: EXCEEDED"},
		{Waiting{}, "none, budget none"},
		{Waiting{Requests: []RequestRow{{Verb: "PATCH", Resource: "challenges/status", Count: 7}}}, "7 PATCH challenges/status, budget none: EXCEEDED"},
	} {
		report := Report{Scenarios: []Scenario{{Name: "waiting", Waiting: &tt.waiting}}}
		var text strings.Builder
		if err := report.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), tt.want) || strings.Contains(text.String(), "REQUESTS FOR EACH CERTIFICATE") {
			t.Errorf("no %q in:\n%s", tt.want, &text)
		}
	}
}

// TestExceeded: a report is an error as soon as one number of the scenario hostile is above its bar, and names it.
func TestExceeded(t *testing.T) {
	t.Parallel()
	atBars := func(change func(*Hostile)) Report {
		o := Hostile{Ratio: 2, FirstMillis: [2]float64{9000, 5000}, PeakBytes: [2]int64{300 << 20, 300 << 20}}
		change(&o)
		return Report{Scenarios: []Scenario{{Name: "ca"}, {Name: "hostile", Hostile: &o}}}
	}
	for _, tt := range []struct {
		change func(*Hostile)
		want   string
	}{
		{func(*Hostile) {}, ""},
		{func(o *Hostile) { o.Ratio = 2.01 }, "latency p50 beside the attack, times that alone: 2.01, at most 2"},
		{func(o *Hostile) { o.FirstMillis[1] = 5010 }, "first certificate after a start beside the attack (median of 7), s: 5.01, at most 5"},
		{func(o *Hostile) { o.PeakBytes[0] += 1 << 20 }, "most resident memory, MiB: 301.00, at most 300"},
		{func(o *Hostile) { o.PeakBytes[1] += 1 << 20 }, "most resident memory, MiB: 301.00, at most 300"},
	} {
		report := atBars(tt.change)
		err := report.Exceeded()
		if (err != nil) != (tt.want != "") || err != nil && err.Error() != "scenario hostile: "+tt.want {
			t.Errorf("%v, want %q", err, tt.want)
		}
		if within := report.Scenarios[1].Hostile.worst() <= 1; within != (err == nil) {
			t.Errorf("another run is due: %t, of %v", !within, err)
		}
		report.Scenarios[1].Controller = "/other"
		if err := report.Exceeded(); err != nil {
			t.Errorf("another controller is judged: %v", err)
		}
	}
}
