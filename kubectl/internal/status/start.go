package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/machine/shim"
	"chancery.dev/internal/pki"
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
	kindIssuer         = cmmeta.DefaultIssuerKind
	kindClusterIssuer  = cmmeta.ClusterIssuerKind
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
		{Prefix: "order/", GroupVersionKind: acmev1.SchemeGroupVersion().WithKind(kindOrder)},
		{Prefix: "challenge/", GroupVersionKind: acmev1.SchemeGroupVersion().WithKind(kindChallenge)},
		{Prefix: "issuer/", GroupVersionKind: certmanagerv1.SchemeGroupVersion().WithKind(kindIssuer)},
		{Prefix: "clusterissuer/", GroupVersionKind: certmanagerv1.SchemeGroupVersion().WithKind(kindClusterIssuer)},
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
	case "issuer", "issuers":
		return kindIssuer, name
	case "clusterissuer", "clusterissuers":
		return kindClusterIssuer, name
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

// asksForIssuer reports whether an argument names an issuer.
func asksForIssuer(arg string) bool {
	kind, _ := split(arg)
	return kind == kindIssuer || kind == kindClusterIssuer
}

// start is what an argument leads to: the Certificates that it is about, or a request of no Certificate.
type start struct {
	arg string
	// is chooses Certificates; where it takes none, or does, and hint is what to say if there are none.
	is, or  func(*certmanagerv1.Certificate) bool
	hint    string
	csr     *certificatesv1.CertificateSigningRequest // its name alone, until it is read
	request *certmanagerv1.CertificateRequest
	issuer  *cmmeta.IssuerReference
	// volumes are those of a Pod for which a kubelet asks one of our issuers.
	volumes []explain.PodVolume
	// owner is the Ingress or Gateway that the argument names, and hosts are those that it serves with each Secret.
	owner explain.Node
	hosts map[string][]string
}

// startOf reads an argument, and the Ingress, Gateway, Pod, CertificateRequest, Order or Challenge that it names.
func startOf(ctx context.Context, c client.Client, namespace, arg string) (start, error) {
	s := start{arg: arg}
	kind, name := split(arg)
	named := func(crt *certmanagerv1.Certificate) bool { return crt.Name == name }
	switch kind {
	case kindSigningRequest:
		s.csr = &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
	case kindIssuer, kindClusterIssuer:
		if kind == kindIssuer && namespace == "" {
			return s, fmt.Errorf("%s: name its namespace with --namespace", arg)
		}
		s.issuer = &cmmeta.IssuerReference{Kind: kind, Name: name}
	case kindCertificate:
		s.is, s.hint = named, "see which there are: kubectl chancery list"
	case kindSecret:
		s.is = func(crt *certmanagerv1.Certificate) bool { return crt.Spec.SecretName == name }
		s.hint = "no spec.secretName names that Secret"
	case kindIngress, kindGateway:
		if namespace == "" {
			return s, fmt.Errorf("%s: name its namespace with --namespace", arg)
		}
		hosts, err := hostsOf(ctx, c, kind, client.ObjectKey{Namespace: namespace, Name: name})
		if err != nil && !apierrors.IsForbidden(err) { // the owner says enough
			return s, err
		}
		s.is = func(crt *certmanagerv1.Certificate) bool {
			_, served := hosts[crt.Spec.SecretName]
			return served || s.owner.Name != "" && ownedBy(crt, s.owner)
		}
		s.owner, s.hosts = explain.Node{Kind: kind, Namespace: namespace, Name: name}, hosts
		s.hint = "it asks for one with the annotation cert-manager.io/cluster-issuer or cert-manager.io/issuer, and names a Secret " +
			"for its hosts; its events say more: kubectl describe " + arg
	case kindRequest, kindOrder, kindChallenge, kindPod:
		return below(ctx, c, s, kind, client.ObjectKey{Namespace: namespace, Name: name})
	default:
		if name != arg {
			return s, fmt.Errorf("%s: status starts from certificate/NAME, ingress/NAME, gateway/NAME, secret/NAME, pod/NAME, "+
				"certificaterequest/NAME, order/NAME, challenge/NAME, csr/NAME, issuer/NAME, clusterissuer/NAME or a host name", arg)
		}
		s.is, s.hint = named, "see which there are: kubectl chancery list"
		s.or = func(crt *certmanagerv1.Certificate) bool { return serves(crt, name) }
	}
	return s, nil
}

// below starts from a Pod, by the Secrets that it mounts, or from a request, an Order or a Challenge, by its owners.
func below(ctx context.Context, c client.Client, s start, kind string, key client.ObjectKey) (start, error) {
	if key.Namespace == "" {
		return s, fmt.Errorf("%s: name its namespace with --namespace", s.arg)
	}
	if kind == kindPod {
		pod := &corev1.Pod{}
		err := c.Get(ctx, key, pod)
		secrets, drivers := mounted(pod)
		s.is = func(crt *certmanagerv1.Certificate) bool { return slices.Contains(secrets, crt.Spec.SecretName) }
		s.hint = "the Pod mounts no Secret of a Certificate"
		s.volumes = explain.PodVolumes(pod, nil, nil)
		if len(drivers) > 0 {
			s.hint += ". It mounts volumes of " + strings.Join(drivers, ", ") + ": if that driver asks for certificates, see " +
				"kubectl get certificaterequests, and kubectl chancery status certificaterequest/NAME"
		}
		return s, err
	}
	owners := []struct {
		kind   string
		object client.Object
	}{{kindChallenge, &acmev1.Challenge{}}, {kindOrder, &acmev1.Order{}}, {kindRequest, &certmanagerv1.CertificateRequest{}}}
	s.hint = "no Certificate and no request has made it"
	s.is = func(*certmanagerv1.Certificate) bool { return false }
	for _, o := range owners {
		if o.kind != kind {
			continue
		}
		if err := c.Get(ctx, key, o.object); err != nil {
			return s, err
		}
		owner := metav1.GetControllerOfNoCopy(o.object)
		request, is := o.object.(*certmanagerv1.CertificateRequest)
		switch {
		case owner != nil && owner.Kind == kindSigningRequest:
			s.csr = &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: owner.Name}}
			return s, nil
		case owner != nil && owner.Kind == kindCertificate:
			s.is = func(crt *certmanagerv1.Certificate) bool { return crt.Name == owner.Name }
			return s, nil
		case is:
			s.request = request
			return s, nil
		case owner == nil:
			return s, nil
		}
		kind, key.Name = owner.Kind, owner.Name
	}
	return s, nil
}

