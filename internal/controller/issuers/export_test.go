package issuers

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
)

// Bench is bench for the tests that need the adapters.
type Bench = bench

// NewBench is newBench.
func NewBench(t *testing.T, objects ...client.Object) *Bench {
	t.Helper()
	return newBench(t, objects...)
}

// Over is benchOver.
func Over(t *testing.T, store client.Client) *Bench {
	t.Helper()
	return benchOver(t, store)
}

// RunCluster runs the ClusterIssuers beside the Issuer.
func (b *bench) RunCluster() reconcile.Reconciler {
	return engine.Run(b.deps.Engine, (&issuers{b.deps}).kind(kind{
		Name: cmmeta.ClusterIssuerKind, Events: b.events,
		New: func() certmanagerv1.GenericIssuer { return &certmanagerv1.ClusterIssuer{} },
	}))
}

// RingOf is ringOf.
func RingOf(kind string, ring func(types.NamespacedName)) func(types.NamespacedName) {
	return ringOf(kind, ring)
}

// Queued is how many issuers are to be looked at.
func (b *bench) Queued() int { return b.queue.Len() }

// Name is the name of the issuer that a Bench runs.
func Name() types.NamespacedName { return name }

// Deps are those of the bench.
func (b *bench) Deps() *controller.Deps { return b.deps }

// Store is its API.
func (b *bench) Store() client.Client { return b.store }

// Events are those that it has emitted.
func (b *bench) Events() <-chan string { return b.events.Events }

// Once looks at the issuer.
func (b *bench) Once(ctx context.Context) error {
	_, err := b.Reconcile(ctx, reconcile.Request{NamespacedName: name})
	return err
}

// Woken waits until the issuer is to be looked at again.
func (b *bench) Woken() {
	req, _ := b.queue.Get()
	b.queue.Done(req)
}
