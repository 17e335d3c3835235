package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// table writes aligned lines; the first error is kept.
type table struct {
	w   *tabwriter.Writer
	err error
}

func (t *table) line(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format+"\n", args...)
	}
}

// flush ends the columns.
func (t *table) flush() error {
	if t.err == nil {
		t.err = t.w.Flush()
	}
	return t.err
}

// WriteText prints the report for people.
func (r *Report) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "Kubernetes %s, %d CPUs, %d certificates in each scenario, %d at a time.\n",
		r.Kubernetes, r.CPUs, r.Certificates, r.Concurrency); err != nil {
		return err
	}
	for i := range r.Scenarios {
		if err := r.Scenarios[i].writeText(w); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scenario) writeText(w io.Writer) error {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	by := ""
	if s.Controller != "" {
		by = ", by " + s.Controller
	}
	t.line("\n%s: %s%s\n", s.Name, s.Title, by)
	if s.Failure != "" {
		t.line("  NOT MEASURED: %s", s.Failure)
		return t.flush()
	}
	if s.Waiting != nil {
		s.Waiting.writeText(t, s.ResidentBytes)
		return t.flush()
	}
	if s.Hanging != nil {
		s.Hanging.writeText(t, s.ResidentBytes)
		return t.flush()
	}
	if s.Hostile != nil {
		s.Hostile.writeText(t)
		return t.flush()
	}
	if s.Injection != nil {
		s.Injection.writeText(t)
		return t.flush()
	}
	t.line("  REQUESTS FOR EACH CERTIFICATE\t\t")
	for _, row := range s.Requests {
		t.line("  %6.2f\t%s\t%s", row.Each, row.Verb, row.what())
	}
	t.line("  %6.2f\tin all, budget %d%s", s.RequestsEach, s.RequestBudget, s.verdict())
	for _, extra := range []struct {
		title string
		rows  []RequestRow
	}{{"caches", s.CacheRequests}, {"background", s.BackgroundRequests}, {"the garbage collector", s.OtherReads}} {
		if len(extra.rows) > 0 {
			t.line("  beside that, for %s, in all:\t%s", extra.title, inWords(extra.rows))
		}
	}
	t.line("  the controller has sent, each:\t%s", methods(s.ControllerRequestsEach))
	if err := t.flush(); err != nil {
		return err
	}
	s.writePaces(t)
	if s.Shims != nil {
		s.Shims.writeText(t)
	}
	if s.Rest != nil {
		s.Rest.writeText(t)
	}
	s.writeParts(t)
	return t.flush()
}

func (s *Scenario) writePaces(t *table) {
	t.line("\n  \tP50\tP99\tPER SECOND")
	t.line("  %s\t%.0f ms\t%.0f ms\t%.1f", s.Name, s.Pace.P50Millis, s.Pace.P99Millis, s.Pace.PerSecond)
	for _, c := range s.Ceilings {
		t.line("  %s\t%.0f ms\t%.0f ms\t%.1f", c.Name, c.Pace.P50Millis, c.Pace.P99Millis, c.Pace.PerSecond)
	}
	t.line("")
	for _, r := range s.Ratios {
		t.line("  %s\t%.2f", r.Name, r.Value)
	}
	t.line("  controller's CPU, each\t%.1f ms", s.CPUMillisEach)
	t.line("  API server's and etcd's CPU, each\t%.1f ms", s.ServerCPUMillisEach)
	t.line("  controller's resident memory\t%s", mebibytes(s.ResidentBytes))
}

func (s *Scenario) writeParts(t *table) {
	if len(s.Parts) < 2 {
		return
	}
	t.line("\n  CERTIFICATES\tREQUESTS EACH\tCPU EACH\tP50\tPER SECOND")
	for _, p := range s.Parts {
		t.line("  %d to %d\t%.2f\t%.1f ms\t%.0f ms\t%.1f", p.From, p.To, p.RequestsEach, p.CPUMillisEach, p.Pace.P50Millis, p.Pace.PerSecond)
	}
}

// verdict adds what a reader should notice about the sum.
func (s *Scenario) verdict() string {
	switch {
	case !s.Settled:
		return ": AND THEY GO ON although all is issued"
	case s.RequestsEach > float64(s.RequestBudget):
		return ": EXCEEDED"
	default:
		return ""
	}
}

func (r RequestRow) what() string {
	if r.Code != 0 {
		return fmt.Sprintf("%s, refused with %d", r.Resource, r.Code)
	}
	return r.Resource
}

func inWords(rows []RequestRow) string {
	words := make([]string, 0, len(rows))
	for _, r := range rows {
		words = append(words, fmt.Sprintf("%d %s %s", r.Count, r.Verb, r.what()))
	}
	return strings.Join(words, ", ")
}

func methods(each map[string]float64) string {
	var words []string
	for _, method := range slices.Sorted(maps.Keys(each)) {
		words = append(words, fmt.Sprintf("%.2f %s", each[method], method))
	}
	return strings.Join(words, ", ")
}
