// Package informers defines how the informers of a process list objects, which parts of an object they keep, and when
// they have synced.
//
// Informers list objects in pages (NewPagedInformer). They keep only the parts of an object that decisions need
// (ThinCertificate, Requests). The type Requests keeps the PKCS#10 request and the certificate of an issued
// CertificateRequest, until the Certificate has stored both. Following knows which objects to look at when another
// object changes. Secrets have watches of their own: package secrets.
package informers

import toolscache "k8s.io/client-go/tools/cache"

// LastOf returns the object that an event of an informer is about, as it was last seen.
func LastOf[T any](obj any) (T, bool) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	t, ok := obj.(T)
	return t, ok
}
