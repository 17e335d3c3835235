package app

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"

	"chancery.dev/internal/kube/leader"
)

// TestTermIsTold: a lease that has run out is told, and that it is renewed. Of one that is lost to another process, Run
// tells alone: it is never renewed.
func TestTermIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		lease, err := leader.New(&rest.Config{Host: "http://192.0.2.1"}, leader.Options{Name: "lease", Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		a := &App{lease: lease, log: funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.tellTerm(ctx)
		lease.Term().Extend(time.Now(), time.Minute)
		time.Sleep(time.Hour) //nolint:forbidigo // the bubble's time
		lease.Term().Extend(time.Now(), time.Minute)
		synctest.Wait()
		lease.Term().End()
		synctest.Wait()
		if len(said) != 2 || !strings.Contains(said[0], "could not be renewed in time") || !strings.Contains(said[1], "going on") {
			t.Errorf("%q", said)
		}
	})
}
