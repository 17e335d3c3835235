package ingress_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
)

// awaitHTTPS waits until a request to a host by HTTPS reaches a server whose certificate Pebble's root vouches for.
func (w *world) awaitHTTPS(t *testing.T, host string) {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: w.ca.RootPool()}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(plainAddress, "443"))
		},
	}
	rig.Eventually(t, "https://"+host+" verifies", func(ctx context.Context) string {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", http.NoBody)
		if err != nil {
			return err.Error()
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return fmt.Sprint(err, "; ", w.challenges(ctx))
		}
		_ = resp.Body.Close()
		return ""
	})
}

// edit changes an object of the world.
func edit[T client.Object](t *testing.T, w *world, o T, change func(T)) {
	t.Helper()
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	before := o.DeepCopyObject().(client.Object)
	change(o)
	if err := w.client.Patch(t.Context(), o, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// site is an Ingress for a host that asks an issuer for its certificate.
func (w *world) site(name, issuer, host string) *networkingv1.Ingress {
	in := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		"cert-manager.io/cluster-issuer": w.ClusterName(issuer), "cert-manager.io/private-key-algorithm": "ECDSA",
	}}}
	in.Spec.IngressClassName = &w.Namespace
	serve(in, host)
	return in
}

// serve has an Ingress serve a host, with the certificate in a Secret of its name.
func serve(in *networkingv1.Ingress, host string) {
	in.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: in.Name}}
	in.Spec.Rules = []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
		Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "responder", Port: networkingv1.ServiceBackendPort{Number: 8089}},
		}}},
	}}}}
}

// TestAnnotatedIngress gets the certificates of two Ingresses by their annotations, one by HTTP-01 and one by DNS-01,
// and Traefik serves them. A certificate follows its host; without the annotation, all stays as it is.
func TestAnnotatedIngress(t *testing.T) {
	w := newWorld(t)
	traefik(t, w.Admin, w.Namespace, plainAddress, reporting(plainAddress))
	w.Create(t, &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Spec: networkingv1.IngressClassSpec{Controller: "traefik.io/ingress-controller"}})
	w.issuer(t, "http", &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{IngressClassName: &w.Namespace}})
	w.dnsIssuer(t, "dns")
	shop, blog := w.site("shop", "http", "shop.example.com"), w.site("blog", "dns", "blog.example.com")
	w.Create(t, shop, blog, w.certificate("dns", "mine", "mine.example.com"))
	w.awaitHTTPS(t, "shop.example.com")
	w.awaitHTTPS(t, "blog.example.com")
	edit(t, w, shop, func(in *networkingv1.Ingress) { serve(in, "store.example.com") })
	w.awaitHTTPS(t, "store.example.com")
	w.awaitIssued(t, "mine")
	for _, in := range []*networkingv1.Ingress{shop, blog} {
		w.awaitIssued(t, in.Name)
		edit(t, w, in, func(in *networkingv1.Ingress) { delete(in.Annotations, "cert-manager.io/cluster-issuer") })
	}
	edit(t, w, blog, func(in *networkingv1.Ingress) { in.Spec.TLS[0].SecretName = "mine" })
	rig.Eventually(t, "the Certificate that nobody uses is deleted", func(ctx context.Context) string {
		err := w.Get(ctx, "blog", &certmanagerv1.Certificate{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprint("it is there, ", err)
		}
		return ""
	})
	w.awaitIssued(t, "shop")
	w.awaitIssued(t, "mine")
	w.awaitHTTPS(t, "store.example.com")
}

// TestAnnotatedGateway gets the certificate of a listener by annotations of its Gateway, by HTTP-01 and then, for
// another host, by DNS-01, and Traefik serves it. The certificate of a ListenerSet is proven through its Gateway:
// Traefik serves no ListenerSets.
func TestAnnotatedGateway(t *testing.T) {
	w := newWorld(t)
	w.gateway(t)
	w.issuer(t, "http", &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{}})
	w.dnsIssuer(t, "dns")
	gateway := &gwapiv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "gateway"}}
	listen := func(issuer, host string) {
		t.Helper()
		edit(t, w, gateway, func(g *gwapiv1.Gateway) {
			l := secured("edge")
			l.Hostname = new(gwapiv1.Hostname(host))
			g.Spec.Listeners = append(g.Spec.Listeners[:1:1], l)
			g.Annotations = map[string]string{
				"cert-manager.io/cluster-issuer": w.ClusterName(issuer), "cert-manager.io/private-key-algorithm": "ECDSA",
			}
		})
	}
	listen("http", "www.example.com")
	w.Create(t, &gwapiv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Spec: gwapiv1.HTTPRouteSpec{
		CommonRouteSpec: gwapiv1.CommonRouteSpec{ParentRefs: []gwapiv1.ParentReference{{Name: "gateway", SectionName: new(gwapiv1.SectionName("edge"))}}},
		Rules: []gwapiv1.HTTPRouteRule{{BackendRefs: []gwapiv1.HTTPBackendRef{{BackendRef: gwapiv1.BackendRef{
			BackendObjectReference: gwapiv1.BackendObjectReference{Name: "responder", Port: new(gwapiv1.PortNumber(8089))},
		}}}}},
	}})
	w.awaitHTTPS(t, "www.example.com")
	w.awaitIssued(t, "edge")
	listen("dns", "new.example.com")
	w.awaitHTTPS(t, "new.example.com")

	l := secured("set")
	w.Create(t, &gwapiv1.ListenerSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set", Annotations: map[string]string{
			"cert-manager.io/cluster-issuer": w.ClusterName("http"), acmev1.HTTP01ParentRefFallbackAnnotation: "true",
		}},
		Spec: gwapiv1.ListenerSetSpec{
			ParentRef: gwapiv1.ParentGatewayReference{Name: "gateway"},
			Listeners: []gwapiv1.ListenerEntry{{Name: l.Name, Hostname: new(gwapiv1.Hostname("set.example.com")), Port: 443, Protocol: l.Protocol, TLS: l.TLS}},
		},
	})
	w.awaitIssued(t, "set")
	w.awaitNoRoutes(t, &gwapiv1.HTTPRouteList{})
	edit(t, w, gateway, func(g *gwapiv1.Gateway) { g.Annotations = nil })
	w.awaitIssued(t, "edge")
}
