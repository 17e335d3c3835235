package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// starting is a manager that starts.
type starting struct {
	manager.Manager

	runs   []manager.Runnable
	mapper meta.RESTMapper
}

func (m *starting) Add(r manager.Runnable) error {
	m.runs = append(m.runs, r)
	return nil
}

// TestLateBegins: what comes late is set up after the head start, and everything is settled then, or when the process
// stops before.
func TestLateBegins(t *testing.T) {
	for name, stops := range map[string]bool{"goes on": false, "stops": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &starting{}
				d := &Deps{Manager: m, HeadStart: time.Second}
				var after time.Duration
				began := time.Now()
				err := d.Late(func(context.Context) error {
					after = time.Since(began)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				settled := d.AllSetUp()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if stops {
					cancel()
				}
				for _, r := range m.runs {
					go func() { _ = r.Start(ctx) }()
				}
				<-settled
				if !stops && after != time.Second || stops && after != 0 {
					t.Errorf("set up after %s", after)
				}
			})
		})
	}
}

// serving is a RESTMapper of an API server that serves kinds from a time on.
type serving struct {
	meta.RESTMapper

	at time.Time
}

func (s serving) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	if time.Now().Before(s.at) {
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	return &meta.RESTMapping{}, nil
}

func (m *starting) GetRESTMapper() meta.RESTMapper { return m.mapper }

func (m *starting) GetLogger() logr.Logger { return logr.Discard() }

// TestEndsOfSetups: an error of a late set-up ends the process. That the Manager is being stopped is none.
func TestEndsOfSetups(t *testing.T) {
	broken := errors.New("the definition is broken")
	for name, c := range map[string]struct {
		err   error
		stops bool // while it sets up
		want  error
	}{
		"it succeeds":                         {},
		"it fails":                            {err: broken, want: broken},
		"a call of its own was canceled":      {err: context.Canceled, want: context.Canceled},
		"the manager adds nothing any more":   {err: fmt.Errorf("add: %w", ErrStopping)},
		"it is canceled by the stop":          {err: context.Canceled, stops: true},
		"it fails because the manager stops":  {err: broken, stops: true},
		"it succeeds while the manager stops": {stops: true},
	} {
		for _, late := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				m := &starting{mapper: serving{at: time.Now().Add(time.Minute)}}
				d := &Deps{Manager: m, HeadStart: time.Second}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ran := false
				setup := func(context.Context) error {
					if ran = true; c.stops {
						stop()
					}
					return c.err
				}
				add := func() error { return d.WhenServed(ctx, setup, schema.GroupVersionKind{Kind: "Gateway"}) }
				if late {
					add = func() error { return d.Late(setup) }
				}
				if err := add(); err != nil || len(m.runs) != 1 {
					t.Fatal(err)
				}
				if at, is := m.runs[0].(manager.LeaderElectionRunnable); !is || at.NeedLeaderElection() {
					t.Errorf("%s, late %t: it waits until the process leads", name, late)
				}
				if err := m.runs[0].Start(ctx); !errors.Is(err, c.want) || !ran {
					t.Errorf("%s, late %t: error %v, set up %t", name, late, err, ran)
				}
			})
		}
	}
}
