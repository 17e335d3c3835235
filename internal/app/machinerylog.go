package app

import "github.com/go-logr/logr"

// Machinery returns the logger for controller-runtime, whose information comes one level lower than our own: with -v 1,
// not with -v 0. ctrl.SetLogger takes the sink of a logger and ignores its level, so log.V(1) would not do.
func Machinery(log logr.Logger) logr.Logger {
	sink := log.GetSink()
	if sink == nil {
		return log
	}
	return log.WithSink(lowerSink{sink})
}

// lowerSink is a logr.LogSink that takes all information for one level less important.
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
