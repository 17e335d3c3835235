package app

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
)

// Machinery returns the logger for controller-runtime, whose information comes one level lower than our own: with -v 1,
// not with -v 0. ctrl.SetLogger takes the sink of a logger and ignores its level, so log.V(1) would not do.
func Machinery(log logr.Logger) logr.Logger { return wrapped(log, 1) }

// transientAsInfo returns a logger in which a transient error (engine.IsTransient) is information.
func transientAsInfo(log logr.Logger) logr.Logger { return wrapped(log, 0) }

func wrapped(log logr.Logger, lower int) logr.Logger {
	sink := log.GetSink()
	if sink == nil {
		return log
	}
	return log.WithSink(quieterSink{sink, lower})
}

// quieterSink is a logr.LogSink that makes all information so many levels less important. It leaves out an error that
// the engine has written into the log already, and a transient error is information.
type quieterSink struct {
	logr.LogSink
	lower int
}

// Enabled implements logr.LogSink.
func (s quieterSink) Enabled(level int) bool { return s.LogSink.Enabled(level + s.lower) }

// Info implements logr.LogSink.
func (s quieterSink) Info(level int, message string, values ...any) {
	s.LogSink.Info(level+s.lower, message, values...)
}

// Error implements logr.LogSink.
func (s quieterSink) Error(err error, message string, values ...any) {
	switch {
	case fault.Is[*engine.Logged](err), errors.Is(err, context.Canceled):
	case engine.IsTransient(err):
		if s.LogSink.Enabled(0) {
			s.LogSink.Info(0, message, append(values, "cause", err.Error())...)
		}
	default:
		s.LogSink.Error(err, message, values...)
	}
}

// WithValues implements logr.LogSink.
func (s quieterSink) WithValues(values ...any) logr.LogSink {
	return quieterSink{s.LogSink.WithValues(values...), s.lower}
}

// WithName implements logr.LogSink.
func (s quieterSink) WithName(name string) logr.LogSink {
	return quieterSink{s.LogSink.WithName(name), s.lower}
}
