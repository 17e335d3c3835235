package status

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/kubectl/internal/plugin"
)

// The kinds that an argument may name.
const (
	kindCertificate    = "Certificate"
	kindIngress        = "Ingress"
	kindGateway        = "Gateway"
	kindSecret         = "Secret"
	kindSigningRequest = "CertificateSigningRequest"
	kindRequest        = "CertificateRequest"
	kindOrder          = "Order"
	kindChallenge      = "Challenge"
	kindPod            = "Pod"
)

// kinds are those whose names a shell completes.
func kinds() []plugin.Kind {
	return []plugin.Kind{
		plugin.Certificates(),
		{Prefix: "ingress/", GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind(kindIngress)},
		{Prefix: "gateway/", GroupVersionKind: schema.GroupVersionKind{Group: gwapiv1.GroupName, Version: "v1", Kind: kindGateway}},
		{Prefix: "secret/", GroupVersionKind: corev1.SchemeGroupVersion.WithKind(kindSecret)},
		{Prefix: "pod/", GroupVersionKind: corev1.SchemeGroupVersion.WithKind(kindPod)},
		{Prefix: "certificaterequest/", GroupVersionKind: certmanagerv1.SchemeGroupVersion().WithKind(kindRequest)},
		{Prefix: "csr/", GroupVersionKind: certificatesv1.SchemeGroupVersion.WithKind(kindSigningRequest)},
	}
}

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
	case "certificaterequest", "certificaterequests", "cr", "crs":
		return kindRequest, name
	case "order", "orders":
		return kindOrder, name
	case "challenge", "challenges":
		return kindChallenge, name
	case "pod", "pods", "po":
		return kindPod, name
	default:
		return "", name
	}
}

// slashed reads arguments that begin with a kind, as in "certificate web", which kubectl and cmctl take.
func slashed(args []string) []string {
	if len(args) < 2 || strings.Contains(args[0], "/") {
		return args
	}
	if kind, _ := split(args[0] + "/"); kind == "" {
		return args
	}
	var out []string
	for _, name := range args[1:] {
		out = append(out, args[0]+"/"+name)
	}
	return out
}

// asksForSigningRequest reports whether an argument names a CertificateSigningRequest.
func asksForSigningRequest(arg string) bool {
	kind, _ := split(arg)
	return kind == kindSigningRequest
}

// start is what an argument leads to: the Certificates that it is about, or a CertificateSigningRequest.
type start struct {
	arg string
	// is chooses Certificates; where it takes none, or does, and hint is what to say if there are none.
	is, or         func(*certmanagerv1.Certificate) bool
	hint           string
	signingRequest string
}

// startOf reads an argument. It asks for an Ingress or a Gateway, and for nothing else.
func startOf(ctx context.Context, c client.Client, namespace, arg string) (start, error) {
	s := start{arg: arg}
	kind, name := split(arg)
	named := func(crt *certmanagerv1.Certificate) bool { return crt.Name == name }
	switch kind {
	case kindSigningRequest:
		s.signingRequest = name
	case kindCertificate:
		s.is, s.hint = named, "see which there are: kubectl chancery list"
	case kindSecret:
		s.is = func(crt *certmanagerv1.Certificate) bool { return crt.Spec.SecretName == name }
		s.hint = "no spec.secretName names that Secret"
	case kindIngress, kindGateway:
		if namespace == "" {
			return s, fmt.Errorf("%s: name its namespace with --namespace", arg)
		}
		secrets, err := secretsOf(ctx, c, kind, client.ObjectKey{Namespace: namespace, Name: name})
		if err != nil && !apierrors.IsForbidden(err) { // the owner says enough
			return s, err
		}
		s.is = func(crt *certmanagerv1.Certificate) bool {
			owner := metav1.GetControllerOfNoCopy(crt)
			return owner != nil && owner.Kind == kind && owner.Name == name || slices.Contains(secrets, crt.Spec.SecretName)
		}
		s.hint = "it asks for one with the annotation cert-manager.io/cluster-issuer or cert-manager.io/issuer, and names a Secret " +
			"for its hosts; its events say more: kubectl describe " + arg
	case kindRequest, kindOrder, kindChallenge, kindPod:
		return below(ctx, c, s, kind, client.ObjectKey{Namespace: namespace, Name: name})
	default:
		if name != arg {
			return s, fmt.Errorf("%s: status starts from certificate/NAME, ingress/NAME, gateway/NAME, secret/NAME, pod/NAME, "+
				"certificaterequest/NAME, order/NAME, challenge/NAME, csr/NAME or a host name", arg)
		}
		s.is, s.hint = named, "see which there are: kubectl chancery list"
		s.or = func(crt *certmanagerv1.Certificate) bool { return serves(crt, name) }
	}
	return s, nil
}

// below starts from a Pod, which mounts Secrets, or from what was made for a Certificate, by its owners.
func below(ctx context.Context, c client.Client, s start, kind string, key client.ObjectKey) (start, error) {
	if key.Namespace == "" {
		return s, fmt.Errorf("%s: name its namespace with --namespace", s.arg)
	}
	if kind == kindPod {
		pod := &corev1.Pod{}
		err := c.Get(ctx, key, pod)
		s.is = func(crt *certmanagerv1.Certificate) bool {
			return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
				return v.Secret != nil && v.Secret.SecretName == crt.Spec.SecretName
			})
		}
		s.hint = "the Pod mounts no Secret of a Certificate"
		return s, err
	}
	owners := []struct {
		kind   string
		object client.Object
	}{{kindChallenge, &acmev1.Challenge{}}, {kindOrder, &acmev1.Order{}}, {kindRequest, &certmanagerv1.CertificateRequest{}}}
	s.hint = "no Certificate has made it"
	s.is = func(*certmanagerv1.Certificate) bool { return false }
	for _, o := range owners {
		if o.kind != kind {
			continue
		}
		if err := c.Get(ctx, key, o.object); err != nil {
			return s, err
		}
		owner := metav1.GetControllerOfNoCopy(o.object)
		switch {
		case owner == nil:
			return s, nil
		case owner.Kind == kindSigningRequest:
			s.signingRequest = owner.Name
			return s, nil
		case owner.Kind == kindCertificate:
			s.is = func(crt *certmanagerv1.Certificate) bool { return crt.Name == owner.Name }
			return s, nil
		}
		kind, key.Name = owner.Kind, owner.Name
	}
	return s, nil
}

// find returns the Certificates that the argument leads to; an error if there is none.
func (s start) find(all []*certmanagerv1.Certificate) ([]*certmanagerv1.Certificate, error) {
	for _, is := range []func(*certmanagerv1.Certificate) bool{s.is, s.or} {
		if is == nil {
			continue
		}
		found := slices.DeleteFunc(slices.Clone(all), func(crt *certmanagerv1.Certificate) bool { return !is(crt) })
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, fmt.Errorf("no Certificate is found for %s: %s", s.arg, s.hint)
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
