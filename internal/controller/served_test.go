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

// servingAs is a RESTMapper of an API server that serves versions, each from a time on.
type servingAs struct {
	meta.RESTMapper

	from map[string]time.Time
}

func (s servingAs) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if at, is := s.from[versions[0]]; !is || time.Now().Before(at) {
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return &meta.RESTMapping{}, nil
}

// TestWhenServedAs: the best version that is served is taken, as soon as one is. The process ends when a better one is
// served, and does not before.
func TestWhenServedAs(t *testing.T) {
	const never = -1
	for name, c := range map[string]struct {
		v1, beta time.Duration // when they are served
		taken    string
		at, ends time.Duration
	}{
		"v1 alone":             {0, never, "v1", 0, never},
		"both":                 {0, 0, "v1", 0, never},
		"the older one":        {never, 0, "v1beta1", 0, never},
		"the older one, later": {never, 25 * time.Second, "v1beta1", 30 * time.Second, never},
		"v1 later":             {25 * time.Second, never, "v1", 30 * time.Second, never},
		"both later":           {25 * time.Second, 25 * time.Second, "v1", 30 * time.Second, never},
		"an upgrade":           {90 * time.Second, 0, "v1beta1", 0, 2 * time.Minute},
		"an upgrade, later":    {time.Minute, 25 * time.Second, "v1beta1", 30 * time.Second, 90 * time.Second},
		"none":                 {never, never, "", never, never},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, served := time.Now(), servingAs{from: map[string]time.Time{}}
				for version, after := range map[string]time.Duration{"v1": c.v1, "v1beta1": c.beta} {
					if after != never {
						served.from[version] = began.Add(after)
					}
				}
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
				defer stop()
				m, taken := &adding{starting: starting{mapper: served}, ctx: ctx, ended: make(chan error, 2)}, make(chan string, 2)
				d := &Deps{Manager: m}
				at := time.Duration(never)
				if err := d.WhenServedAs(ctx, func(_ context.Context, version string) error {
					at = time.Since(began)
					taken <- version
					return nil
				}, schema.GroupKind{Kind: "Thing"}, "v1", "v1beta1"); err != nil {
					t.Fatal(err)
				}
				ends, text := time.Duration(never), ""
				for ctx.Err() == nil && ends == never {
					select {
					case err := <-m.ended:
						if err != nil {
							ends, text = time.Since(began), err.Error()
						}
					case <-ctx.Done():
					}
				}
				version := ""
				if len(taken) > 0 {
					version = <-taken
				}
				if version != c.taken || at != c.at || len(taken) > 0 || ends != c.ends {
					t.Errorf("%q after %s, ends after %s: %s", version, at, ends, text)
				}
				if ends != never && text != "the API server serves Thing as v1 now: this process ends, and the next one takes that" {
					t.Error(text)
				}
			})
		})
	}
}

// adding is a manager that runs what it is given, until ctx ends.
type adding struct {
	starting

	ctx   context.Context //nolint:containedctx // it is that of the manager
	ended chan error
}

func (m *adding) Add(r manager.Runnable) error {
	go func() { m.ended <- r.Start(m.ctx) }()
	return nil
}
