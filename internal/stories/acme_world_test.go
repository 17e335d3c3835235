package stories_test

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// tsigSecret is the key that the test's DNS server takes updates with.
const tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0"

// acmeWorld is a World with an ACME server and a DNS server of its own.
type acmeWorld struct {
	*rig.World

	ca   *pebble.Server
	dns  *dnsserver.Server
	http netip.AddrPort // where the CA validates HTTP-01
}

// newACMEWorld starts the servers; change may alter Pebble's options.
func newACMEWorld(t *testing.T, change func(*pebble.Options)) *acmeWorld {
	t.Helper()
	w := &acmeWorld{World: rig.NewWorld(t), http: rig.FreeAddress(t)}
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	w.dns, err = dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}}, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	options := pebble.Options{DNSServer: w.dns.Addr(), HTTPPort: int(w.http.Port()), NonceRejectPercent: 15}
	if change != nil {
		change(&options)
	}
	if w.ca, err = pebble.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	w.Create(t, &corev1.Secret{ObjectMeta: named("tsig"), StringData: map[string]string{"key": tsigSecret}})
	return w
}

// Config asks the test's DNS server, and listens for HTTP-01 on the test's port.
func (w *acmeWorld) Config() app.Config {
	cfg := w.World.Config()
	cfg.ACME.RecursiveNameservers = []string{w.dns.Addr()}
	cfg.ACME.AuthoritativePort = w.dns.Port()
	cfg.ACME.HTTP01Port, cfg.ACME.HTTP01Address = int(w.http.Port()), w.http.String()
	cfg.ACME.HTTP01Nameservers = []string{w.dns.Addr()}
	return cfg
}

// issuer returns a ClusterIssuer "acme": names below http.example.com by HTTP-01,
// all others by DNS-01.
func (w *acmeWorld) issuer() *certmanagerv1.ClusterIssuer {
	return clusterIssuer(w.World, "acme", certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: w.ca.DirectoryURL, CABundle: w.ca.TLSBundle, Email: "ops@example.com",
		PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
		Solvers: []acmev1.ACMEChallengeSolver{
			{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
				Nameserver: w.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256",
				TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
			}}},
			{
				Selector: &acmev1.CertificateDNSNameSelector{DNSZones: []string{"http.example.com"}},
				HTTP01:   &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}},
			},
		},
	}})
}

func (w *acmeWorld) orders(t *testing.T) []acmev1.Order {
	t.Helper()
	list := &acmev1.OrderList{}
	if err := w.Client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// TestACMEIssuesByBothChallenges issues by DNS-01 (wildcard and apex) and by HTTP-01
// (two names), with an ACME server that rejects nonces.
func TestACMEIssuesByBothChallenges(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	w.Run(t, w.Config())
	w.Create(t, w.issuer(),
		certificate(w.World, "wild", "acme", "wild.example.com", "*.wild.example.com"),
		certificate(w.World, "web", "acme", "a.http.example.com", "b.http.example.com"))
	for name, names := range map[string]int{"wild": 2, "web": 2} {
		awaitReady(t, w.World, name)
		secret := &corev1.Secret{}
		if err := w.Get(t.Context(), name, secret); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(secret.Annotations[certmanagerv1.AltNamesAnnotation], ",") + 1; got != names {
			t.Errorf("%s has the names %s", name, secret.Annotations[certmanagerv1.AltNamesAnnotation])
		}
	}
	w.NothingLeft(t, w.dns.TXT)
	if orders := w.orders(t); len(orders) != 2 {
		t.Errorf("%d Orders for 2 requests", len(orders))
	}
}
