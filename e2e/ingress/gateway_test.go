package ingress_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// TestGateway issues through HTTPRoutes.
func TestGateway(t *testing.T) {
	w := newWorld(t)
	w.issuer(t, "gateway", w.gateway(t))
	w.Create(t, w.certificate("gateway", "by-route", "a.example.com", "b.example.com"))
	w.awaitIssued(t, "by-route")
	w.awaitNoRoutes(t, &gwapiv1.HTTPRouteList{})
}

// TestGatewayListeners issues for a Gateway with a listener for HTTPS and one for HTTP, and for
// a ListenerSet of it that has none for HTTP, by parentRefs that name no listener.
func TestGatewayListeners(t *testing.T) {
	w := newWorld(t)
	solver := w.serveGateway(t, plainAddress, nil, secured("own"), plainListener())
	w.issuer(t, "gateway", solver)
	kind := gwapiv1.Kind("ListenerSet")
	w.Create(t, &gwapiv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}, Spec: gwapiv1.ListenerSetSpec{
		ParentRef: gwapiv1.ParentGatewayReference{Name: "gateway"},
		Listeners: []gwapiv1.ListenerEntry{{Name: "set", Port: 443, Protocol: gwapiv1.HTTPSProtocolType, TLS: secured("set").TLS}},
	}})
	w.issuer(t, "set", &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{
		ParentRefs: []gwapiv1.ParentReference{{Name: "set", Kind: &kind}},
	}})
	attached := w.watchRoutes(t)
	w.Create(t, w.certificate("gateway", "own", "own.example.com")) // which the listener for HTTPS waits for
	w.awaitIssued(t, "own")
	if got := attached(); got != "Gateway gateway/web" {
		t.Errorf("attached to %s", got)
	}
	w.Create(t, w.certificate("set", "set", "set.example.com"))
	w.awaitIssued(t, "set")
	w.awaitNoRoutes(t, &gwapiv1.HTTPRouteList{})
	if got := attached(); !strings.HasPrefix(got, "Gateway gateway/web") || strings.Contains(got, "ListenerSet") {
		t.Errorf("attached to %s", got)
	}
}

// TestGatewayRedirects issues through a Traefik that sends everybody on to HTTPS, whatever its
// routes say: there, too, the route has to be found.
func TestGatewayRedirects(t *testing.T) {
	w := newWorld(t)
	w.Create(t,
		&certmanagerv1.ClusterIssuer{
			ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("self")}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
		},
		w.certificate("self", "edge", "edge.secure.test"))
	rig.Eventually(t, "there is a certificate to redirect to", func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, "edge", crt); err != nil {
			return err.Error()
		}
		for _, c := range crt.Status.Conditions {
			if c.Type == certmanagerv1.CertificateConditionReady && c.Status == cmmeta.ConditionTrue {
				return ""
			}
		}
		return "not ready"
	})
	w.issuer(t, "redirect", w.serveGateway(t, secureAddress, []string{
		"--entrypoints.web.http.redirections.entrypoint.to=websecure", "--entrypoints.web.http.redirections.entrypoint.scheme=https",
	}, secured("edge"), plainListener()))
	attached := w.watchRoutes(t)
	w.Create(t, w.certificate("redirect", "redirected", "www.secure.test"))
	w.awaitIssued(t, "redirected")
	if got := attached(); got != "Gateway gateway/web, Gateway gateway/edge" {
		t.Errorf("attached to %s", got)
	}
}

// gateway starts a Traefik that serves a Gateway, and returns a solver by it.
func (w *world) gateway(t *testing.T) *acmev1.HTTP01Solver {
	t.Helper()
	return w.serveGateway(t, plainAddress, nil, plainListener())
}

// serveGateway starts a Traefik that serves a Gateway with these listeners, and returns a solver
// by it that names none of them.
func (w *world) serveGateway(t *testing.T, address string, flags []string, listeners ...gwapiv1.Listener) *acmev1.HTTP01Solver {
	t.Helper()
	installGatewayAPI(t, w.Admin)
	traefik(t, w.Admin, "none", address, append(flags, "--providers.kubernetesgateway=true",
		"--providers.kubernetesgateway.statusaddress.ip="+address)...)
	w.Create(t,
		&gwapiv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("class")}, Spec: gwapiv1.GatewayClassSpec{ControllerName: "traefik.io/gateway-controller"},
		},
		&gwapiv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: "gateway"},
			Spec:       gwapiv1.GatewaySpec{GatewayClassName: gwapiv1.ObjectName(w.ClusterName("class")), Listeners: listeners},
		})
	programmed := listeners[len(listeners)-1].Name
	rig.Eventually(t, "Traefik serves the Gateway", func(ctx context.Context) string {
		g := &gwapiv1.Gateway{}
		if err := w.Get(ctx, "gateway", g); err != nil {
			return err.Error()
		}
		for _, l := range g.Status.Listeners {
			for _, c := range l.Conditions {
				if l.Name == programmed && c.Type == string(gwapiv1.ListenerConditionProgrammed) && c.Status == metav1.ConditionTrue {
					return ""
				}
			}
		}
		return "its last listener is not programmed"
	})
	namespace := gwapiv1.Namespace(w.Namespace)
	return &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{
		ParentRefs: []gwapiv1.ParentReference{{Name: "gateway", Namespace: &namespace}},
	}}
}

func plainListener() gwapiv1.Listener {
	all := gwapiv1.NamespacesFromAll
	return gwapiv1.Listener{
		Name: "web", Port: 80, Protocol: gwapiv1.HTTPProtocolType,
		AllowedRoutes: &gwapiv1.AllowedRoutes{Namespaces: &gwapiv1.RouteNamespaces{From: &all}},
	}
}

// secured is a listener for HTTPS with the certificate in a Secret of its name.
func secured(secret string) gwapiv1.Listener {
	return gwapiv1.Listener{
		Name: gwapiv1.SectionName(secret), Port: 443, Protocol: gwapiv1.HTTPSProtocolType,
		TLS: &gwapiv1.ListenerTLSConfig{CertificateRefs: []gwapiv1.SecretObjectReference{{Name: gwapiv1.ObjectName(secret)}}},
	}
}

// watchRoutes returns a function that says which parents HTTPRoutes have had since it was last
// asked.
func (w *world) watchRoutes(t *testing.T) (attached func() string) {
	t.Helper()
	c, err := client.NewWithWatch(w.Admin, client.Options{Scheme: w.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Watch(t.Context(), &gwapiv1.HTTPRouteList{}, client.InNamespace(w.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	var mu sync.Mutex
	var seen []string
	go func() {
		for e := range events.ResultChan() {
			route, ok := e.Object.(*gwapiv1.HTTPRoute)
			if !ok {
				continue
			}
			mu.Lock()
			for _, ref := range route.Spec.ParentRefs {
				s := string(*ref.Kind) + " " + string(ref.Name) + "/"
				if ref.SectionName != nil {
					s += string(*ref.SectionName)
				}
				if !slices.Contains(seen, s) {
					seen = append(seen, s)
				}
			}
			mu.Unlock()
		}
	}()
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		was := strings.Join(seen, ", ")
		seen = nil
		return was
	}
}
