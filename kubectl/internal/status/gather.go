package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/explain"
)

// Query says what to explain.
type Query struct {
	// Namespace to look in; empty for all.
	Namespace string
	// Selector chooses Certificates by their labels.
	Selector labels.Selector
	// Args name Certificates, or what leads to them: kind/name, or a host name. Without any, all are explained.
	Args []string
	// Brief reads what was made for the Certificates only if one of them is not ready.
	Brief bool
}

// Gather reads what is known, in six requests at most, and one more for each Ingress, Gateway or
// CertificateSigningRequest that is named. It needs the rights of the role view.
func Gather(ctx context.Context, c client.Client, q Query, now time.Time) ([]explain.Report, error) {
	w, certificates, err := world(ctx, c, q, now)
	if err != nil {
		return nil, err
	}
	if len(q.Args) == 0 {
		var reports []explain.Report
		for _, crt := range certificates {
			reports = append(reports, w.Certificate(crt))
		}
		return reports, nil
	}
	var reports []explain.Report
	for _, arg := range q.Args {
		if asksForSigningRequest(arg) {
			_, name := split(arg)
			csr := &certificatesv1.CertificateSigningRequest{}
			if err := c.Get(ctx, client.ObjectKey{Name: name}, csr); err != nil {
				return nil, err
			}
			reports = append(reports, w.SigningRequest(csr))
			continue
		}
		found, err := find(ctx, c, q.Namespace, arg, certificates)
		if err != nil {
			return nil, err
		}
		for _, crt := range found {
			reports = append(reports, w.Certificate(crt))
		}
	}
	return reports, nil
}

