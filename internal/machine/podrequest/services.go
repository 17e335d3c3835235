package podrequest

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
)

// defaultDomain is the DNS domain of most clusters.
const defaultDomain = "cluster.local"

// servicesOf returns the Services that the annotations of a volume name.
func servicesOf(annotations map[string]string) (names []string, err error) {
	unknown := ""
	for key := range annotations {
		if key != certmanagerv1.PodServicesAnnotation && (unknown == "" || key < unknown) {
			unknown = key
		}
	}
	if unknown != "" {
		return nil, fmt.Errorf("the annotation %q of the projected volume is not known: remove it", unknown)
	}
	text, asked := annotations[certmanagerv1.PodServicesAnnotation]
	if !asked {
		return nil, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("the annotation %s of the projected volume has to be names of Services, with commas between them, not %.100q", certmanagerv1.PodServicesAnnotation, text)
		}
		if slices.Contains(names, name) {
			continue
		}
		if names = append(names, name); len(names) > limits.PodServices {
			return nil, fmt.Errorf("the annotation %s of the projected volume names more than %d Services, which are too many", certmanagerv1.PodServicesAnnotation, limits.PodServices)
		}
	}
	return names, nil
}

// domainOf returns the DNS domain of the cluster.
func domainOf(annotations map[string]string) (string, error) {
	domain, set := annotations[certmanagerv1.PodCertificatesClusterDomainAnnotation]
	if !set {
		return defaultDomain, nil
	}
	if len(validation.IsDNS1123Subdomain(domain)) > 0 {
		return "", fmt.Errorf("the annotation %s has to be a DNS domain such as %s, not %.100q", certmanagerv1.PodCertificatesClusterDomainAnnotation, defaultDomain, domain)
	}
	return domain, nil
}

// dnsNames returns the names by which clients reach the Pod through Services of its namespace. Short names, such as
// web.shop, are left out: they may be somebody else's in another search domain. problem says why there are none.
func dnsNames(s State, services []string, domain string) (names []string, problem string) {
	for _, name := range services { // first: the Pod was read only if all of them exist
		if s.Services[name] == nil {
			return nil, fmt.Sprintf("the namespace %s has no Service %s, which the volume names: create it", s.Namespace, name)
		}
	}
	for _, name := range services {
		service := s.Services[name]
		switch {
		case len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName:
			return nil, fmt.Sprintf("the Service %s, which the volume names, leads to no Pods by a selector: only a Service that selects the Pod gives it names", name)
		case !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(s.Pod.Labels)):
			return nil, fmt.Sprintf("the Service %s, which the volume names, does not select the Pod: give the Pod the labels %s, or correct the selector",
				name, labels.Set(service.Spec.Selector))
		}
		hosts := []string{name + "." + s.Namespace + ".svc"}
		if own := s.Pod.Spec; own.Hostname != "" && own.Subdomain == name && service.Spec.ClusterIP == corev1.ClusterIPNone {
			hosts = append(hosts, own.Hostname+"."+hosts[0])
		}
		for _, host := range hosts {
			names = append(names, host, host+"."+domain)
		}
	}
	for _, name := range names {
		if err := pki.CheckDNSName(name); err != nil {
			return nil, fmt.Sprintf("the name %.300q of a Service or of the Pod cannot be in a certificate: %v", name, err)
		}
	}
	return names, ""
}
