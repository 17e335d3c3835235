package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"chancery.dev/internal/overlay"
)

// observer tells the overlay what the watch has caught up with.
type observer struct{ overlay *overlay.Client }

func (o observer) OnAdd(obj any, _ bool) { o.observe(obj, false) }

func (o observer) OnUpdate(_, obj any) { o.observe(obj, false) }

func (o observer) OnDelete(obj any) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	o.observe(obj, true)
}

func (o observer) observe(obj any, gone bool) {
	if known, ok := obj.(client.Object); ok {
		o.overlay.Observe(known, gone)
	}
}

// OnSecret reconciles what depends on a Secret whenever one has changed, with our
// label or without. Those that are there at the start make no event: everything else
// is looked at then in any case.
func (d *Deps) OnSecret(dependents func(context.Context, client.Object) []reconcile.Request) source.Source {
	return &secretSource{deps: d, dependents: dependents}
}

type secretSource struct {
	deps       *Deps
	dependents func(context.Context, client.Object) []reconcile.Request
	labelled   cache.Informer
}

// Start implements source.Source.
func (s *secretSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	changed := func(key types.NamespacedName) {
		secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		for _, req := range s.dependents(ctx, secret) {
			queue.Add(req)
		}
	}
	s.deps.Secrets.others.onChange(changed)
	var err error
	if s.labelled, err = s.deps.Manager.GetCache().GetInformer(ctx, &corev1.Secret{}); err != nil {
		return err
	}
	_, err = s.labelled.AddEventHandler(changes(changed))
	return err
}

// WaitForSync implements source.SyncingSource.
func (s *secretSource) WaitForSync(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), s.labelled.HasSynced) {
		return fmt.Errorf("the watch of Secrets with our label has not synced: %w", ctx.Err())
	}
	return s.deps.Secrets.others.WaitForSync(ctx)
}

// changes is told the names of objects that have changed.
type changes func(types.NamespacedName)

func (c changes) OnAdd(obj any, initial bool) {
	if !initial {
		c.tell(obj)
	}
}

func (c changes) OnUpdate(_, obj any) { c.tell(obj) }

func (c changes) OnDelete(obj any) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	c.tell(obj)
}

func (c changes) tell(obj any) {
	if known, ok := obj.(client.Object); ok {
		c(client.ObjectKeyFromObject(known))
	}
}
