package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"chancery.dev/internal/engine"
)

// TestMachinerySpeaksLower: through the sink alone, which is all that ctrl.SetLogger takes,
// the machinery's information comes with -v 1, and its errors always, unless the engine has
// written the line. A transient error is no error in any log.
func TestMachinerySpeaksLower(t *testing.T) {
	for verbosity, want := range [][]string{{"bad"}, {"info", "named", "bad"}} {
		var said []string
		log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{Verbosity: verbosity})
		machinery := logr.New(Machinery(log).GetSink())
		machinery.Info("info")
		machinery.WithName("n").WithValues("a", 1).Info("named")
		machinery.V(1).Info("detail")
		machinery.Error(errors.New("bad"), "oh")
		machinery.Error(&engine.Logged{Err: errors.New("told")}, "oh")
		machinery.Error(fmt.Errorf("ask: %w", context.Canceled), "oh")
		if !slices.EqualFunc(said, want, strings.Contains) {
			t.Errorf("-v %d: %q, want %q", verbosity, said, want)
		}
	}
	said, kind := []string{}, schema.GroupResource{Resource: "secrets"}
	log := newWatches(funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})).log
	for _, err := range []error{
		apierrors.NewConflict(kind, "web", nil), apierrors.NewNotFound(kind, "web"), apierrors.NewServiceUnavailable("starting"),
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, errors.New("bad"), apierrors.NewForbidden(kind, "web", errors.New("no right")),
	} {
		log.Error(err, "oh")
	}
	isError := func(line string) bool { return !strings.Contains(line, `"level"=0`) }
	if len(said) != 6 || slices.ContainsFunc(said[:4], isError) || !isError(said[4]) || !isError(said[5]) {
		t.Errorf("what comes every day, and what does not: %q", said)
	}
	if Machinery(logr.Discard()).GetSink() != nil {
		t.Error("what is discarded has a sink")
	}
}
