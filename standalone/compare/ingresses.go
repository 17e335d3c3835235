package main

import (
	"maps"
	mathrand "math/rand/v2"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// annotations are sets that an Ingress may have beside the one that names its issuer: all of docs/spec/06, good and
// bad.
func annotations() []map[string]string {
	const own, acme = "cert-manager.io/", "acme.cert-manager.io/"
	return []map[string]string{
		{},
		{own + "common-name": "ing.example.com"},
		{own + "common-name": "a-common-name-that-has-more-than-the-sixty-four-bytes-it-may-have.example.com"},
		{own + "alt-names": "a.example.com,b.example.com"},
		{own + "alt-names": "a.example.com, b.example.com"},
		{own + "alt-names": ""},
		{own + "ip-sans": "192.0.2.1, 2001:db8::1"},
		{own + "ip-sans": "192.0.2.300"},
		{own + "email-sans": "a@example.com, b@example.com"},
		{own + "email-sans": "Name <a@example.com>"},
		{own + "uri-sans": "spiffe://example.com/a"},
		{own + "subject-organizations": `"Org, with comma",Other`, own + "subject-organizationalunits": "Unit"},
		{own + "subject-organizations": `"unclosed`},
		{own + "subject-countries": "DE,FR", own + "subject-provinces": "Land", own + "subject-localities": "Ort", own + "subject-postalcodes": "01234,5"},
		{own + "subject-streetaddresses": `"Way 1, back",Way 2`, own + "subject-serialnumber": "S-1"},
		{own + "duration": "24h", own + "renew-before": "7h"},
		{own + "duration": "1d"},
		{own + "duration": "10m"},
		{own + "renew-before": "1m"},
		{own + "renew-before-percentage": "30"},
		{own + "renew-before-percentage": "300"},
		{own + "renew-before": "1h", own + "renew-before-percentage": "30"},
		{own + "usages": "server auth,client auth"},
		{own + "usages": "server auth, client auth"},
		{own + "usages": "all of them"},
		{own + "revision-history-limit": "3"},
		{own + "revision-history-limit": "0"},
		{own + "revision-history-limit": "many"},
		{own + "private-key-algorithm": "ECDSA", own + "private-key-size": "384", own + "private-key-encoding": "PKCS8"},
		{own + "private-key-algorithm": "Ed25519", own + "private-key-size": "5"},
		{own + "private-key-algorithm": "ECDSA", own + "private-key-size": "2048"},
		{own + "private-key-algorithm": "DSA"},
		{own + "private-key-size": "1024"},
		{own + "private-key-encoding": "PKCS7"},
		{own + "private-key-rotation-policy": "Never"},
		{own + "private-key-rotation-policy": "Sometimes"},
		{own + "secret-template": `{"annotations":{"a":"b"},"labels":{"c":"d"}}`},
		{own + "secret-template": `{"annotations":{"cert-manager.io/a":"b"}}`},
		{own + "secret-template": `{"unknown":{}}`},
		{own + "secret-template": `{`},
		{own + "issuer-kind": "ClusterIssuer"},
		{own + "issuer-kind": "Thing", own + "issuer-group": "issuers.example.com"},
		{acme + "http01-edit-in-place": "true"},
		{acme + "http01-ingress-class": "nginx"},
		{acme + "http01-ingress-ingressclassname": "nginx"},
		{"own": "a", "kubectl.kubernetes.io/x": "b"},
	}
}

// shapes change the TLS blocks of an Ingress.
func shapes() []func(*networkingv1.Ingress) {
	block := func(secret string, hosts ...string) networkingv1.IngressTLS {
		return networkingv1.IngressTLS{SecretName: secret, Hosts: hosts}
	}
	return []func(*networkingv1.Ingress){
		func(*networkingv1.Ingress) {}, func(*networkingv1.Ingress) {}, func(*networkingv1.Ingress) {},
		func(ing *networkingv1.Ingress) {
			ing.Spec.TLS = append(ing.Spec.TLS, block(ing.Name+"-b", "b."+ing.Name+"."+zone, "a."+ing.Name+"."+zone))
		},
		func(ing *networkingv1.Ingress) {
			ing.Spec.TLS[0].Hosts = append(ing.Spec.TLS[0].Hosts, ing.Spec.TLS[0].Hosts[0], "192.0.2.9", "*."+ing.Name+"."+zone)
		},
		func(ing *networkingv1.Ingress) { ing.Spec.TLS = append(ing.Spec.TLS, block("", "b."+zone)) },
		func(ing *networkingv1.Ingress) { ing.Spec.TLS = append(ing.Spec.TLS, block(ing.Name+"-b")) },
		func(ing *networkingv1.Ingress) { ing.Spec.TLS = append(ing.Spec.TLS, block(ing.Name, "b."+zone)) },
		func(ing *networkingv1.Ingress) {
			ing.Labels = map[string]string{"own": "a", "applyset.kubernetes.io/part-of": "b"}
		},
		func(ing *networkingv1.Ingress) { ing.Spec.TLS = nil },
	}
}

// addIngress adds Ingress number i: each set of annotations comes in turn, and issuer and shape by chance.
func (in *input) addIngress(i int, random *mathrand.Rand) {
	ing := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name("ing", i), Annotations: map[string]string{}},
		Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			TLS:            []networkingv1.IngressTLS{{SecretName: name("ing", i), Hosts: []string{name("ing", i) + "." + zone}}},
		},
	}
	issuers := []map[string]string{
		{certmanagerv1.IngressIssuerAnnotation: "ca"}, {certmanagerv1.IngressIssuerAnnotation: "own"}, {certmanagerv1.IngressClusterIssuerAnnotation: "ca"},
		{certmanagerv1.IngressClusterIssuerAnnotation: "own"}, {certmanagerv1.IngressIssuerAnnotation: "intermediate"}, {certmanagerv1.IngressIssuerAnnotation: "ca"},
		{certmanagerv1.IngressClusterIssuerAnnotation: "ca", certmanagerv1.IngressIssuerAnnotation: "ca"}, {certmanagerv1.IngressIssuerAnnotation: ""},
		{certmanagerv1.IngressTLSACMEAnnotation: "true"}, {},
	}
	which := random.IntN(len(issuers) + 10) // half of them name an issuer in the usual way
	maps.Copy(ing.Annotations, issuers[which%6])
	if which < len(issuers) {
		ing.Annotations = maps.Clone(issuers[which])
	}
	all, forms := annotations(), shapes()
	maps.Copy(ing.Annotations, all[i%len(all)])
	if random.IntN(4) == 0 {
		maps.Copy(ing.Annotations, all[random.IntN(len(all))])
	}
	forms[random.IntN(len(forms))](ing)
	in.objects = append(in.objects, ing)
}
