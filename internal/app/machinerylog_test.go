package app

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

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
