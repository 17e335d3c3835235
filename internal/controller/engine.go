package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/engine"
)

// Doorbell queues objects from outside of any watch.
type Doorbell = engine.Doorbell

// WriteStatus is that of the engine.
func (d *Deps) WriteStatus(ctx context.Context, old, changed client.Object) error {
	return d.Engine.WriteStatus(ctx, old, changed)
}
