package route

import (
	"net/netip"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/machine/service"
)

const (
	// whitelist keeps ingress-nginx from letting only some addresses ask (spec §5.8).
	whitelist    = "nginx.ingress.kubernetes.io/whitelist-source-range"
	whitelistAll = "0.0.0.0/0,::/0"
	whitelistKey = "/whitelist-source-range"
	// ingressClass is the older way to name the class of an Ingress.
	ingressClass = "kubernetes.io/ingress.class"
)

// hostOf is the host that a route matches: none for an IP address (RFC 8738).
func hostOf(c *acmev1.Challenge) string {
	if _, err := netip.ParseAddr(c.Spec.DNSName); err == nil {
		return ""
	}
	return c.Spec.DNSName
}

// ingress is the Ingress of a Challenge. The caller chooses the type of its path.
func ingress(c *acmev1.Challenge, to backend, extra map[string]string) *networkingv1.Ingress {
	in := &networkingv1.Ingress{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: service.ObjectName(c.UID), Labels: service.LabelsOf(c, extra), OwnerReferences: service.OwnedBy(c),
			Annotations: map[string]string{whitelist: whitelistAll},
		},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: hostOf(c),
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{pathOf(c, to)},
			}},
		}}},
	}
	config := c.Spec.Solver.HTTP01.Ingress
	if config == nil {
		return in
	}
	if config.Class != nil && *config.Class != "" {
		in.Annotations[ingressClass] = *config.Class
	}
	if config.IngressClassName != nil && *config.IngressClassName != "" {
		in.Spec.IngressClassName = config.IngressClassName
	}
	if template := config.IngressTemplate; template != nil {
		for key := range template.Metadata.Annotations {
			if strings.HasSuffix(key, whitelistKey) {
				delete(in.Annotations, whitelist)
			}
		}
		in.Labels = merged(in.Labels, template.Metadata.Labels)
		in.Annotations = merged(in.Annotations, template.Metadata.Annotations)
	}
	return in
}

// classOf names the controller that an Ingress is for.
func classOf(in *networkingv1.Ingress) string {
	if in.Spec.IngressClassName != nil {
		return *in.Spec.IngressClassName
	}
	return in.Annotations[ingressClass]
}

func pathOf(c *acmev1.Challenge, to backend) networkingv1.HTTPIngressPath {
	loose := networkingv1.PathTypeImplementationSpecific
	return networkingv1.HTTPIngressPath{
		Path: acme.HTTP01Path(c.Spec.Token), PathType: &loose,
		Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
			Name: to.Name, Port: networkingv1.ServiceBackendPort{Number: to.port},
		}},
	}
}

// httpRoute is the HTTPRoute of a Challenge. Its parents are as the solver names them.
func httpRoute(c *acmev1.Challenge, to backend, extra map[string]string) *gwapiv1.HTTPRoute {
	config := c.Spec.Solver.HTTP01.GatewayHTTPRoute
	exact, path := gwapiv1.PathMatchExact, acme.HTTP01Path(c.Spec.Token)
	group, kind := gwapiv1.Group(""), gwapiv1.Kind("Service")
	namespace, number, weight := gwapiv1.Namespace(to.Namespace), to.port, int32(1)
	route := &gwapiv1.HTTPRoute{
		TypeMeta: metav1.TypeMeta{APIVersion: gwapiv1.GroupVersion.String(), Kind: "HTTPRoute"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: service.ObjectName(c.UID), OwnerReferences: service.OwnedBy(c),
			Labels: merged(service.LabelsOf(c, extra), config.Labels),
		},
		Spec: gwapiv1.HTTPRouteSpec{
			CommonRouteSpec: gwapiv1.CommonRouteSpec{ParentRefs: config.ParentRefs},
			Rules: []gwapiv1.HTTPRouteRule{{
				Matches: []gwapiv1.HTTPRouteMatch{{Path: &gwapiv1.HTTPPathMatch{Type: &exact, Value: &path}}},
				BackendRefs: []gwapiv1.HTTPBackendRef{{BackendRef: gwapiv1.BackendRef{
					BackendObjectReference: gwapiv1.BackendObjectReference{
						Group: &group, Kind: &kind, Name: gwapiv1.ObjectName(to.Name), Namespace: &namespace, Port: &number,
					},
					Weight: &weight,
				}}},
			}},
		},
	}
	if host := hostOf(c); host != "" {
		route.Spec.Hostnames = []gwapiv1.Hostname{gwapiv1.Hostname(host)}
	}
	return route
}
