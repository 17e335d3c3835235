package shims_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller/shims"
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
