package ingress_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// tsigSecret is the key of updates to the DNS server.
const tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0"

// world has two responders behind a Service, Pebble, and a DNS server by which
// example.com is at Traefik and secure.test at the one that redirects.
type world struct {
	*rig.World

	client client.Client
	ca     *pebble.Server
	dns    *dnsserver.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: rig.NewWorld(t)}
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if w.client, err = client.New(w.Admin, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	w.dns, err = dnsserver.Start(t.Context(), dnsserver.Config{Key: key, Zones: []dnsserver.Zone{
		{Name: "example.com.", Wildcard: netip.MustParseAddr(plainAddress)},
		{Name: "secure.test.", Wildcard: netip.MustParseAddr(secureAddress)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if w.ca, err = pebble.Start(t.Context(), pebble.Options{DNSServer: w.dns.Addr(), HTTPPort: 80, TLSPort: 443}); err != nil {
		t.Fatal(err)
	}
	elsewhere := w.responders(t)
	cfg := w.Config()
	cfg.ACME.HTTP01Nameservers = []string{w.dns.Addr()}
	cfg.ACME.HTTP01Responder = elsewhere + "/responder"
	cfg.ACME.RecursiveNameservers, cfg.ACME.AuthoritativePort = []string{w.dns.Addr()}, w.dns.Port()
	cfg.Shims.Gateways, cfg.Shims.ListenerSets = true, true
	w.Run(t, cfg)
	return w
}

// responders starts two replicas, with the rights of their service account. Their Service is in another namespace,
// which is returned: an Ingress cannot lead there. A Service of the same name is in the world's.
func (w *world) responders(t *testing.T) string {
	t.Helper()
	rc := rig.As(w.Admin, "system:serviceaccount:cert-manager:chancery-responder", "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	for _, addresses := range [][]string{{responder1}, {responder2}} {
		for _, address := range addresses {
			m, err := app.NewResponder(t.Context(), app.ResponderConfig{
				Address: net.JoinHostPort(address, "8089"), TLSALPN01Address: net.JoinHostPort(address, "8443"), MetricsAddress: "0", HealthAddress: "0",
			}, rc, logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- m.Start(ctx) }()
			t.Cleanup(func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
	}
	name, port, other := "http", int32(8089), rig.NewWorld(t)
	for _, in := range []*rig.World{w.World, other} {
		in.Create(t,
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "responder"},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: name, Port: port}}},
			},
			&discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: "responder", Labels: map[string]string{discoveryv1.LabelServiceName: "responder"}},
				AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{responder1}}, {Addresses: []string{responder2}}},
			})
	}
	return other.Namespace
}

// issuer makes an ACME ClusterIssuer with one HTTP-01 solver.
func (w *world) issuer(t *testing.T, name string, http01 *acmev1.HTTP01Solver) {
	t.Helper()
	w.issuerBy(t, name, acmev1.ACMEChallengeSolver{HTTP01: http01})
}

// dnsIssuer makes an ACME ClusterIssuer with one DNS-01 solver.
func (w *world) dnsIssuer(t *testing.T, name string) {
	t.Helper()
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tsig"}, StringData: map[string]string{"key": tsigSecret}})
	w.issuerBy(t, name, acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
		Nameserver: w.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256", TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
	}}})
}

func (w *world) issuerBy(t *testing.T, name string, solver acmev1.ACMEChallengeSolver) {
	t.Helper()
	w.Create(t, &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName(name)},
		Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server: w.ca.DirectoryURL, CABundle: w.ca.TLSBundle,
			PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
			Solvers:    []acmev1.ACMEChallengeSolver{solver},
		}},
	})
}

func (w *world) certificate(issuer, name string, dnsNames ...string) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: dnsNames,
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
			IssuerRef:  cmmeta.IssuerReference{Name: w.ClusterName(issuer), Kind: "ClusterIssuer"},
		},
	}
}

