package ingress_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// TestTLSRoute issues by TLS-ALPN-01 through a Gateway that passes the handshakes of one name on, as
// docs/tls-alpn01.md says. For a name that Traefik keeps, the Challenge says that it does.
func TestTLSRoute(t *testing.T) {
	w := newWorld(t)
	installGatewayAPI(t, w.Admin)
	// Traefik 3.6 reads the older versions, which are stored in the same form.
	for _, name := range []string{"tcproutes.gateway.networking.k8s.io", "tlsroutes.gateway.networking.k8s.io"} {
		w.serveAll(t, name)
	}
	traefik(t, w.Admin, "none", plainAddress, "--providers.kubernetesgateway=true", "--providers.kubernetesgateway.experimentalchannel=true",
		"--providers.kubernetesgateway.statusaddress.ip="+plainAddress)
	name, port, passthrough, ready := "tls-alpn", int32(8443), gwapiv1.TLSModePassthrough, true
	listener, number := gwapiv1.SectionName("acme-tls"), port
	w.Create(t,
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "responder-tls"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: name, Port: port}}},
		},
		&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "responder-tls", Labels: map[string]string{discoveryv1.LabelServiceName: "responder-tls"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{responder1}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			}, {
				Addresses: []string{responder2}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			}},
		},
		&gwapiv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("class")}, Spec: gwapiv1.GatewayClassSpec{ControllerName: "traefik.io/gateway-controller"},
		},
		&gwapiv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: "edge"},
			Spec: gwapiv1.GatewaySpec{
				GatewayClassName: gwapiv1.ObjectName(w.ClusterName("class")),
				Listeners: []gwapiv1.Listener{{
					Name: listener, Port: 443, Protocol: gwapiv1.TLSProtocolType, TLS: &gwapiv1.ListenerTLSConfig{Mode: &passthrough},
				}},
			},
		},
		&gwapiv1.TLSRoute{
			ObjectMeta: metav1.ObjectMeta{Name: "acme-tls"},
			Spec: gwapiv1.TLSRouteSpec{
				CommonRouteSpec: gwapiv1.CommonRouteSpec{ParentRefs: []gwapiv1.ParentReference{{Name: "edge", SectionName: &listener}}},
				Hostnames:       []gwapiv1.Hostname{"mail.example.com"},
				Rules: []gwapiv1.TLSRouteRule{{BackendRefs: []gwapiv1.BackendRef{{
					BackendObjectReference: gwapiv1.BackendObjectReference{Name: "responder-tls", Port: &number},
				}}}},
			},
		},
		&certmanagerv1.ClusterIssuer{
			ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("tls")},
			Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
				Server: w.ca.DirectoryURL, CABundle: w.ca.TLSBundle, PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
				Solvers: []acmev1.ACMEChallengeSolver{{TLSALPN01: &acmev1.TLSALPN01Solver{}}},
			}},
		},
		w.certificate("tls", "passed", "mail.example.com"), w.certificate("tls", "kept", "www.example.com"))
	w.awaitIssued(t, "passed")
	rig.Eventually(t, "the Challenge for the other name says who answers", func(ctx context.Context) string {
		said := w.challenges(ctx)
		if !strings.Contains(said, "www.example.com: pending") || !strings.Contains(said, "the server that answers knows no such name") {
			return said
		}
		return ""
	})
}

// serveAll has the API server serve all versions of a definition.
func (w *world) serveAll(t *testing.T, name string) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, crd); err != nil {
			return err
		}
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Served = true
		}
		return w.client.Update(t.Context(), crd)
	})
	if err != nil {
		t.Fatal(err)
	}
}
