package service

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
)

const (
	// Prefix begins the name of everything that is made for HTTP-01.
	Prefix = "cm-acme-http-solver"
	// Port is what Services, Ingresses and HTTPRoutes use among themselves (spec §5.8).
	Port = 8089
	// FieldManager is the name under which everything is made and applied for HTTP-01.
	FieldManager = "cert-manager-acme-http01"
	// maxEndpoints bounds the addresses of one EndpointSlice: the API server's limit.
	maxEndpoints = 1000

	clusterIPName = Prefix + "-clusterip"
)

// Names are those of all Services that lead to the responder.
func Names() []string { return []string{Prefix, clusterIPName} }

// Name is the name of the Service of a type in every namespace.
func Name(t corev1.ServiceType) string {
	if t == corev1.ServiceTypeClusterIP {
		return clusterIPName
	}
	return Prefix
}

// typeOf is the type of the Service by a name.
func typeOf(name string) corev1.ServiceType {
	if name == clusterIPName {
		return corev1.ServiceTypeClusterIP
	}
	return corev1.ServiceTypeNodePort
}

// TypeOf is the type of Service that the solver of a Challenge for HTTP-01 asks for.
func TypeOf(c *acmev1.Challenge) corev1.ServiceType {
	config, asked := c.Spec.Solver.HTTP01, corev1.ServiceType("")
	switch {
	case config.Ingress != nil:
		asked = config.Ingress.ServiceType
	case config.GatewayHTTPRoute != nil:
		asked = config.GatewayHTTPRoute.ServiceType
	}
	return cmp.Or(asked, corev1.ServiceTypeNodePort)
}

// New is the Service that leads to the responder from within a namespace. Extra labels cannot override those of spec
// §5.8.
func New(namespace string, t corev1.ServiceType, extra map[string]string) *corev1.Service {
	labels := map[string]string{}
	maps.Copy(labels, extra)
	labels[acmev1.HTTP01SolverLabel] = acmev1.HTTP01SolverLabelValue
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: Name(t), Labels: labels, Annotations: map[string]string{"auth.istio.io/8089": "NONE"},
		},
		Spec: corev1.ServiceSpec{
			Type: t, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{{Name: "http", Port: Port, Protocol: corev1.ProtocolTCP}},
		},
	}
}

func families() []discoveryv1.AddressType {
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
}

// SliceNames are those of the EndpointSlices of a Service.
func SliceNames(service string) []string {
	var out []string
	for _, family := range families() {
		out = append(out, sliceName(service, family))
	}
	return out
}

func sliceName(service string, family discoveryv1.AddressType) string {
	if family == discoveryv1.AddressTypeIPv6 {
		return service + "-ipv6"
	}
	return service + "-ipv4"
}

// Owns reports whether an EndpointSlice belongs to the Service with that UID.
func Owns(service types.UID, slice *discoveryv1.EndpointSlice) bool {
	return metav1.IsControlledBy(slice, &metav1.ObjectMeta{UID: service})
}

// Answers reports whether a responder with these EndpointSlices has a ready address.
func Answers(responder []discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(families(), func(family discoveryv1.AddressType) bool {
		addresses, _ := ready(responder, family)
		return len(addresses) > 0
	})
}

// ready returns the ready addresses of one family that the responder has, and the port that it listens on.
func ready(responder []discoveryv1.EndpointSlice, family discoveryv1.AddressType) ([]netip.Addr, int32) {
	number := int32(Port)
	var addresses []netip.Addr
	for _, slice := range responder {
		if slice.AddressType != family || slice.DeletionTimestamp != nil {
			continue
		}
		number = responderPort(slice.Ports, number)
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
				continue
			}
			for _, text := range endpoint.Addresses {
				if address, err := netip.ParseAddr(text); err == nil {
					addresses = append(addresses, address)
				}
			}
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	addresses = slices.Compact(addresses)
	return addresses[:min(len(addresses), maxEndpoints)], number
}

// PortOf is the port that a responder's own Service has for HTTP-01: the one called http, or the only one; 0 for none.
func PortOf(s *corev1.Service) int32 {
	for _, p := range s.Spec.Ports {
		if p.Name == "http" {
			return p.Port
		}
	}
	if len(s.Spec.Ports) == 1 {
		return s.Spec.Ports[0].Port
	}
	return 0
}

// responderPort is the port that the responder listens on: the one called http, or the only one.
func responderPort(ports []discoveryv1.EndpointPort, otherwise int32) int32 {
	for _, p := range ports {
		if p.Port != nil && p.Name != nil && *p.Name == "http" {
			return *p.Port
		}
	}
	if len(ports) == 1 && ports[0].Port != nil {
		return *ports[0].Port
	}
	return otherwise
}

// sliceOf is the EndpointSlice of a Service for one address family: the responder's addresses that are ready.
func sliceOf(service *corev1.Service, family discoveryv1.AddressType, responder []discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	addresses, number := ready(responder, family)
	out := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: sliceName(service.Name, family),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "chancery.dev",
				acmev1.HTTP01SolverLabel: acmev1.HTTP01SolverLabelValue,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID, Controller: new(true),
			}},
		},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: &number, Protocol: new(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for _, address := range addresses {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	return out
}

// sameEndpoints reports whether two EndpointSlices lead to the same places.
func sameEndpoints(known, wanted *discoveryv1.EndpointSlice) bool {
	return Owns(wanted.OwnerReferences[0].UID, known) &&
		known.Labels[discoveryv1.LabelServiceName] == wanted.Labels[discoveryv1.LabelServiceName] &&
		slices.Equal(portsOf(known), portsOf(wanted)) && slices.Equal(addressesOf(known), addressesOf(wanted))
}

func portsOf(s *discoveryv1.EndpointSlice) []int32 {
	var out []int32
	for _, p := range s.Ports {
		if p.Port != nil {
			out = append(out, *p.Port)
		}
	}
	return out
}

func addressesOf(s *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, e := range s.Endpoints {
		out = append(out, e.Addresses...)
	}
	slices.Sort(out)
	return out
}
