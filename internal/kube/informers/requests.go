package informers

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// Requests keeps the PKCS#10 request and the certificate of each issued CertificateRequest of a Certificate, until the
// Certificate has stored them. The watch cache passes each CertificateRequest to Transform, and keeps the result.
// Requests forgets a CertificateRequest that is deleted.
type Requests struct {
	mu     sync.Mutex
	issued map[types.UID]issued
}

type issued struct{ request, chain, ca []byte }

// NewRequests returns Requests that keep nothing yet.
func NewRequests() *Requests { return &Requests{issued: map[types.UID]issued{}} }

// away is what the cached status has in place of a certificate that Requests keeps, or that nothing needs.
const away = "-"

// IsStripped reports whether the PKCS#10 request and the certificate were taken out of a CertificateRequest.
func IsStripped(r *certmanagerv1.CertificateRequest) bool {
	return bytes.Equal(r.Status.Certificate, []byte(away))
}

// Transform is the cache.TransformFunc of CertificateRequests. It drops the identity of the requester: only approvers
// need it.
func (b *Requests) Transform(obj any) (any, error) {
	r, ok := obj.(*certmanagerv1.CertificateRequest)
	if !ok {
		return obj, nil
	}
	thin(&r.ObjectMeta)
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
	share(&r.Spec.IssuerRef.Name, &r.Spec.IssuerRef.Kind, &r.Spec.IssuerRef.Group)
	r.Spec.Usages, r.Status.Conditions = slices.Clone(r.Spec.Usages), slices.Clone(r.Status.Conditions) // to drop the spare capacity that decoders leave
	for i := range r.Spec.Usages {
		share(&r.Spec.Usages[i])
	}
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		share(&c.Type)
		share(&c.Status)
		share(&c.Reason, &c.Message)
	}
	if len(r.Status.Certificate) == 0 || IsStripped(r) {
		return r, nil
	}
	if owner := metav1.GetControllerOfNoCopy(r); owner != nil && owner.Kind == certmanagerv1.CertificateKind {
		b.mu.Lock()
		b.issued[r.UID] = issued{r.Spec.Request, r.Status.Certificate, r.Status.CA}
		b.mu.Unlock()
	}
	r.Spec.Request, r.Status.Certificate, r.Status.CA = nil, []byte(away), nil
	return r, nil
}

// Complete puts the PKCS#10 request and the certificate back into r, a copy of a CertificateRequest in the cache. It
// returns false if they are not kept any more.
func (b *Requests) Complete(r *certmanagerv1.CertificateRequest) bool {
	if !IsStripped(r) {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.issued[r.UID]
	if ok {
		r.Spec.Request, r.Status.Certificate, r.Status.CA = known.request, known.chain, known.ca
	}
	return ok
}

// Forget drops what is kept of a request: its certificate is stored, or never will be.
func (b *Requests) Forget(request types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.issued, request)
}

// Connect makes the watch tell of requests that are deleted. It is called once, at the start.
func (b *Requests) Connect(ctx context.Context, from cache.Informers) error {
	informer, err := from.GetInformer(ctx, &certmanagerv1.CertificateRequest{})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: b.gone})
	return err
}

// gone forgets a request.
func (b *Requests) gone(obj any) {
	if r, ok := LastOf[*certmanagerv1.CertificateRequest](obj); ok {
		b.Forget(r.UID)
	}
}

// ThinCertificate is the cache.TransformFunc of Certificates.
func ThinCertificate(obj any) (any, error) {
	crt, ok := obj.(*certmanagerv1.Certificate)
	if !ok {
		return obj, nil
	}
	thin(&crt.ObjectMeta)
	share(&crt.Spec.IssuerRef.Name, &crt.Spec.IssuerRef.Kind, &crt.Spec.IssuerRef.Group)
	crt.Spec.DNSNames, crt.Status.Conditions = slices.Clone(crt.Spec.DNSNames), slices.Clone(crt.Status.Conditions)
	for i := range crt.Status.Conditions {
		c := &crt.Status.Conditions[i]
		share(&c.Type)
		share(&c.Status)
		share(&c.Reason, &c.Message)
	}
	return crt, nil
}

// thin drops what nothing reads, and shares the strings that many objects have.
func thin(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	share(&m.Namespace)
	m.OwnerReferences = slices.Clone(m.OwnerReferences)
	for i := range m.OwnerReferences {
		share(&m.OwnerReferences[i].APIVersion, &m.OwnerReferences[i].Kind)
	}
	m.Labels, m.Annotations = shareKeys(m.Labels), shareKeys(m.Annotations)
}

func shareKeys(all map[string]string) map[string]string {
	if all == nil {
		return nil
	}
	out := make(map[string]string, len(all))
	for key, value := range all {
		out[unique.Make(key).Value()] = value
	}
	return out
}

// share replaces strings by ones that are in memory once.
func share[S ~string](all ...*S) {
	for _, s := range all {
		*s = S(unique.Make(string(*s)).Value())
	}
}
