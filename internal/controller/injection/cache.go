package injection

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/injection"
)

// Transform is a cache.TransformFunc. It drops the metadata of injectables that decisions do not need, and leaves all
// other objects to next. A definition has annotations and managed fields of a hundred kilobytes.
func Transform(next toolscache.TransformFunc) toolscache.TransformFunc {
	kinds := map[string]bool{}
	for _, kind := range Kinds() {
		kinds[kind.String()] = true
	}
	return func(obj any) (any, error) {
		m, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok || !kinds[m.GroupVersionKind().String()] {
			return next(obj)
		}
		return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
			DeletionTimestamp: m.DeletionTimestamp, Annotations: injection.Keep(m.Annotations),
		}}, nil
	}
}

// OnlySecretNames is a cache.TransformFunc for a process that needs only the names of Certificates and of their
// Secrets. It drops the rest.
func OnlySecretNames(obj any) (any, error) {
	crt, ok := obj.(*certmanagerv1.Certificate)
	if !ok {
		return obj, nil
	}
	return &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Namespace: crt.Namespace, Name: crt.Name, UID: crt.UID, ResourceVersion: crt.ResourceVersion},
		Spec:       certmanagerv1.CertificateSpec{SecretName: crt.Spec.SecretName},
	}, nil
}
