package shim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/limits"
)

// The kinds that an Object can be.
const (
	KindIngress     = "Ingress"
	KindGateway     = "Gateway"
	KindListenerSet = "ListenerSet"
)

// objectOf returns an Object without its parts.
func objectOf(of metav1.Object, apiVersion, kind string) Object {
	return Object{
		Owner: metav1.OwnerReference{
			APIVersion: apiVersion, Kind: kind, Name: of.GetName(), UID: of.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
		},
		Namespace: of.GetNamespace(), Labels: of.GetLabels(), Annotations: of.GetAnnotations(),
		Idle:      of.GetDeletionTimestamp() != nil || slices.Contains(of.GetFinalizers(), metav1.FinalizerDeleteDependents),
		Overrides: map[string]string{},
	}
}

// FromIngress reduces an Ingress.
func FromIngress(in *networkingv1.Ingress) Object {
	o := objectOf(in, networkingv1.SchemeGroupVersion.String(), KindIngress)
	count, hosts := len(in.Spec.TLS), 0
	for _, entry := range in.Spec.TLS[:min(count, limits.ShimEntries)] {
		hosts += len(entry.Hosts)
	}
	if o.TooLarge = tooMany("spec.tls", count, hosts, count); o.TooLarge != "" {
		return o
	}
	for i, entry := range in.Spec.TLS {
		part := Part{Where: "spec.tls[" + strconv.Itoa(i) + "]", Hosts: entry.Hosts}
		if entry.SecretName != "" {
			part.Secrets = []string{entry.SecretName}
		}
		switch {
		case entry.SecretName == "":
			part.Problem = "has no secretName: name the Secret that the certificate is kept in"
		case len(entry.Hosts) == 0:
			part.Problem = "has no hosts: name those that the certificate is for"
		}
		o.Parts = append(o.Parts, part)
	}
	if o.isTrue(acmev1.HTTP01EditInPlaceAnnotation) {
		o.Overrides[acmev1.OverrideIngressNameAnnotation] = in.Name
		o.Overrides[certmanagerv1.IssueTemporaryAnnotation] = "true"
	}
	for from, to := range map[string]string{
		acmev1.HTTP01IngressClassAnnotation:     acmev1.OverrideIngressClassAnnotation,
		acmev1.HTTP01IngressClassNameAnnotation: acmev1.OverrideIngressClassNameAnnotation,
	} {
		if value := in.Annotations[from]; value != "" {
			o.Overrides[to] = value
		}
	}
	return o
}

// FromGateway reduces a Gateway.
func FromGateway(g *gwapiv1.Gateway, s Settings) Object {
	o := objectOf(g, gwapiv1.GroupVersion.String(), KindGateway)
	o.listeners(g.Spec.Listeners, s)
	o.Overrides[acmev1.ParentRefKindAnnotation], o.Overrides[acmev1.ParentRefNameAnnotation] = KindGateway, g.Name
	return o
}

// FromListenerSet reduces a ListenerSet; parent is its Gateway, nil if that does not exist.
func FromListenerSet(set *gwapiv1.ListenerSet, parent *gwapiv1.Gateway, s Settings) Object {
	o := objectOf(set, gwapiv1.GroupVersion.String(), KindListenerSet)
	if parent == nil {
		o.Idle = true
		return o
	}
	if !Triggered(o.Annotations, nil) { // the kind and the group belong to the name: they are inherited with it
		o.Annotations = maps.Clone(o.Annotations)
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		for _, key := range issuerAnnotations {
			delete(o.Annotations, key)
			if value, ok := parent.Annotations[key]; ok {
				o.Annotations[key] = value
			}
		}
	}
	listeners := make([]gwapiv1.Listener, 0, len(set.Spec.Listeners))
	for _, l := range set.Spec.Listeners {
		listeners = append(listeners, gwapiv1.Listener{Name: l.Name, Hostname: l.Hostname, Protocol: l.Protocol, TLS: l.TLS})
	}
	o.listeners(listeners, s)
	o.Overrides[acmev1.ParentRefKindAnnotation], o.Overrides[acmev1.ParentRefNameAnnotation] = KindListenerSet, set.Name
	if o.isTrue(acmev1.HTTP01ParentRefFallbackAnnotation) {
		o.Overrides[acmev1.ParentRefKindAnnotation], o.Overrides[acmev1.ParentRefNameAnnotation] = KindGateway, parent.Name
		o.Overrides[acmev1.ParentRefNamespaceAnnotation] = parent.Namespace
	}
	return o
}

