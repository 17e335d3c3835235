package acmeorder

import (
	"net"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// Order implements signer.Orderer (spec §3.4, §4.5).
func (s *Adapter) Order(issuer certmanagerv1.GenericIssuer, r signer.Request) (*acmev1.Order, error) {
	spec := issuer.GetSpec().ACME
	csr, err := pki.ParseCSR(r.CSR)
	if err != nil {
		return nil, fault.Failed(fault.ClassPermanent, reasonRequestParsing, "Failed to decode CSR in spec.request: %w", err)
	}
	want := acmev1.OrderSpec{Request: r.CSR, CommonName: csr.Subject.CommonName, DNSNames: csr.DNSNames}
	for _, ip := range csr.IPAddresses {
		want.IPAddresses = append(want.IPAddresses, ip.String())
	}
	isName := func(name string) bool { return pki.IsIA5(want.CommonName) && strings.EqualFold(name, want.CommonName) }
	if cn := want.CommonName; cn != "" && !slices.ContainsFunc(want.DNSNames, isName) && !hasAddress(csr.IPAddresses, cn) {
		return nil, fault.Failed(fault.ClassPermanent, reasonInvalidOrder,
			"The CSR PEM requests a commonName that is not present in the list of dnsNames or ipAddresses. If a commonName is set, ACME requires that the value is also present in the list of dnsNames or ipAddresses: %q does not exist in %q or %q",
			cn, want.DNSNames, want.IPAddresses)
	}
	if len(want.DNSNames)+len(want.IPAddresses) == 0 {
		return nil, fault.Failed(fault.ClassPermanent, reasonInvalidOrder,
			"an ACME server proves DNS names and IP addresses only, and the request has none: add dnsNames or ipAddresses, or choose another issuer")
	}
	meta := metav1.ObjectMeta{Namespace: r.ResourceNamespace, Labels: r.Source.GetLabels(), Annotations: r.Source.GetAnnotations()}
	owner := certmanagerv1.SchemeGroupVersion().WithKind(certmanagerv1.CertificateRequestKind)
	if cr, ok := r.Source.(*certmanagerv1.CertificateRequest); ok {
		want.IssuerRef, want.Profile = cr.Spec.IssuerRef, spec.Profile
		if spec.EnableDurationFeature {
			want.Duration = cr.Spec.Duration
		}
	} else {
		owner = schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: r.SourceKind}
		want.IssuerRef = cmmeta.IssuerReference{Name: r.IssuerName, Kind: r.IssuerKind, Group: r.IssuerGroup}
		if spec.EnableDurationFeature {
			want.Duration = &metav1.Duration{Duration: r.Duration}
		}
		if s.Annotations != nil {
			meta.Annotations = s.Annotations(meta.Annotations)
		}
	}
	profile, chosen := r.Source.GetAnnotations()[acmev1.ProfileAnnotation]
	if chosen {
		want.Profile = profile
	}
	meta.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r.Source, owner)}
	if meta.Name, err = nameOf(r, want); err != nil {
		return nil, fault.Failed(fault.ClassPermanent, reasonOrderBuilding, "Failed to build order: %w", err)
	}
	if !chosen { // cert-manager's Orders for CertificateSigningRequests have none: they are found by the same name
		want.Profile = spec.Profile
	}
	// A copy: the answer to its creation is read into it, and the request is shared.
	o := (&acmev1.Order{ObjectMeta: meta, Spec: want}).DeepCopy()
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, order.ProcessAnnotation, s.Process)
	return o, nil
}

func hasAddress(addresses []net.IP, text string) bool {
	ip := net.ParseIP(text)
	return ip != nil && slices.ContainsFunc(addresses, ip.Equal)
}

// longName is the length from which the name of a request is cut in its Order's
// (spec §3.4), and is hashed instead.
const longName = 52

// nameOf names the Order after its request, so that there is never a second one. What
// the Order replaces has no part in its name, although it has upstream: the Secret may
// change while the Order is under way, and the request would order a second time.
func nameOf(r signer.Request, spec acmev1.OrderSpec) (string, error) {
	name := r.Source.GetName()
	if r.SourceKind == certmanagerv1.CertificateRequestKind || len(name) < longName {
		return order.Name(name, spec)
	}
	spec.Request = nil
	return acmeflow.ComputeName(name, struct {
		CertificateSigningRequestName string           `json:"certificateSigningRequestName"`
		Spec                          acmev1.OrderSpec `json:"spec"`
	}{name, spec})
}
