package route_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwapiv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"chancery.dev/internal/machine/service"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/solver"
)

// ownService is the Service of the responder itself.
func ownService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "responder"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "responder"},
			Ports:    []corev1.ServicePort{{Name: "tls-alpn", Port: 8443}, {Name: "http", Port: 80}},
		},
	}
}

// TestIngressBesideTheResponder: in the responder's own namespace an Ingress leads to the responder's own Service, and
// no other Service is made.
func TestIngressBesideTheResponder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Create(t, ownService())
	task := w.challenge(t, "c", "www.example.test", byIngress())
	w.present(t, task)
	in := &networkingv1.Ingress{}
	if err := w.Get(t.Context(), service.ObjectName(task.Challenge.UID), in); err != nil {
		t.Fatal(err)
	}
	if to := in.Spec.Rules[0].HTTP.Paths[0].Backend.Service; to.Name != "responder" || to.Port.Number != 80 {
		t.Errorf("it leads to %+v", to)
	}
	if err := w.Get(t.Context(), serviceName, &corev1.Service{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Service of the namespace: %v", err)
	}
	w.cleanUp(t, task)
}

// testGranted: an HTTPRoute leads to the responder's own Service once a ReferenceGrant lets it. It is a part of
// TestParents, which installs the Gateway API.
func testGranted(t *testing.T) {
	w, other := idleWorld(t), rig.NewWorld(t)
	w.responder = types.NamespacedName{Namespace: other.Namespace, Name: "responder"}
	other.Create(t, ownService())
	w.endpoints(t, discoveryv1.AddressTypeIPv4, "192.0.2.1", "192.0.2.2")
	w.start(t)
	solve := by(gwapiv1.ParentReference{Name: "gateway"})
	leads := func(task solver.Task, namespace, name string, port gwapiv1.PortNumber) {
		t.Helper()
		w.present(t, task)
		found := &gwapiv1.HTTPRoute{}
		if err := w.Get(t.Context(), service.ObjectName(task.Challenge.UID), found); err != nil {
			t.Fatal(err)
		}
		to := found.Spec.Rules[0].BackendRefs[0]
		if string(*to.Namespace) != namespace || string(to.Name) != name || *to.Port != port {
			t.Errorf("it leads to %s/%s:%d, want %s/%s:%d", *to.Namespace, to.Name, *to.Port, namespace, name, port)
		}
	}
	task := w.challenge(t, "c", "www.example.test", solve)
	leads(task, w.Namespace, serviceName, 8089)
	other.Create(t, &gwapiv1beta1.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Name: "http01"}, Spec: gwapiv1.ReferenceGrantSpec{
		From: []gwapiv1.ReferenceGrantFrom{{Group: gwapiv1.GroupName, Kind: "HTTPRoute", Namespace: gwapiv1.Namespace(w.Namespace)}},
		To:   []gwapiv1.ReferenceGrantTo{{Kind: "Service"}},
	}})
	w.ahead.Add(int64(forget))
	leads(task, other.Namespace, "responder", 80)
	beside := w.challenge(t, "in", "in.example.test", byIngress())
	w.present(t, beside)
	in := &networkingv1.Ingress{}
	if err := w.Get(t.Context(), service.ObjectName(beside.Challenge.UID), in); err != nil {
		t.Fatal(err)
	}
	if to := in.Spec.Rules[0].HTTP.Paths[0].Backend.Service; to.Name != serviceName {
		t.Errorf("an Ingress of another namespace leads to %+v", to)
	}
	w.cleanUp(t, task)
	w.cleanUp(t, beside)
}
