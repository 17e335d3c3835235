package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig/port"
)

// shimMemory is the budget of 1,000 Ingresses and 500 Gateways, beside their Certificates.
const shimMemory = 20 << 20

// Shims is what annotated Ingresses and Gateways cost whose certificates are in order.
type Shims struct {
	Ingresses int `json:"ingresses"`
	Gateways  int `json:"gateways"`
	// With is the controller's memory with them, Alone that with their Certificates alone. Budget is for the difference of
	// what is in use: resident memory differs by more from start to start.
	With   Memory `json:"with"`
	Alone  Memory `json:"alone"`
	Budget int64  `json:"budget"`
	// Writes are those of the start, beside what an idle cluster does: none, if all is in order.
	Writes []RequestRow `json:"writes"`
	// WindowSeconds is how long the controller was then looked at, Requests are those to the API server in that time:
	// none.
	WindowSeconds float64      `json:"windowSeconds"`
	Requests      []RequestRow `json:"requests"`
}

// Memory is what a process holds, and how much of that its heap has in use, in bytes.
type Memory struct {
	Resident int64 `json:"resident"`
	InUse    int64 `json:"inUse"`
}

// prepareShims has Ingresses, and Gateways after each second of them, ask for the certificates.
func prepareShims(ctx context.Context, r *run) (*workload, error) {
	work, err := prepareCA(ctx, r)
	if err != nil {
		return nil, err
	}
	profiles, err := port.Free(ctx)
	if err != nil {
		return nil, err
	}
	work.profiles = profiles.String()
	work.controllerArguments = append(work.controllerArguments, "--enable-gateway-api", "--enable-profiling", "--profiler-address", work.profiles)
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
	before, _, err := r.plane.settled(ctx)
	if err != nil {
		return err
	}
	err = r.startAtRest(ctx, work, func(c *controller) error { return out.measure(ctx, r, work, c, before) })
	if err != nil {
		return err
	}
	if err := r.orphan(ctx); err != nil {
		return err
	}
	r.say("%s: starting on their Certificates alone", result.Name)
	result.Shims = out
	return r.startAtRest(ctx, work, func(c *controller) (err error) {
		out.Alone, err = c.memory(ctx, work)
		return err
	})
}

// startAtRest starts a controller, and calls do once it is at rest.
func (r *run) startAtRest(ctx context.Context, work *workload, do func(*controller) error) (err error) {
	c, err := startController(ctx, r, work.controllerArguments)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.calm(ctx); err != nil {
		return err
	}
	return do(c)
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

// measure looks at a controller that is at rest. The controller is asked nothing in that time.
func (o *Shims) measure(ctx context.Context, r *run, work *workload, c *controller, first counts) error {
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
	o.With, err = c.memory(ctx, work)
	return err
}

// memory reads what the controller holds, and then, after a collection of garbage, what is in use.
func (c *controller) memory(ctx context.Context, work *workload) (m Memory, err error) {
	if m.Resident, err = residentMemory(c.cmd.Process.Pid); err != nil {
		return m, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+work.profiles+"/debug/pprof/heap?debug=1&gc=1", http.NoBody)
	if err != nil {
		return m, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return m, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return m, err
	}
	_, rest, _ := strings.Cut(string(text), "\n# HeapAlloc = ")
	number, _, _ := strings.Cut(rest, "\n")
	if m.InUse, err = strconv.ParseInt(number, 10, 64); err != nil {
		return m, fmt.Errorf("the profile of the heap does not say what is in use: %w", err)
	}
	return m, nil
}

func (o *Shims) writeText(t *table) {
	t.line("")
	more, verdict := o.With.InUse-o.Alone.InUse, ""
	if more > o.Budget {
		verdict = ": EXCEEDED"
	}
	t.line("  %d Ingresses and %d Gateways at rest\t%.1f MiB in use more than their Certificates alone, budget %s for 1,000 and 500%s",
		o.Ingresses, o.Gateways, float64(more)/(1<<20), mebibytes(o.Budget), verdict)
	t.line("  resident memory with them, and with their Certificates alone\t%s, %s", mebibytes(o.With.Resident), mebibytes(o.Alone.Resident))
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
