package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// servedInterval is how often the API server is asked for a kind that it does not serve yet, and betterInterval for a
// better version of one.
const (
	servedInterval = 10 * time.Second
	betterInterval = time.Minute
)

// Late calls setup later than everything else: d.HeadStart after the sync of the caches that everybody waits for.
// Strangers choose the number and the size of the objects that setup reads, so nobody else waits for them.
func (d *Deps) Late(setup func(context.Context) error) error {
	done := make(chan struct{})
	d.late = append(d.late, done)
	return d.Manager.Add(late(func(ctx context.Context) error {
		defer close(done)
		select {
		case <-time.After(d.HeadStart):
			return setup(ctx)
		case <-ctx.Done():
			return nil
		}
	}))
}

// AllSetUp returns a channel that is closed once all calls of Late have set up what they had to.
func (d *Deps) AllSetUp() <-chan struct{} {
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		for _, done := range d.late {
			<-done
		}
	}()
	return settled
}

// late is a manager.Runnable. It runs in a process that does not lead, too, so that its cache is ready.
type late func(context.Context) error

// Start implements manager.Runnable.
func (l late) Start(ctx context.Context) error { return unlessStopping(ctx, l) }

// ErrStopping is the error of a Manager that is being stopped, and adds nothing any more.
var ErrStopping = errors.New("the manager is being stopped")

// unlessStopping calls setup, and returns its error; nil if the Manager is being stopped.
func unlessStopping(ctx context.Context, setup func(context.Context) error) error {
	if err := setup(ctx); ctx.Err() == nil && !errors.Is(err, ErrStopping) {
		return err
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (late) NeedLeaderElection() bool { return false }

// WhenServed calls setup once the API server serves all of the kinds: at once if the API server does so now, otherwise
// later, while the manager runs, also in a process that does not lead. A definition that is created later needs no
// restart, and a missing definition stops nothing else.
func (d *Deps) WhenServed(ctx context.Context, setup func(context.Context) error, kinds ...schema.GroupVersionKind) error {
	return d.onceServed(ctx, setup, func() (string, error) { return d.unserved(kinds) })
}

// WhenServedAs is WhenServed for one kind, of which several versions will do, the best first. Setup gets the best one
// that the API server serves. If the API server serves a better one later, since it was upgraded, the process ends with
// an error, and the next one takes that.
func (d *Deps) WhenServedAs(ctx context.Context, setup func(ctx context.Context, version string) error, kind schema.GroupKind, versions ...string) error {
	taken := ""
	find := func(versions []string) func() (string, error) {
		return func() (missing string, err error) {
			for _, taken = range versions {
				if missing, err = d.unserved([]schema.GroupVersionKind{kind.WithVersion(taken)}); err != nil || missing == "" {
					return missing, err
				}
			}
			return missing, nil
		}
	}
	return d.onceServed(ctx, func(ctx context.Context) error {
		better := versions[:slices.Index(versions, taken)]
		if err := setup(ctx, taken); err != nil || len(better) == 0 {
			return err
		}
		return d.Manager.Add(late(func(ctx context.Context) error {
			for d.pause(ctx, betterInterval) {
				if missing, err := find(better)(); err == nil && missing == "" {
					return fmt.Errorf("the API server serves %s as %s now: this process ends, and the next one takes that", kind, taken)
				}
			}
			return nil
		}))
	}, find(versions))
}

// onceServed calls setup once nothing is missing.
func (d *Deps) onceServed(ctx context.Context, setup func(context.Context) error, unserved func() (string, error)) error {
	missing, err := unserved()
	switch {
	case err != nil:
		return err
	case missing == "":
		return setup(ctx)
	}
	d.Manager.GetLogger().Info("the API server does not serve this kind: it is taken up when the API server does", "kind", missing)
	return d.Manager.Add(late(func(ctx context.Context) error {
		for d.pause(ctx, servedInterval) {
			if missing, err := unserved(); err == nil && missing == "" {
				return setup(ctx)
			}
		}
		return nil
	}))
}

// pause waits, and reports whether ctx has not ended before.
func (d *Deps) pause(ctx context.Context, wait time.Duration) bool {
	due := make(chan struct{})
	stop := d.AfterFunc(wait, func() { close(due) })
	select {
	case <-ctx.Done():
		stop()
		return false
	case <-due:
		return true
	}
}

// unserved returns the first of the kinds that the API server does not serve; empty if it serves them all.
func (d *Deps) unserved(kinds []schema.GroupVersionKind) (string, error) {
	for _, kind := range kinds {
		_, err := d.Manager.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return kind.GroupKind().String(), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}
