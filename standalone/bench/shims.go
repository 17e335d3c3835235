package bench

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// shimMemory is the budget of 1,000 Ingresses and 500 Gateways, beside their Certificates.
const shimMemory = 20 << 20

// prepareShims lets Ingresses ask for the certificates, and a Gateway after every second Ingress.
func prepareShims(ctx context.Context, r *run) (*workload, error) {
	work, err := prepareCA(ctx, r)
	if err != nil {
		return nil, err
	}
	work.arguments = append(work.arguments, "--enable-gateway-api")
	work.object = asking
	return work, r.defineGateways(ctx)
}

// asking is an object that asks for a certificate in a Secret of its own name, as tools write it.
func asking(i int) client.Object {
	name := "crt-" + strconv.Itoa(i)
	about := metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels: map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "bench"},
		Annotations: map[string]string{
			certmanagerv1.IngressClusterIssuerAnnotation: caIssuer, certmanagerv1.IngressKeyAlgorithmAnnotation: string(certmanagerv1.ECDSAKeyAlgorithm),
			corev1.LastAppliedConfigAnnotation: fmt.Sprintf("%1000s", name),
		},
	}
	host := name + "." + zone
	if i%3 == 2 {
		return &gwapiv1.Gateway{ObjectMeta: about, Spec: gwapiv1.GatewaySpec{GatewayClassName: "bench", Listeners: []gwapiv1.Listener{
			{Name: "http", Port: 80, Protocol: gwapiv1.HTTPProtocolType},
			{Name: "https", Port: 443, Protocol: gwapiv1.HTTPSProtocolType, Hostname: new(gwapiv1.Hostname(host)), TLS: &gwapiv1.ListenerTLSConfig{
				CertificateRefs: []gwapiv1.SecretObjectReference{{Name: gwapiv1.ObjectName(name)}},
			}},
		}}}
	}
	return &networkingv1.Ingress{ObjectMeta: about, Spec: networkingv1.IngressSpec{
		TLS: []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: name}},
		Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}},
			}}},
		}}}},
	}}
}

// defineGateways makes a definition of Gateways, without a schema, and waits until they are served.
func (r *run) defineGateways(ctx context.Context) error {
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        "gateways." + gwapiv1.GroupName,
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, for a measurement"},
		},
		"spec": map[string]any{
			"group": gwapiv1.GroupName, "scope": "Namespaced",
			"names": map[string]any{"kind": "Gateway", "listKind": "GatewayList", "plural": "gateways", "singular": "gateway"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if err := r.plane.client.Create(ctx, crd); err != nil {
		return err
	}
	return r.plane.server.Until(ctx, startWithin, "Gateways are served", func(ctx context.Context) error {
		return r.plane.client.List(ctx, &gwapiv1.GatewayList{})
	})
}

// shimsScenario issues certificates, starts the controller on what is in order, and then without the Ingresses and
// Gateways, whose Certificates stay.
func shimsScenario(ctx context.Context, r *run, work *workload) ([]Row, error) {
	rows, err := issueScenario(ctx, r, work)
	if err != nil {
		return nil, err
	}
	objects := fmt.Sprintf("%d Ingresses and %d Gateways", r.Certificates-r.Certificates/3, r.Certificates/3)
	r.say("starting on %s", objects)
	with, rest, err := r.restOn(ctx, work, 0)
	if err != nil {
		return nil, err
	}
	if err := r.orphan(ctx); err != nil {
		return nil, err
	}
	r.say("starting on their Certificates alone")
	without, err := r.memoryAtRest(ctx, work)
	rows = append(rows, objectsAtRest(objects, "their Certificates alone", with, without, shimMemory, "1,000 and 500")...)
	return append(rows, rest...), err
}

// orphan deletes the Ingresses and Gateways, and leaves their Certificates.
func (r *run) orphan(ctx context.Context) error {
	for _, kind := range []struct {
		one  client.Object
		list client.ObjectList
	}{{&networkingv1.Ingress{}, &networkingv1.IngressList{}}, {&gwapiv1.Gateway{}, &gwapiv1.GatewayList{}}} {
		if err := r.plane.client.DeleteAllOf(ctx, kind.one, client.InNamespace(namespace), client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
			return err
		}
		err := r.plane.server.Until(ctx, startWithin, "the garbage collector has let them go", func(ctx context.Context) error {
			if err := r.plane.client.List(ctx, kind.list, client.InNamespace(namespace), client.Limit(1)); err != nil {
				return err
			}
			if left := meta.LenList(kind.list); left > 0 {
				return fmt.Errorf("%T: some are left", kind.one)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
