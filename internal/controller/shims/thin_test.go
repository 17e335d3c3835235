package shims_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller/shims"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/shim"
)

// TestThin: what the cache leaves out of an object changes no decision, and an object that asks for no certificate is
// small.
func TestThin(t *testing.T) {
	t.Parallel()
	settings := shims.DefaultOptions().Settings
	settings.ExtraAnnotations = []string{"example.com/team"}
	gateway := &gwapiv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "edge", Annotations: asking()}}
	reduce := func(o client.Object) shim.Object {
		switch o := o.(type) {
		case *networkingv1.Ingress:
			return shim.FromIngress(o)
		case *gwapiv1.Gateway:
			return shim.FromGateway(o, settings)
		default:
			return shim.FromListenerSet(o.(*gwapiv1.ListenerSet), gateway, settings)
		}
	}
	l := listener("web", "a.example.com")
	for _, annotations := range []map[string]string{
		nil, asking("example.com/team=red", "kubectl.kubernetes.io/last-applied-configuration={}"), {"kubernetes.io/tls-acme": "true"}, {"kubernetes.io/tls-acme": "no"},
	} {
		in := newIngress("web", annotations, "web a.example.com", "more")
		in.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
		for _, o := range []client.Object{
			in,
			&gwapiv1.Gateway{ObjectMeta: in.ObjectMeta, Spec: gwapiv1.GatewaySpec{Listeners: []gwapiv1.Listener{l}}, Status: gwapiv1.GatewayStatus{
				Listeners: []gwapiv1.ListenerStatus{{Name: "web"}},
			}},
			&gwapiv1.ListenerSet{ObjectMeta: in.ObjectMeta, Spec: gwapiv1.ListenerSetSpec{
				Listeners: []gwapiv1.ListenerEntry{{Name: l.Name, Hostname: l.Hostname, Protocol: l.Protocol, TLS: l.TLS}},
			}},
		} {
			o = o.DeepCopyObject().(client.Object)
			o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "somebody"}})
			old := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "old", OwnerReferences: []metav1.OwnerReference{reduce(o).Owner}}}
			decide := func() string {
				a := shim.Decide(shim.State{Object: reduce(o), Settings: settings, Certificates: []*certmanagerv1.Certificate{old}}, time.Time{})
				text, err := json.Marshal(a)
				return fmt.Sprint(string(text), err)
			}
			before := decide()
			if _, err := shims.Thin(settings)(o); err != nil {
				t.Fatal(err)
			}
			if after := decide(); after != before {
				t.Errorf("%T with %v: %s, and of what is kept: %s", o, annotations, before, after)
			}
			text, err := json.Marshal(o)
			if _, set := o.(*gwapiv1.ListenerSet); err != nil || annotations == nil && !set && len(text) > 400 {
				t.Errorf("%T: %d bytes are kept: %s, %v", o, len(text), text, err)
			}
		}
	}
}

// TestThinTooLarge: of an object above a bound next to nothing is kept, and the same is said of it. An Ingress that
// asks for no certificate is kept without its hosts, and one that is paused stays so.
func TestThinTooLarge(t *testing.T) {
	t.Parallel()
	settings := shims.DefaultOptions().Settings
	kept := func(in *networkingv1.Ingress) (before, after shim.Object, size int) {
		in.Annotations["example.com/much"] = strings.Repeat("x", 100_000)
		before = shim.FromIngress(in)
		if _, err := shims.Thin(settings)(in); err != nil {
			t.Fatal(err)
		}
		text, err := in.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return before, shim.FromIngress(in), len(text)
	}
	long := strings.Repeat("x", 200)
	entries := newIngress("entries", asking())
	for i := range limits.ShimEntries + 1 {
		entries.Spec.TLS = append(entries.Spec.TLS, networkingv1.IngressTLS{SecretName: fmt.Sprint(i), Hosts: []string{long}})
	}
	hosts := newIngress("hosts", asking())
	for i := range 2 {
		hosts.Spec.TLS = append(hosts.Spec.TLS, networkingv1.IngressTLS{SecretName: fmt.Sprint(i), Hosts: slices.Repeat([]string{long}, limits.ShimHosts/2+1)})
	}
	const small = 64 << 10
	for _, in := range []*networkingv1.Ingress{entries, hosts} {
		if before, after, size := kept(in); before.TooLarge == "" || before.TooLarge != after.TooLarge || size > small {
			t.Errorf("%s: %q, and of what is kept %q, %d bytes", in.Name, before.TooLarge, after.TooLarge, size)
		}
	}
	silent := newIngress("silent", map[string]string{"chancery.dev/paused": ""}, "web "+long)
	if _, after, size := kept(silent); size > small/100 || len(after.Secrets()) != 1 || len(silent.Annotations) != 1 {
		t.Errorf("%d bytes: %+v", size, silent)
	}
}