// world reads the objects of the chain.
func world(ctx context.Context, c client.Client, q Query, now time.Time) (*explain.World, []*certmanagerv1.Certificate, error) {
	var objects []metav1.Object
	var certificates []*certmanagerv1.Certificate
	unread := map[string]bool{}
	for _, list := range lists() {
		if q.Brief && len(objects) > 0 && !slices.ContainsFunc(certificates, troubled) {
			break
		}
		err := c.List(ctx, list, client.InNamespace(q.namespaceOf(list)))
		switch _, needed := list.(*certmanagerv1.CertificateList); {
		case apierrors.IsForbidden(err) && !needed:
			unread[kindOf(list)] = true
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("read the %s list: %w", kindOf(list), err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error { // the function gives no error
			if crt, is := o.(*certmanagerv1.Certificate); is && q.Selector.Matches(labels.Set(crt.Labels)) {
				certificates = append(certificates, crt)
			}
			if object, is := o.(metav1.Object); is {
				objects = append(objects, object)
			}
			return nil
		})
	}
	return explain.NewWorld(objects, unread, now), certificates, nil
}

// namespaceOf is where the objects of a list are looked for. The Order for a CertificateSigningRequest is in the
// controller's namespace, which nobody knows here.
func (q Query) namespaceOf(list client.ObjectList) string {
	switch list.(type) {
	case *certmanagerv1.ClusterIssuerList:
		return ""
	case *acmev1.OrderList, *acmev1.ChallengeList:
		if slices.ContainsFunc(q.Args, asksForSigningRequest) {
			return ""
		}
	}
	return q.Namespace
}

// troubled reports whether there is more to say of a Certificate than that it is good.
func troubled(crt *certmanagerv1.Certificate) bool { return explain.Describe(crt).State != "ready" }

func lists() []client.ObjectList {
	return []client.ObjectList{
		&certmanagerv1.CertificateList{}, &certmanagerv1.CertificateRequestList{}, &acmev1.OrderList{}, &acmev1.ChallengeList{},
		&certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{},
	}
}

// kindOf is the kind of a list's items.
func kindOf(list client.ObjectList) string {
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", list), "*v1."), "List")
}

// The kinds that an argument may name.
const (
	kindCertificate    = "Certificate"
	kindIngress        = "Ingress"
	kindGateway        = "Gateway"
	kindSecret         = "Secret"
	kindSigningRequest = "CertificateSigningRequest"
)

// split returns the kind and the name of an argument; no kind for a bare name, or for one that is not known.
func split(arg string) (kind, name string) {
	kind, name, given := strings.Cut(arg, "/")
	if !given {
		return "", arg
	}
	switch strings.ToLower(kind) {
	case "certificate", "certificates", "cert", "certs", "certificate.cert-manager.io":
		return kindCertificate, name
	case "ingress", "ingresses", "ing":
		return kindIngress, name
	case "gateway", "gateways", "gtw":
		return kindGateway, name
	case "secret", "secrets":
		return kindSecret, name
	case "certificatesigningrequest", "certificatesigningrequests", "csr":
		return kindSigningRequest, name
	default:
		return "", name
	}
}

// asksForSigningRequest reports whether an argument names a CertificateSigningRequest.
func asksForSigningRequest(arg string) bool {
	kind, _ := split(arg)
	return kind == kindSigningRequest
}

// find returns the Certificates that an argument leads to; an error if there is none.
func find(ctx context.Context, c client.Client, namespace, arg string, all []*certmanagerv1.Certificate) ([]*certmanagerv1.Certificate, error) {
	kind, name := split(arg)
	which := func(is func(*certmanagerv1.Certificate) bool) []*certmanagerv1.Certificate {
		return slices.DeleteFunc(slices.Clone(all), func(crt *certmanagerv1.Certificate) bool { return !is(crt) })
	}
	var found []*certmanagerv1.Certificate
	var hint string
	switch {
	case kind == kindCertificate || kind == "" && name == arg:
		found = which(func(crt *certmanagerv1.Certificate) bool { return crt.Name == name })
		if len(found) == 0 && kind == "" {
			found = which(func(crt *certmanagerv1.Certificate) bool { return serves(crt, name) })
		}
		hint = "see which there are: kubectl chancery list"
	case kind == kindSecret:
		found = which(func(crt *certmanagerv1.Certificate) bool { return crt.Spec.SecretName == name })
		hint = "no spec.secretName names that Secret"
	case kind == kindIngress || kind == kindGateway:
		if namespace == "" {
			return nil, fmt.Errorf("%s: name its namespace with --namespace", arg)
		}
		secrets, err := secretsOf(ctx, c, kind, client.ObjectKey{Namespace: namespace, Name: name})
		if err != nil && !apierrors.IsForbidden(err) { // the owner says enough
			return nil, err
		}
		found = which(func(crt *certmanagerv1.Certificate) bool {
			owner := metav1.GetControllerOfNoCopy(crt)
			return owner != nil && owner.Kind == kind && owner.Name == name || slices.Contains(secrets, crt.Spec.SecretName)
		})
		hint = "it asks for one with the annotation cert-manager.io/cluster-issuer or cert-manager.io/issuer, and names a Secret " +
			"for its hosts; its events say more: kubectl describe " + arg
	default:
		return nil, fmt.Errorf("%s: status starts from certificate/NAME, ingress/NAME, gateway/NAME, secret/NAME, csr/NAME or a host name", arg)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no Certificate is found for %s: %s", arg, hint)
	}
	return found, nil
}

// secretsOf returns the names of the Secrets that an Ingress or a Gateway serves TLS with.
func secretsOf(ctx context.Context, c client.Client, kind string, key client.ObjectKey) (secrets []string, err error) {
	if kind == kindIngress {
		ingress := &networkingv1.Ingress{}
		err = c.Get(ctx, key, ingress)
		for _, tls := range ingress.Spec.TLS {
			secrets = append(secrets, tls.SecretName)
		}
		return secrets, err
	}
	gateway := &gwapiv1.Gateway{}
	err = c.Get(ctx, key, gateway)
	for _, listener := range gateway.Spec.Listeners {
		if listener.TLS == nil {
			continue
		}
		for _, ref := range listener.TLS.CertificateRefs {
			if ref.Namespace == nil || string(*ref.Namespace) == key.Namespace {
				secrets = append(secrets, string(ref.Name))
			}
		}
	}
	return secrets, err
}

// serves reports whether a Certificate is for a host name.
func serves(crt *certmanagerv1.Certificate, host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	_, parent, _ := strings.Cut(host, ".")
	names := append([]string{crt.Spec.CommonName}, crt.Spec.DNSNames...)
	return slices.ContainsFunc(names, func(name string) bool {
		name = strings.ToLower(name)
		return name == host || parent != "" && name == "*."+parent
	}) || slices.Contains(crt.Spec.IPAddresses, host)
}
