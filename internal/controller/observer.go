package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/kube/ownwrites"
)

// observer tells the client, which keeps own writes, what the watch has caught up with.
type observer struct{ client *ownwrites.Client }

func (o observer) OnAdd(obj any, _ bool) { o.observe(obj, false) }

func (o observer) OnUpdate(_, obj any) { o.observe(obj, false) }

func (o observer) OnDelete(obj any) { o.observe(obj, true) }

func (o observer) observe(obj any, gone bool) {
	if known, ok := informers.LastOf[client.Object](obj); ok {
		o.client.Observe(known, gone)
	}
}

// OnSecret queues the dependents of a Secret whenever the Secret changes, with our label or without. The Secrets that
// exist at the start make no event: their dependents are all looked at then in any case.
func (d *Deps) OnSecret(dependents func(context.Context, client.Object) []reconcile.Request) source.Source {
	return &secretSource{deps: d, dependents: dependents}
}

type secretSource struct {
	deps       *Deps
	dependents func(context.Context, client.Object) []reconcile.Request
}

// Start implements source.Source.
func (s *secretSource) Start(ctx context.Context, queue Queue) error {
	return s.deps.Secrets.OnChange(func(key types.NamespacedName) {
		secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		for _, req := range s.dependents(ctx, secret) {
			queue.Add(req)
		}
	})
}

// WaitForSync implements source.SyncingSource.
func (s *secretSource) WaitForSync(ctx context.Context) error { return s.deps.Secrets.WaitForSync(ctx) }
