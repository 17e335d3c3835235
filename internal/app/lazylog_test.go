package app

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// TestLazilyWritesTheSame: a logger says the same lazily, and asks for no values that
// nobody reads.
func TestLazilyWritesTheSame(t *testing.T) {
	said := func(wrap func(logr.Logger) logr.Logger) (lines []string) {
		log := wrap(funcr.New(func(prefix, args string) { lines = append(lines, prefix+" "+args) }, funcr.Options{Verbosity: 1}))
		named := log.WithName("one").WithName("two").WithValues("a", 1)
		named.V(1).Info("hello", "b", 2)
		named.V(2).Info("not said")
		named.WithValues("c", 3).Error(errors.New("bad"), "oh")
		log.Info("bare")
		return lines
	}
	want := said(func(l logr.Logger) logr.Logger { return l })
	if got := said(lazily); !slices.Equal(got, want) || len(got) != 3 {
		t.Errorf("lazily: %q, want %q", got, want)
	}
	formatted := 0
	sink := countingSink{LogSink: funcr.New(func(string, string) {}, funcr.Options{}).GetSink(), formatted: &formatted}
	lazily(logr.New(sink)).WithValues("a", 1).WithValues("b", 2).V(1).Info("not said")
	if formatted != 0 {
		t.Errorf("%d times values were given to the sink for a line that nobody reads", formatted)
	}
}

// TestMachinerySpeaksLower: through the sink alone, which is all that ctrl.SetLogger takes,
// the machinery's information comes with -v 1, and its errors always.
func TestMachinerySpeaksLower(t *testing.T) {
	for verbosity, want := range [][]string{{"bad"}, {"info", "named", "bad"}} {
		var said []string
		log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{Verbosity: verbosity})
		machinery := logr.New(Machinery(log).GetSink())
		machinery.Info("info")
		machinery.WithName("n").WithValues("a", 1).Info("named")
		machinery.V(1).Info("detail")
		machinery.Error(errors.New("bad"), "oh")
		if !slices.EqualFunc(said, want, strings.Contains) {
			t.Errorf("-v %d: %q, want %q", verbosity, said, want)
		}
	}
	if Machinery(logr.Discard()).GetSink() != nil {
		t.Error("what is discarded has a sink")
	}
}

type countingSink struct {
	logr.LogSink

	formatted *int
}

func (s countingSink) WithValues(values ...any) logr.LogSink {
	*s.formatted++
	return s.LogSink.WithValues(values...)
}
