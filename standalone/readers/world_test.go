package readers_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
)

// world is a World with an ACME server and the DNS server that it asks.
type world struct {
	*rig.World

	ca  *pebble.Server
	dns *dnsserver.Server
	cfg app.Config
}

// newWorld starts the servers, and no controllers. Nobody answers where the ACME server validates HTTP-01.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: rig.NewWorld(t)}
	var err error
	zone := dnsserver.Zone{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}
	if w.dns, err = dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{zone}}); err != nil {
		t.Fatal(err)
	}
	nobody, http := rig.FreeAddress(t), rig.FreeAddress(t)
	options := pebble.Options{DNSServer: w.dns.Addr(), HTTPPort: int(nobody.Port()), NonceRejectPercent: 15}
	if w.ca, err = pebble.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	w.cfg = w.Config()
	w.cfg.ACME.RecursiveNameservers, w.cfg.ACME.AuthoritativePort = []string{w.dns.Addr()}, w.dns.Port()
	w.cfg.ACME.HTTP01Port, w.cfg.ACME.HTTP01Address = int(http.Port()), http.String()
	w.cfg.ACME.HTTP01Nameservers = []string{w.dns.Addr()}
	return w
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func (w *world) clusterIssuer(name string, spec certmanagerv1.IssuerSpec) *certmanagerv1.ClusterIssuer {
	return &certmanagerv1.ClusterIssuer{ObjectMeta: named(w.ClusterName(name)), Spec: spec}
}

// issuer is a ClusterIssuer "acme": names below http.example.com by HTTP-01, all others by DNS-01.
func (w *world) issuer() *certmanagerv1.ClusterIssuer {
	return w.clusterIssuer("acme", certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: w.ca.DirectoryURL, CABundle: w.ca.TLSBundle, Email: "ops@example.com",
		PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
		Solvers: []acmev1.ACMEChallengeSolver{
			{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{Nameserver: w.dns.Addr()}}},
			{
				Selector: &acmev1.CertificateDNSNameSelector{DNSZones: []string{"http.example.com"}},
				HTTP01:   &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}},
			},
		},
	}})
}

// certificate is a Certificate with a small key by a ClusterIssuer of the world.
func (w *world) certificate(name, issuer string, dnsNames ...string) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{ObjectMeta: named(name), Spec: certmanagerv1.CertificateSpec{
		SecretName: name, DNSNames: dnsNames,
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		IssuerRef:  cmmeta.IssuerReference{Name: w.ClusterName(issuer), Kind: cmmeta.ClusterIssuerKind},
	}}
}

// awaitReady waits until the condition Ready of a Certificate has a status, and returns the Certificate.
func (w *world) awaitReady(t *testing.T, name string, status cmmeta.ConditionStatus) *certmanagerv1.Certificate {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	rig.Eventually(t, fmt.Sprintf("Ready of the Certificate %s is %s", name, status), func(ctx context.Context) string {
		err := w.Get(ctx, name, crt)
		conditions := crt.Status.Conditions
		if err != nil || !certmanagerv1.HasCertificateCondition(conditions, certmanagerv1.CertificateConditionReady, status) {
			return fmt.Sprintf("%+v, %v", conditions, err)
		}
		return ""
	})
	return crt
}