// issuerAnnotations name an issuer.
var issuerAnnotations = []string{
	certmanagerv1.IngressIssuerAnnotation, certmanagerv1.IngressClusterIssuerAnnotation, certmanagerv1.IssuerKindAnnotation, certmanagerv1.IssuerGroupAnnotation,
}

// listeners reduces the listeners of the Object.
func (o *Object) listeners(list []gwapiv1.Listener, s Settings) {
	secrets := 0
	for _, l := range list {
		if l.TLS != nil {
			secrets += len(l.TLS.CertificateRefs)
		}
	}
	if o.TooLarge = tooMany("spec.listeners", len(list), len(list), secrets); o.TooLarge != "" {
		return
	}
	ignored := o.ignored()
	silent, there := setOf(ignored), map[string]bool{}
	for _, l := range list {
		there[string(l.Name)] = true
		o.Parts = append(o.Parts, o.listener(l, silent[string(l.Name)], s))
	}
	for _, name := range ignored {
		if !there[name] {
			o.Notes = append(o.Notes, fmt.Sprintf("the annotation %s names %s, which is not there: correct the name, or remove it",
				certmanagerv1.GatewayIgnoreListenersAnnotation, whereOf(short(name))))
		}
	}
}

// listener reduces a listener of the Object.
func (o *Object) listener(l gwapiv1.Listener, ignored bool, s Settings) Part {
	part := Part{Where: whereOf(string(l.Name))}
	secure := l.Protocol == gwapiv1.HTTPSProtocolType || l.Protocol == gwapiv1.TLSProtocolType || slices.Contains(s.ExtraProtocols, string(l.Protocol))
	var foreign []string
	if l.TLS != nil {
		for _, ref := range l.TLS.CertificateRefs {
			if why := o.foreign(ref); why != "" {
				foreign = append(foreign, why)
			} else {
				part.Secrets = append(part.Secrets, string(ref.Name))
			}
		}
	}
	if l.Hostname != nil && *l.Hostname != "" {
		part.Hosts = []string{string(*l.Hostname)}
	}
	switch {
	case !secure, ignored:
		part.Silent = true
	case l.TLS != nil && l.TLS.Mode != nil && *l.TLS.Mode == gwapiv1.TLSModePassthrough:
		part.Silent = true
	case l.TLS == nil:
		part.Problem = "has no tls: name the Secret that the certificate is kept in, by tls.certificateRefs"
	case l.TLS.Mode != nil && *l.TLS.Mode != gwapiv1.TLSModeTerminate:
		part.Problem = fmt.Sprintf("has tls.mode %q: a certificate is made for %s", *l.TLS.Mode, gwapiv1.TLSModeTerminate)
	case len(part.Hosts) == 0:
		part.Problem = "has no hostname: name the host that the certificate is for"
	case len(foreign) > 0:
		part.Problem = strings.Join(few(foreign), "; ")
	case len(part.Secrets) == 0:
		part.Problem = "has no tls.certificateRefs: name the Secret that the certificate is kept in"
	}
	return part
}

// foreign says why a certificate cannot be kept in what a listener refers to; empty if it can.
func (o *Object) foreign(ref gwapiv1.SecretObjectReference) string {
	switch {
	case ref.Group != nil && *ref.Group != "" && *ref.Group != "core", ref.Kind != nil && *ref.Kind != "" && *ref.Kind != "Secret":
		return fmt.Sprintf("refers to %q, which is no Secret: ignore the listener by %s", ref.Name, certmanagerv1.GatewayIgnoreListenersAnnotation)
	case ref.Namespace != nil && *ref.Namespace != "" && string(*ref.Namespace) != o.Namespace:
		return fmt.Sprintf("refers to Secret %q of namespace %q: use one of namespace %q, or ignore the listener by %s",
			ref.Name, *ref.Namespace, o.Namespace, certmanagerv1.GatewayIgnoreListenersAnnotation)
	}
	return ""
}

// ignored lists the listeners that no certificate is wanted for.
func (o *Object) ignored() []string {
	var out []string
	for name := range strings.SplitSeq(o.Annotations[certmanagerv1.GatewayIgnoreListenersAnnotation], ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

func whereOf(listener string) string { return fmt.Sprintf("listener %q", listener) }

// isTrue reports whether an annotation is true, and notes a value that is neither true nor false.
func (o *Object) isTrue(key string) bool {
	value := o.Annotations[key]
	if value != "" && value != "true" && value != "false" {
		o.Notes = append(o.Notes, fmt.Sprintf("the annotation %s: %q has no effect: write true or false", key, short(value)))
	}
	return value == "true"
}
