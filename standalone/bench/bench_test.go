package bench

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
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
	wantRow := Row{Name: "work", Value: 5, Words: "3 PATCH certificates/status, refused with 409, 2 POST secrets"}
	if got := diff.of(classWork).row("work"); got != wantRow {
		t.Errorf("row: %v, want %v", got, wantRow)
	}
	wantRows := []Row{{Name: "… PATCH certificates/status, refused with 409", Value: 1.5}, {Name: "… POST secrets", Value: 1}}
	two := cost{count: 2, snapshot: snapshot{requests: diff}}
	if got := two.rows(scenario{})[1:3]; !slices.Equal(got, wantRows) || two.requestsEach() != 2.5 {
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
	if got, want := took.pace(), (pace{p50: 50, p99: 99, perSecond: 50}); got != want {
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

// textOf is a report as people see it, with two spaces between columns.
func textOf(t *testing.T, scenarios ...Scenario) string {
	t.Helper()
	report := Report{Scenarios: scenarios}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(` {2,}`).ReplaceAllString(text.String(), "  ")
}

func TestTextSaysWhatIsExceeded(t *testing.T) {
	t.Parallel()
	many := cost{
		count: 200, snapshot: snapshot{requests: counts{{"PATCH", "certificates/status", 409}: 300, {"POST", "events", 0}: 1900, {"LIST", "secrets", 0}: 1}},
		timing: timing{each: []time.Duration{time.Second}, all: time.Second},
	}
	many.parts = append(many.flat("certificates 1 to 10"), many.flat("certificates 11 to 100")...)
	rows := append(many.rows(scenario{requestBudget: 10}), many.paces("ca", "a bare ACME client issues", pace{1, 2, 3}, pace{4, 5, 6})...)
	text := textOf(t, Scenario{Name: "ca", Rows: rows}, Scenario{Name: "csr", Title: "requests", Controller: "/other", Failure: "it ended by itself"})
	for _, want := range []string{
		"certificates/status, refused with 409  1.5\n", "11, budget 10: EXCEEDED", "for caches, in all  1 (1 LIST secrets)\n",
		"after all was issued, if they did not end  0, budget 0\n", "  ca  p50 1000 ms  p99 1000 ms", "the API server creates Secrets  p50 1 ms", "a bare ACME client issues", "11 to 100",
		"csr: requests, by /other", "NOT MEASURED: it ended by itself",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	many.goingOn = 7
	if text := textOf(t, Scenario{Rows: many.rows(scenario{requestBudget: 11})}); !strings.Contains(text, "7, budget 0: EXCEEDED") || strings.Count(text, "EXCEEDED") != 1 {
		t.Errorf("it is not told that requests go on, or more than that:\n%s", text)
	}
}

// TestComparedWithAnotherController: numbers of another controller are told in times of ours, but for the rate.
func TestComparedWithAnotherController(t *testing.T) {
	t.Parallel()
	costs := func(requests int, latency, all, cpu time.Duration, resident int64) *cost {
		return &cost{
			count: 2, snapshot: snapshot{requests: counts{{"POST", "events", 0}: requests}, cpu: cpu},
			timing: timing{each: []time.Duration{latency, latency}, all: all}, resident: resident,
		}
	}
	ours, theirs := costs(10, time.Second, 4*time.Second, time.Second, 10), costs(20, 3*time.Second, 20*time.Second, 6*time.Second, 70)
	var got []float64
	for _, row := range theirs.comparedWith(ours) {
		got = append(got, row.Value)
	}
	if want := []float64{2, 3, 0.2, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestReportWithoutNumber: a process that needed no CPU time that is counted takes nothing away from the report.
func TestReportWithoutNumber(t *testing.T) {
	t.Parallel()
	s, none := Scenario{}, 0.0
	s.add(Row{Name: "a", Value: 1}, Row{Name: "b", Value: 1 / none}, Row{Name: "c", Value: none / none})
	text, err := json.Marshal(s.Rows)
	if want := `[{"name":"a","value":1}]`; err != nil || string(text) != want {
		t.Errorf("%v: %s, want %s", err, text, want)
	}
}

func TestTextOfWaiting(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for _, tt := range []struct {
		cpu      time.Duration
		requests counts
		want     string
	}{
		{4200 * time.Millisecond, nil, "4.2 % of a core, budget 5 % of a core (for 1,000)\n"},
		{5100 * time.Millisecond, nil, "budget 5 % of a core: EXCEEDED (for 1,000)"},
		{0, nil, "0, budget 0\n"},
		{0, counts{{"PATCH", "challenges/status", 0}: 7}, "7, budget 0: EXCEEDED (7 PATCH challenges/status)"},
	} {
		after := look{at: began.Add(100 * time.Second), cpu: tt.cpu, requests: tt.requests, checks: 30}
		text := textOf(t, Scenario{Name: "waiting", Rows: after.since(look{at: began}, 3)})
		if !strings.Contains(text, tt.want) || !regexp.MustCompile(`questions for the record, .* 1\n`).MatchString(text) {
			t.Errorf("no %q in:\n%s", tt.want, text)
		}
	}
}

// TestTextOfObjectsAtRest: the budget is for what the heap has in use more than that of a process without them.
func TestTextOfObjectsAtRest(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for more, want := range map[int64]string{20: "20 MiB, budget 20 MiB (for 9)\n", 21: "21 MiB, budget 20 MiB: EXCEEDED (for 9)\n"} {
		rows := objectsAtRest("shoes", "none", memory{90 * mib, 95 * mib, (10 + more) * mib}, memory{30 * mib, 35 * mib, 10 * mib}, 20*mib, "9")
		text := textOf(t, Scenario{Rows: rows})
		for _, want := range []string{want, "at rest 90 MiB  at most 95 MiB\n", "at rest 30 MiB  at most 35 MiB\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in:\n%s", want, text)
			}
		}
	}
}

// TestExceeded: a report is an error as soon as one number of the scenario hostile is above its bar, and names it.
func TestExceeded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		change func(*hostile)
		want   string
	}{
		{func(*hostile) {}, ""},
		{func(o *hostile) { o.paces[1].p50 = 20.1 }, "latency p50 beside the attack, times that alone: 2.01, at most 2"},
		{func(o *hostile) { o.firstMillis[1] = 5010 }, "first certificate after a start beside the attack (median of 7): 5.01 s, at most 5 s"},
		{func(o *hostile) { o.peakBytes[0] += 1 << 20 }, "most resident memory of both: 301 MiB, at most 300 MiB"},
		{func(o *hostile) { o.peakBytes[1] += 1 << 20 }, "most resident memory of both: 301 MiB, at most 300 MiB"},
	} {
		o := hostile{paces: [2]pace{{p50: 10}, {p50: 20}}, firstMillis: [2]float64{9000, 5000}, peakBytes: [2]int64{300 << 20, 300 << 20}}
		tt.change(&o)
		report := Report{Scenarios: []Scenario{{Name: "ca", Rows: []Row{{Value: 2, Budget: new(1.0)}}}, {Name: "hostile", Rows: o.rows()}}}
		err := report.Exceeded()
		if (err != nil) != (tt.want != "") || err != nil && err.Error() != "scenario hostile: "+tt.want {
			t.Errorf("%v, want %q", err, tt.want)
		}
		if within := report.Scenarios[1].worst() <= 1; within != (err == nil) {
			t.Errorf("another run is due: %t, of %v", !within, err)
		}
		if told := strings.Contains(textOf(t, report.Scenarios[1]), "EXCEEDED"); told != (err != nil) {
			t.Errorf("the text tells of it: %t, of %v", told, err)
		}
		report.Scenarios[1].Controller = "/other"
		if err := report.Exceeded(); err != nil {
			t.Errorf("another controller is judged: %v", err)
		}
	}
}
