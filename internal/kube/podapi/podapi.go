// Package podapi says in which versions of certificates.k8s.io an API server has the kinds that are for Pods. All other
// code knows them as v1. Kubernetes 1.35 and 1.36 have PodCertificateRequests as v1beta1, and Kubernetes 1.33 to 1.36
// ClusterTrustBundles.
package podapi

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The versions.
const (
	V1     = "v1"
	V1Beta = "v1beta1"
)

// Versions are the versions of both kinds, the best first.
func Versions() []string { return []string{V1, V1Beta} }

// RequestKind is the kind of the requests that kubelets make.
func RequestKind() schema.GroupKind {
	return schema.GroupKind{Group: certificatesv1.GroupName, Kind: "PodCertificateRequest"}
}

// BundleKind is the kind of the bundles of roots.
func BundleKind() schema.GroupKind {
	return schema.GroupKind{Group: certificatesv1.GroupName, Kind: "ClusterTrustBundle"}
}

// RequestList returns an empty list of requests in a version.
func RequestList(version string) client.ObjectList {
	if version == V1Beta {
		return &certificatesv1beta1.PodCertificateRequestList{}
	}
	return &certificatesv1.PodCertificateRequestList{}
}

// ToV1 returns an object of v1beta1 as it is in v1, and any other as it is. The two share what they point to. V1 has no
// field for the public key of a request without a PKCS#10 request: see Client.PublicKey.
func ToV1(obj any) any {
	switch o := obj.(type) {
	case *certificatesv1beta1.PodCertificateRequest:
		return &certificatesv1.PodCertificateRequest{
			ObjectMeta: o.ObjectMeta,
			Spec: certificatesv1.PodCertificateRequestSpec{
				SignerName: o.Spec.SignerName, PodName: o.Spec.PodName, PodUID: o.Spec.PodUID,
				ServiceAccountName: o.Spec.ServiceAccountName, ServiceAccountUID: o.Spec.ServiceAccountUID,
				NodeName: o.Spec.NodeName, NodeUID: o.Spec.NodeUID, MaxExpirationSeconds: o.Spec.MaxExpirationSeconds,
				StubPKCS10Request: o.Spec.StubPKCS10Request, UnverifiedUserAnnotations: o.Spec.UnverifiedUserAnnotations,
			},
			Status: certificatesv1.PodCertificateRequestStatus(o.Status),
		}
	case *certificatesv1beta1.ClusterTrustBundle:
		return &certificatesv1.ClusterTrustBundle{ObjectMeta: o.ObjectMeta, Spec: certificatesv1.ClusterTrustBundleSpec(o.Spec)}
	default:
		return obj
	}
}

// VersionOf is the version of an object of the two kinds.
func VersionOf(obj any) string {
	switch obj.(type) {
	case *certificatesv1beta1.PodCertificateRequest, *certificatesv1beta1.ClusterTrustBundle:
		return V1Beta
	default:
		return V1
	}
}

// In is the inverse of ToV1: it returns an object of v1 in a version, and any other as it is.
func In(version string, obj client.Object) client.Object {
	if version != V1Beta {
		return obj
	}
	switch o := obj.(type) {
	case *certificatesv1.PodCertificateRequest:
		return &certificatesv1beta1.PodCertificateRequest{
			ObjectMeta: o.ObjectMeta,
			Spec: certificatesv1beta1.PodCertificateRequestSpec{
				SignerName: o.Spec.SignerName, PodName: o.Spec.PodName, PodUID: o.Spec.PodUID,
				ServiceAccountName: o.Spec.ServiceAccountName, ServiceAccountUID: o.Spec.ServiceAccountUID,
				NodeName: o.Spec.NodeName, NodeUID: o.Spec.NodeUID, MaxExpirationSeconds: o.Spec.MaxExpirationSeconds,
				StubPKCS10Request: o.Spec.StubPKCS10Request, UnverifiedUserAnnotations: o.Spec.UnverifiedUserAnnotations,
			},
			Status: certificatesv1beta1.PodCertificateRequestStatus(o.Status),
		}
	case *certificatesv1.ClusterTrustBundle:
		return &certificatesv1beta1.ClusterTrustBundle{ObjectMeta: o.ObjectMeta, Spec: certificatesv1beta1.ClusterTrustBundleSpec(o.Spec)}
	default:
		return obj
	}
}

