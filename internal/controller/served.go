package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// servedInterval is how often the API server is asked for a kind that it does not serve yet.
const servedInterval = 10 * time.Second

// WhenServed has setup called once the API server serves all of the kinds: at once if it does now, and else when it
// does, while the manager runs. A definition that is created later needs no restart, and one that is missing stops
// nothing.
func (d *Deps) WhenServed(ctx context.Context, setup func(context.Context) error, kinds ...schema.GroupVersionKind) error {
	missing, err := d.unserved(kinds)
	switch {
	case err != nil:
		return err
	case missing == "":
		return setup(ctx)
	}
	d.Manager.GetLogger().Info("the API server does not serve this kind: it is taken up when the API server does", "kind", missing)
	return d.Manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for {
			due := make(chan struct{})
			stop := d.AfterFunc(servedInterval, func() { close(due) })
			select {
			case <-ctx.Done():
				stop()
				return nil
			case <-due:
			}
			if missing, err := d.unserved(kinds); err == nil && missing == "" {
				return setup(ctx)
			}
		}
	}))
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
