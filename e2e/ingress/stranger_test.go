package ingress_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/e2e/beside"
	"chancery.dev/e2e/kubelet"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
)

// TestStranger: somebody renders the chart with a values file of his own into a fresh namespace, and applies the
// output. The pods run. An Ingress with an annotation gets a certificate of an ACME CA, which validates through
// Traefik, and Traefik serves that certificate.
func TestStranger(t *testing.T) {
	const namespace = "certs"
	rc := rig.BareCluster(t)
	kubelet.Start(t, rc, map[string]string{"registry.example.com/mirror/chancery:v1": os.Getenv("CHANCERY_BIN")})
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dnsserver.Start(t.Context(), dnsserver.Config{
		Hosts: []netip.Addr{netip.MustParseAddr(plainAddress)}, Port: 53,
		Zones: []dnsserver.Zone{{Name: "example.com.", Wildcard: netip.MustParseAddr(plainAddress)}},
	}); err != nil {
		t.Fatal(err)
	}
	ca, err := pebble.Start(t.Context(), pebble.Options{
		Listen: net.JoinHostPort(plainAddress, "14000"), Names: []string{"acme.example.net"}, DNSServer: plainAddress + ":53", HTTPPort: 80, TLSPort: 443,
	})
	if err != nil {
		t.Fatal(err)
	}
	traefik(t, rc, "traefik", plainAddress, "--entrypoints.websecure.http.tls=true")

	create := func(objects ...client.Object) {
		t.Helper()
		for _, object := range objects {
			if err := c.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	rendered, errors := beside.Helm(t, "", "template", "prod", "../../deploy/chart", "--namespace", namespace, "--values", "testdata/stranger.yaml")
	if errors != "" {
		t.Fatal(errors)
	}
	for _, object := range beside.Objects(t, rendered) {
		beside.ApplyServerSide(t, c, object)
	}
	create(shop(t)...)
	create(&certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: "acme"},
		Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server: strings.Replace(ca.DirectoryURL, plainAddress, "acme.example.net", 1), CABundle: ca.TLSBundle,
			PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
			Solvers:    []acmev1.ACMEChallengeSolver{{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{IngressClassName: new("traefik")}}}},
		}},
	})

	// Until the certificate is there, Traefik serves one that it made itself.
	asks := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: ca.RootPool(), MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(plainAddress, "443"))
		},
	}}
	rig.Eventually(t, "Traefik serves the shop with a certificate of the CA", func(ctx context.Context) string {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://shop.example.com/", http.NoBody)
		if err != nil {
			return err.Error()
		}
		resp, err := asks.Do(req)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "the shop" {
			return resp.Status + ": " + string(text)
		}
		secret := &corev1.Secret{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "shop-tls"}, secret); err != nil {
			return err.Error()
		}
		served := []byte{}
		for _, certificate := range resp.TLS.PeerCertificates {
			served = append(served, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})...)
		}
		if !bytes.Equal(served, secret.Data["tls.crt"]) {
			return "the chain that is served is not that of the Secret"
		}
		return ""
	})
}

// shop is a website in the namespace shop, with an Ingress that asks for a certificate.
func shop(t *testing.T) []client.Object {
	t.Helper()
	at, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(responder1, "8080"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the shop")
	})}
	go func() { _ = server.Serve(at) }()
	t.Cleanup(func() { _ = server.Close() })
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "shop"}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{responder1}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "shop"}
	ingress := &networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{
		IngressClassName: new("traefik"),
		TLS:              []networkingv1.IngressTLS{{Hosts: []string{"shop.example.com"}, SecretName: "shop-tls"}},
		Rules: []networkingv1.IngressRule{{Host: "shop.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "shop", Port: networkingv1.ServiceBackendPort{Name: "http"}},
			}}},
		}}}},
	}}
	ingress.Annotations = map[string]string{"kubernetes.io/tls-acme": "true"}
	return []client.Object{
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}},
		slice, ingress,
		&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "traefik"}, Spec: networkingv1.IngressClassSpec{Controller: "traefik.io/ingress-controller"}},
	}
}
