package readers_test

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// scrape is how often the Prometheus of these tests asks for metrics.
const scrape = 5 * time.Minute

// span is a time in which a metric has one value, in milliseconds. It ends before to.
type span struct {
	from, to int64
	value    float64
}

// store is what a Prometheus has of metrics that seldom change: spans in place of samples, by the name of the metric.
type store map[string][]*storage.SeriesEntry

// add adds a series. Its spans are in order, and do not overlap.
func (s store) add(l labels.Labels, spans []span) {
	all := timeline{spans: slices.DeleteFunc(spans, func(a span) bool { return sampleFrom(a.from) >= a.to })}
	for _, a := range all.spans {
		all.counts = append(all.counts, all.Len()+int((a.to-1-sampleFrom(a.from))/scrape.Milliseconds())+1)
	}
	if all.Len() == 0 {
		return
	}
	name := l.Get(labels.MetricName)
	s[name] = append(s[name], &storage.SeriesEntry{Lset: l, SampleIteratorFn: func(chunkenc.Iterator) chunkenc.Iterator {
		return storage.NewListSeriesIterator(&timeline{spans: all.spans, counts: all.counts})
	}})
}

// sampleFrom is the time of the first sample that is not before a time.
func sampleFrom(at int64) int64 {
	step := scrape.Milliseconds()
	return (at + step - 1) / step * step
}

// Querier implements storage.Queryable.
func (s store) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		out := &seriesSet{}
		for name, all := range s {
			if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == labels.MetricName && !m.Matches(name) }) {
				continue
			}
			for _, series := range all {
				it := series.Iterator(nil)
				if it.Seek(hints.Start) == chunkenc.ValNone || it.AtT() > hints.End {
					continue
				}
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(series.Lset.Get(m.Name)) }) {
					out.rest = append(out.rest, series)
				}
			}
		}
		return out
	}}, nil
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	at   storage.Series
	rest []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *seriesSet) At() storage.Series              { return s.at }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// timeline implements storage.Samples, with a sample at each scrape within a span, and chunks.Sample, as the sample
// that it was last asked for.
type timeline struct {
	spans  []span
	counts []int // how many samples there are until the end of each span
	t      int64
	f      float64
}

func (l *timeline) Len() int {
	if len(l.counts) == 0 {
		return 0
	}
	return l.counts[len(l.counts)-1]
}

func (l *timeline) Get(i int) chunks.Sample {
	at, _ := slices.BinarySearch(l.counts, i+1)
	if at > 0 {
		i -= l.counts[at-1]
	}
	l.t, l.f = sampleFrom(l.spans[at].from)+int64(i)*scrape.Milliseconds(), l.spans[at].value
	return l
}

func (l *timeline) T() int64                    { return l.t }
func (l *timeline) F() float64                  { return l.f }
func (*timeline) H() *histogram.Histogram       { return nil }
func (*timeline) FH() *histogram.FloatHistogram { return nil }
func (*timeline) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (l *timeline) Copy() chunks.Sample         { return &timeline{t: l.t, f: l.f} }

func newEngine() *promql.Engine {
	// A sample counts until the next one: what is not told any more is gone at once, as by Prometheus' staleness markers.
	return promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: scrape - time.Millisecond})
}

// query evaluates a query at each step of a time.
func query(t *testing.T, engine *promql.Engine, s store, expr string, from, to time.Time, step time.Duration) promql.Matrix {
	t.Helper()
	q, err := engine.NewRangeQuery(t.Context(), s, nil, expr, from, to, step)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatal(expr, err)
	}
	out := make(promql.Matrix, 0, len(matrix)) // the engine takes its own back
	for _, series := range matrix {
		out = append(out, promql.Series{Metric: series.Metric, Floats: slices.Clone(series.Floats)})
	}
	return out
}