// Client reads and writes objects of v1 in the versions that Take has named: v1 at first. It does so for Get, Create,
// Delete, Patch, and the patch of a status. Nobody makes other calls for the two kinds.
type Client struct {
	client.Client

	requests, bundles string
}

// New returns a Client over another one.
func New(api client.Client) *Client { return &Client{Client: api} }

// Take makes the Client read and write a kind in a version. Call Take before the kind is read for the first time.
func (c *Client) Take(kind schema.GroupKind, version string) {
	switch kind {
	case RequestKind():
		c.requests = version
	case BundleKind():
		c.bundles = version
	}
}

// as returns the object that is read or written in place of another one.
func (c *Client) as(obj client.Object) client.Object {
	switch obj.(type) {
	case *certificatesv1.PodCertificateRequest:
		return In(c.requests, obj)
	case *certificatesv1.ClusterTrustBundle:
		return In(c.bundles, obj)
	default:
		return obj
	}
}

// fill copies the answer to a call into the object that the call was about.
func fill(obj, answer client.Object, err error) error {
	if obj == answer || err != nil {
		return err
	}
	switch o := obj.(type) {
	case *certificatesv1.PodCertificateRequest:
		*o = *ToV1(answer).(*certificatesv1.PodCertificateRequest) //nolint:forcetypeassert // as has made it
	case *certificatesv1.ClusterTrustBundle:
		*o = *ToV1(answer).(*certificatesv1.ClusterTrustBundle) //nolint:forcetypeassert // as has made it
	}
	return nil
}

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	as := c.as(obj)
	return fill(obj, as, c.Client.Get(ctx, key, as, opts...))
}

// Create implements client.Writer.
func (c *Client) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	as := c.as(obj)
	return fill(obj, as, c.Client.Create(ctx, as, opts...))
}

// Delete implements client.Writer.
func (c *Client) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return c.Client.Delete(ctx, c.as(obj), opts...)
}

// Patch implements client.Writer.
func (c *Client) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	as, patch, err := c.patch(obj, patch)
	if err != nil {
		return err
	}
	return fill(obj, as, c.Client.Patch(ctx, as, patch, opts...))
}

// patch returns what is patched in place of an object, and the patch for it: a patch compares objects of one type.
func (c *Client) patch(obj client.Object, patch client.Patch) (client.Object, client.Patch, error) {
	as := c.as(obj)
	if as == obj {
		return as, patch, nil
	}
	data, err := patch.Data(obj)
	return as, client.RawPatch(patch.Type(), data), err
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return status{c.Client.Status(), c} }

type status struct {
	client.SubResourceWriter

	of *Client
}

// Patch implements client.SubResourceWriter.
func (s status) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	as, patch, err := s.of.patch(obj, patch)
	if err != nil {
		return err
	}
	return fill(obj, as, s.SubResourceWriter.Patch(ctx, as, patch, opts...))
}

// PublicKey reads the public key of a request without a PKCS#10 request, as kubelets of Kubernetes 1.35 make them. The
// key is PKIX, ASN.1 DER, and the API server has verified that the kubelet has the private key. Live reads from the API
// server, which has the key in v1beta1 alone; where that is the version taken, the cache has it. The key is empty if
// the request has a verdict by now, or is another one of that name.
func (c *Client) PublicKey(ctx context.Context, live client.Reader, request client.Object) ([]byte, error) {
	if c.requests == V1Beta {
		live = c.Client
	}
	beta := &certificatesv1beta1.PodCertificateRequest{}
	err := live.Get(ctx, client.ObjectKeyFromObject(request), beta)
	if beta.UID != request.GetUID() {
		return nil, err
	}
	return beta.Spec.PKIXPublicKey, err //nolint:staticcheck // kubelets of 1.35 send it
}