// awaitIssued waits for a certificate and verifies its chain.
func (w *world) awaitIssued(t *testing.T, name string) {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	rig.Eventually(t, "Certificate "+name+" is ready", func(ctx context.Context) string {
		if err := w.Get(ctx, name, crt); err != nil {
			return err.Error()
		}
		for _, c := range crt.Status.Conditions {
			if c.Type == certmanagerv1.CertificateConditionReady && c.Status == cmmeta.ConditionTrue {
				return ""
			}
		}
		return fmt.Sprintf("%+v; %s", crt.Status.Conditions, w.challenges(ctx))
	})
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), name, secret); err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(secret.Data["tls.crt"])
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	intermediates := x509.NewCertPool()
	intermediates.AppendCertsFromPEM(rest)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: w.ca.RootPool(), Intermediates: intermediates, DNSName: crt.Spec.DNSNames[0]}); err != nil {
		t.Error(err)
	}
}

// challenges says where the Challenges stand.
func (w *world) challenges(ctx context.Context) string {
	list := &acmev1.ChallengeList{}
	if err := w.client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
		return err.Error()
	}
	said := ""
	for _, c := range list.Items {
		said += fmt.Sprintf("%s: %s %s; ", c.Spec.DNSName, c.Status.State, c.Status.Reason)
	}
	return said
}

// awaitNoRoutes waits until no route of a Challenge is left.
func (w *world) awaitNoRoutes(t *testing.T, list client.ObjectList) {
	t.Helper()
	rig.Eventually(t, "the routes are cleaned up", func(ctx context.Context) string {
		err := w.client.List(ctx, list, client.InNamespace(w.Namespace), client.HasLabels{"acme.cert-manager.io/http-token"})
		if err != nil {
			return err.Error()
		}
		var left int
		switch list := list.(type) {
		case *networkingv1.IngressList:
			left = len(list.Items)
		case *gwapiv1.HTTPRouteList:
			left = len(list.Items)
		}
		if left > 0 {
			return fmt.Sprint(left, " are left")
		}
		return ""
	})
}

// TestIngress issues through Ingresses of a class, and through one that is edited in
// place and serves something else before and after.
func TestIngress(t *testing.T) {
	w := newWorld(t)
	class := w.Namespace
	traefik(t, w.Admin, class, plainAddress, reporting(plainAddress))
	w.issuer(t, "class", &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{IngressClassName: &class}})
	w.issuer(t, "name", &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Name: "site"}})
	w.Create(t, &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: networkingv1.IngressClassSpec{Controller: "traefik.io/ingress-controller"}})
	prefix := networkingv1.PathTypePrefix
	site := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "site"},
		Spec: networkingv1.IngressSpec{IngressClassName: &class, Rules: []networkingv1.IngressRule{{
			Host: "site.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: "responder", Port: networkingv1.ServiceBackendPort{Number: 8089}},
				}}},
			}},
		}}},
	}
	w.Create(t, site)
	w.Create(t, w.certificate("class", "by-class", "a.example.com", "b.example.com"), w.certificate("name", "by-name", "site.example.com", "other.example.com"))
	w.awaitIssued(t, "by-class")
	w.awaitIssued(t, "by-name")
	w.awaitNoRoutes(t, &networkingv1.IngressList{})
	rig.Eventually(t, "the edited Ingress is as before", func(ctx context.Context) string {
		now := &networkingv1.Ingress{}
		if err := w.Get(ctx, "site", now); err != nil {
			return err.Error()
		}
		if len(now.Spec.Rules) != 1 || len(now.Spec.Rules[0].HTTP.Paths) != 1 {
			return fmt.Sprintf("%+v", now.Spec)
		}
		return ""
	})
}

// TestRedirectToHTTPS issues where port 80 only redirects.
func TestRedirectToHTTPS(t *testing.T) {
	w := newWorld(t)
	class := w.Namespace
	traefik(t, w.Admin, class, secureAddress, reporting(secureAddress),
		"--entrypoints.web.http.redirections.entrypoint.to=websecure", "--entrypoints.web.http.redirections.entrypoint.scheme=https")
	w.Create(t, &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: networkingv1.IngressClassSpec{Controller: "traefik.io/ingress-controller"}})
	w.issuer(t, "redirect", &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{
		IngressClassName: &class,
		IngressTemplate: &acmev1.SolverIngressTemplate{Metadata: acmev1.SolverObjectMeta{Annotations: map[string]string{
			"traefik.ingress.kubernetes.io/router.entrypoints": "websecure", "traefik.ingress.kubernetes.io/router.tls": "true",
		}}},
	}})
	w.Create(t, w.certificate("redirect", "redirected", "www.secure.test"))
	w.awaitIssued(t, "redirected")
}

