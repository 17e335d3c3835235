package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
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

// secretMetadata is how the metadata of Secrets is asked for.
func secretMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}

// SecretSource reconciles what depends on a Secret whenever its metadata changes.
func SecretSource(metadata cache.Cache, dependents func(context.Context, client.Object) []reconcile.Request,
	when ...predicate.TypedPredicate[*metav1.PartialObjectMetadata],
) source.Source {
	return source.Kind(metadata, secretMetadata(), handler.TypedEnqueueRequestsFromMapFunc(
		func(ctx context.Context, s *metav1.PartialObjectMetadata) []reconcile.Request {
			return dependents(ctx, s)
		}), when...)
}
