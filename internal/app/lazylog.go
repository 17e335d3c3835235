package app

import (
	"slices"

	"github.com/go-logr/logr"
)

// lazily returns log with a sink that keeps values until something is written.
// controller-runtime adds several to its logger in every pass, and mostly writes
// nothing: formatting them in advance, as slog's handlers do, is for nothing.
func lazily(log logr.Logger) logr.Logger {
	sink := log.GetSink()
	if sink == nil {
		return log
	}
	return log.WithSink(lazySink{sink: sink})
}

// Machinery returns the logger for controller-runtime: what its machinery says interests
// those who look closer, so it comes one level below what log says. ctrl.SetLogger takes
// the sink of a logger and leaves its level: log.V(1) would not do.
func Machinery(log logr.Logger) logr.Logger {
	sink := lazily(log).GetSink()
	if sink == nil {
		return log
	}
	return log.WithSink(lowerSink{sink})
}

// lowerSink is a logr.LogSink that takes everything for one level less important.
type lowerSink struct{ logr.LogSink }

// Enabled implements logr.LogSink.
func (s lowerSink) Enabled(level int) bool { return s.LogSink.Enabled(level + 1) }

// Info implements logr.LogSink.
func (s lowerSink) Info(level int, message string, values ...any) {
	s.LogSink.Info(level+1, message, values...)
}

// WithValues implements logr.LogSink.
func (s lowerSink) WithValues(values ...any) logr.LogSink {
	return lowerSink{s.LogSink.WithValues(values...)}
}

// WithName implements logr.LogSink.
func (s lowerSink) WithName(name string) logr.LogSink { return lowerSink{s.LogSink.WithName(name)} }

// lazySink is a logr.LogSink.
type lazySink struct {
	sink   logr.LogSink
	names  []string
	values []any
}

// Init implements logr.LogSink: the sink below has been initialised.
func (lazySink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (s lazySink) Enabled(level int) bool { return s.sink.Enabled(level) }

// Info implements logr.LogSink.
func (s lazySink) Info(level int, message string, values ...any) {
	s.ready().Info(level, message, values...)
}

// Error implements logr.LogSink.
func (s lazySink) Error(err error, message string, values ...any) {
	s.ready().Error(err, message, values...)
}

// WithValues implements logr.LogSink.
func (s lazySink) WithValues(values ...any) logr.LogSink {
	s.values = slices.Concat(s.values, values)
	return s
}

// WithName implements logr.LogSink.
func (s lazySink) WithName(name string) logr.LogSink {
	s.names = append(slices.Clip(s.names), name)
	return s
}

func (s lazySink) ready() logr.LogSink {
	sink := s.sink
	for _, name := range s.names {
		sink = sink.WithName(name)
	}
	if len(s.values) > 0 {
		sink = sink.WithValues(s.values...)
	}
	return sink
}
