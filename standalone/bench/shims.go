package bench

import (
	"context"
	"errors"
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

// Shims is what annotated Ingresses and Gateways cost whose certificates are in order.
type Shims struct {
	Ingresses int `json:"ingresses"`
	Gateways  int `json:"gateways"`
	// ResidentBytes is the controller's memory with them, AloneBytes that with their Certificates alone, Budget is for the
	// difference.
	ResidentBytes int64 `json:"residentBytes"`
	AloneBytes    int64 `json:"aloneBytes"`
	Budget        int64 `json:"budget"`
	// Writes are those of the start, beside what an idle cluster does: none, if all is in order.
	Writes []RequestRow `json:"writes"`
	// WindowSeconds is how long the controller was then looked at, Requests are those to the API server in that time:
	// none.
	WindowSeconds float64      `json:"windowSeconds"`
	Requests      []RequestRow `json:"requests"`
}

// prepareShims has Ingresses, and Gateways after each second of them, ask for the certificates.
func prepareShims(ctx context.Context, r *run) (*workload, error) {
	work, err := prepareCA(ctx, r)
	if err != nil {
		return nil, err
	}
	work.controllerArguments = append(work.controllerArguments, "--enable-gateway-api")
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
	return r.plane.server.until(ctx, "Gateways are served", func(ctx context.Context) error {
		return r.plane.client.List(ctx, &gwapiv1.GatewayList{})
	})
}

// restShims starts the controller on what is in order, and then without the Ingresses and Gateways, whose Certificates
// stay.
func restShims(ctx context.Context, r *run, work *workload, result *Scenario) error {
	out := &Shims{Gateways: r.Certificates / 3, Budget: shimMemory, WindowSeconds: r.Window.Seconds()}
	out.Ingresses = r.Certificates - out.Gateways
	r.say("%s: starting on %d Ingresses and %d Gateways", result.Name, out.Ingresses, out.Gateways)
	if err := out.measure(ctx, r, work); err != nil {
		return err
	}
	if err := r.orphan(ctx); err != nil {
		return err
	}
	r.say("%s: starting on their Certificates alone", result.Name)
	var err error
	out.AloneBytes, _, err = r.atRest(ctx, work)
	result.Shims = out
	return err
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
		err := r.plane.server.until(ctx, "the garbage collector has let them go", func(ctx context.Context) error {
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

// measure starts a controller, and looks at it once it is at rest. The controller is asked nothing in that time.
func (o *Shims) measure(ctx context.Context, r *run, work *workload) (err error) {
	first, _, err := r.plane.settled(ctx)
	if err != nil {
		return err
	}
	c, err := startController(ctx, r, work.controllerArguments)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.calm(ctx); err != nil {
		return err
	}
	before, err := r.plane.counted(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, r.Window); err != nil {
		return err
	}
	after, err := r.plane.counted(ctx)
	if err != nil {
		return err
	}
	started := before.since(first)
	started.takeReads(true)
	o.Writes = rows(started.of(classWork), 1)
	o.Requests = rows(after.since(before).of(classWork), 1)
	o.ResidentBytes, err = residentMemory(c.cmd.Process.Pid)
	return err
}

func (o *Shims) writeText(t *table) {
	t.line("")
	verdict := ""
	if o.ResidentBytes-o.AloneBytes > o.Budget {
		verdict = ": EXCEEDED"
	}
	t.line("  %d Ingresses and %d Gateways at rest\t%s more than their Certificates alone (%s), budget %s for 1,000 and 500%s", o.Ingresses, o.Gateways,
		mebibytes(o.ResidentBytes-o.AloneBytes), mebibytes(o.AloneBytes), mebibytes(o.Budget), verdict)
	for _, row := range []struct {
		what string
		rows []RequestRow
	}{{"writes of a start", o.Writes}, {fmt.Sprintf("requests in %.0f s at rest", o.WindowSeconds), o.Requests}} {
		said := "none, budget none"
		if len(row.rows) > 0 {
			said = inWords(row.rows) + ", budget none: EXCEEDED"
		}
		t.line("  %s\t%s", row.what, said)
	}
}