// TestHundredAtOnce: a hundred Challenges in one namespace make no pod, one Service. It
// says how long it took from a Challenge's start to its answer through Traefik.
//
// A Traefik that reports its address in each Ingress's status (docs/http01.md) does so while
// it reads them, five in a second: it is asked through one Ingress for all.
func TestHundredAtOnce(t *testing.T) {
	t.Run("an Ingress each", func(t *testing.T) {
		w := newWorld(t)
		traefik(t, w.Admin, w.Namespace, plainAddress)
		s := w.hundred(t, &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{IngressClassName: &w.Namespace}})
		if s.routes[apiwatch.Added] != hundred || s.routes[apiwatch.Modified] != 0 {
			t.Errorf("Ingresses for %d Challenges: %v, want each written once", hundred, s.routes)
		}
	})
	t.Run("one Ingress, edited in place", func(t *testing.T) {
		w := newWorld(t)
		traefik(t, w.Admin, w.Namespace, plainAddress, reporting(plainAddress))
		w.Create(t, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "challenges"}, Spec: networkingv1.IngressSpec{
			IngressClassName: &w.Namespace,
			Rules:            []networkingv1.IngressRule{{Host: "challenges.invalid"}},
		}})
		w.hundred(t, &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Name: "challenges"}})
	})
	t.Run("an HTTPRoute each", func(t *testing.T) {
		w := newWorld(t)
		s := w.hundred(t, w.gateway(t))
		if s.routes[apiwatch.Added] != hundred {
			t.Errorf("HTTPRoutes for %d Challenges: %v, want each made once", hundred, s.routes)
		}
	})
}

const hundred = 100

// hundred issues a hundred certificates at once, and measures.
func (w *world) hundred(t *testing.T, solver *acmev1.HTTP01Solver) *stopwatch {
	t.Helper()
	w.Create(t, &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Spec: networkingv1.IngressClassSpec{Controller: "traefik.io/ingress-controller"}})
	w.issuer(t, "class", solver)
	var routes client.ObjectList = &networkingv1.IngressList{}
	if solver.GatewayHTTPRoute != nil {
		routes = &gwapiv1.HTTPRouteList{}
	}
	measured := w.measure(t, routes)
	var all sync.WaitGroup
	for n := range hundred {
		all.Go(func() {
			if err := w.client.Create(t.Context(), inNamespace(w.certificate("class", fmt.Sprint("c", n), fmt.Sprintf("c%d.example.com", n)), w.Namespace)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for n := range hundred {
		w.awaitIssued(t, fmt.Sprint("c", n))
	}
	pods, services := &corev1.PodList{}, &corev1.ServiceList{}
	if err := w.client.List(t.Context(), pods, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	if err := w.client.List(t.Context(), services, client.InNamespace(w.Namespace), client.HasLabels{acmev1.HTTP01SolverLabel}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 0 || len(services.Items) != 1 {
		t.Errorf("%d pods and %d Services for %d Challenges", len(pods.Items), len(services.Items), hundred)
	}
	rig.Eventually(t, "the routes are cleaned up", func(ctx context.Context) string {
		if err := w.client.List(ctx, routes, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		left := 0
		err := meta.EachListItem(routes, func(route runtime.Object) error {
			left += len(tokensOf(route))
			return nil
		})
		if err != nil || left > 0 {
			return fmt.Sprint(left, " are left, ", err)
		}
		return ""
	})
	s := measured()
	s.log(t, started, known, hundred)
	s.log(t, started, routed, hundred)
	s.log(t, routed, answered, hundred)
	s.log(t, started, answered, hundred)
	return s
}

func inNamespace(crt *certmanagerv1.Certificate, namespace string) *certmanagerv1.Certificate {
	crt.Namespace = namespace
	return crt
}