// mounted returns the Secrets that a Pod mounts, and the drivers of its CSI volumes.
func mounted(pod *corev1.Pod) (secrets, drivers []string) {
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.Secret != nil:
			secrets = append(secrets, v.Secret.SecretName)
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				if source.Secret != nil {
					secrets = append(secrets, source.Secret.Name)
				}
			}
		case v.CSI != nil:
			drivers = append(drivers, v.CSI.Driver)
		}
	}
	return secrets, drivers
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

// ownedBy reports whether a Certificate was made for an object.
func ownedBy(crt *certmanagerv1.Certificate, object explain.Node) bool {
	owner := metav1.GetControllerOfNoCopy(crt)
	return owner != nil && owner.Kind == object.Kind && owner.Name == object.Name
}

// report explains a Certificate. Where somebody else's Certificate keeps the Secret of the Ingress or the Gateway that
// was asked for, and does not have a host of it, that comes first.
func (s start) report(w *explain.Cluster, crt *certmanagerv1.Certificate) explain.Report {
	r := w.Certificate(crt)
	r.Announced = w.Announced(crt, true)
	if ownedBy(crt, s.owner) {
		return r
	}
	missing := slices.DeleteFunc(slices.Clone(s.hosts[crt.Spec.SecretName]), func(host string) bool { return serves(crt, host) })
	if len(missing) > 0 {
		whose := ""
		if owner := metav1.GetControllerOfNoCopy(crt); owner != nil {
			whose = " of " + owner.Kind + " " + owner.Name
		}
		r.Trouble = explain.Trouble{
			Class: string(cause.SecretShared), NextTry: "as soon as " + s.owner.Kind + " " + s.owner.Name + " names another Secret",
			Cause: fmt.Sprintf("%s: Secret %s belongs to Certificate %s%s, which is not for %s", s.owner.Title(), crt.Spec.SecretName, crt.Name, whose,
				strings.Join(missing, ", ")),
			WhatToDo: "Give " + s.owner.Kind + " " + s.owner.Name + " another Secret, so that it gets a Certificate of its own, or add the host to Certificate " + crt.Name,
		}
	}
	return r
}

// warning is the newest warning about an object that has none of the Certificates it asks for; empty for none, or where
// its events may not be read.
func warning(ctx context.Context, c client.Client, about explain.Node) string {
	events, said, last := &corev1.EventList{}, "", time.Time{}
	if about.Name == "" || c.List(ctx, events, client.InNamespace(about.Namespace), client.MatchingFields{
		"involvedObject.kind": about.Kind, "involvedObject.name": about.Name, "type": corev1.EventTypeWarning, "reason": shim.ReasonBadConfig,
	}) != nil {
		return ""
	}
	for i := range events.Items {
		at := events.Items[i].LastTimestamp.Time
		if at.IsZero() {
			at = events.Items[i].EventTime.Time
		}
		if at.After(last) {
			last, said = at, terminal.Line(events.Items[i].Message)
		}
	}
	return said
}

// hostsOf returns the hosts that an Ingress or a Gateway serves with TLS, by the names of the Secrets.
func hostsOf(ctx context.Context, c client.Client, kind string, key client.ObjectKey) (hosts map[string][]string, err error) {
	hosts = map[string][]string{}
	if kind == kindIngress {
		ingress := &networkingv1.Ingress{}
		err = c.Get(ctx, key, ingress)
		for _, tls := range ingress.Spec.TLS {
			hosts[tls.SecretName] = append(hosts[tls.SecretName], tls.Hosts...)
		}
		return hosts, err
	}
	gateway := &gwapiv1.Gateway{}
	err = c.Get(ctx, key, gateway)
	for _, listener := range gateway.Spec.Listeners {
		if listener.TLS == nil {
			continue
		}
		for _, ref := range listener.TLS.CertificateRefs {
			if ref.Namespace == nil || string(*ref.Namespace) == key.Namespace {
				secret := string(ref.Name)
				hosts[secret] = append(hosts[secret], hostOf(listener)...)
			}
		}
	}
	return hosts, err
}

// hostOf is the host of a listener, if it names one.
func hostOf(l gwapiv1.Listener) []string {
	if l.Hostname == nil {
		return nil
	}
	return []string{string(*l.Hostname)}
}

// serves reports whether a Certificate is for a host name.
func serves(crt *certmanagerv1.Certificate, host string) bool {
	host = pki.DNSNameKey(host)
	_, parent, _ := strings.Cut(host, ".")
	names := append([]string{crt.Spec.CommonName}, crt.Spec.DNSNames...)
	return slices.ContainsFunc(names, func(name string) bool {
		name = pki.DNSNameKey(name)
		return name == host || parent != "" && name == "*."+parent
	}) || slices.Contains(crt.Spec.IPAddresses, host)
}
