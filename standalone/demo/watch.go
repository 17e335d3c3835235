package demo

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// watch keeps the board up to date until ctx ends. It returns when the board shows what there is.
func watch(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, b *board) error {
	informers, err := cache.New(config, cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return fmt.Errorf("watch the API server: %w", err)
	}
	go func() { _ = informers.Start(ctx) }() // ends with ctx
	for _, kind := range []client.Object{
		&certmanagerv1.ClusterIssuer{}, &certmanagerv1.Issuer{}, &certmanagerv1.Certificate{}, &certmanagerv1.CertificateRequest{},
		&acmev1.Order{}, &acmev1.Challenge{}, &certificatesv1.CertificateSigningRequest{},
		&certificatesv1.PodCertificateRequest{}, &corev1.Pod{}, &corev1.Event{},
	} {
		informer, err := informers.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch the API server: %w", err)
		}
		handle, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { b.seen(o) },
			UpdateFunc: func(_, o any) { b.seen(o) },
			DeleteFunc: func(o any) { b.gone(o) },
		})
		if err != nil {
			return fmt.Errorf("watch the API server: %w", err)
		}
		if !toolscache.WaitForCacheSync(ctx.Done(), handle.HasSynced) {
			return ctx.Err()
		}
	}
	return nil
}
