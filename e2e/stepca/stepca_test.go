package stepca

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
)

// world is a World with a step-ca and a DNS server, and an issuer "step" by DNS-01 for
// all names but those below http.example.com.
type world struct {
	*rig.World

	ca  *server
	dns *dnsserver.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: rig.NewWorld(t)}
	var err error
	w.dns, err = dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}}})
	if err != nil {
		t.Fatal(err)
	}
	http := rig.FreeAddress(t)
	w.ca = start(t, w.dns.Addr(), int(http.Port()))
	cfg := w.Config()
	cfg.ACME.AccountKeyAlgorithm = pki.ECDSA
	cfg.ACME.RecursiveNameservers, cfg.ACME.AuthoritativePort = []string{w.dns.Addr()}, w.dns.Port()
	cfg.ACME.HTTP01Port, cfg.ACME.HTTP01Address = int(http.Port()), http.String()
	cfg.ACME.HTTP01Nameservers = []string{w.dns.Addr()}
	w.Run(t, cfg)
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "step"}, Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: w.ca.directory, CABundle: pki.EncodeCertificates(w.ca.root), Email: "ops@example.com",
		PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
		Solvers: []acmev1.ACMEChallengeSolver{
			{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{Nameserver: w.dns.Addr()}}},
			{
				Selector: &acmev1.CertificateDNSNameSelector{DNSZones: []string{"http.example.com"}},
				HTTP01:   &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}},
			},
		},
	}}})
	return w
}

// TestIssuesByBothChallenges issues by DNS-01 (a wildcard and its apex) and by HTTP-01
// (two names), and leaves nothing behind.
func TestIssuesByBothChallenges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certificates := map[string][]string{
		"dns": {"*.wild.example.com", "wild.example.com"},
		"web": {"a.http.example.com", "b.http.example.com"},
	}
	for name, names := range certificates {
		w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: names, IssuerRef: cmmeta.IssuerReference{Name: "step"},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		}})
	}
	for name, names := range certificates {
		crt := &certmanagerv1.Certificate{}
		rig.Eventually(t, name+" is issued", func(ctx context.Context) string {
			if err := w.Get(ctx, name, crt); err != nil {
				return err.Error()
			}
			if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
				return fmt.Sprintf("%+v\n%s", crt.Status.Conditions, w.told(ctx))
			}
			return ""
		})
		w.verify(t, name, names)
	}
	w.NothingLeft(t, w.dns.TXT)
}

// told is what Orders and Challenges say.
func (w *world) told(ctx context.Context) string {
	var said []string
	orders, challenges := &acmev1.OrderList{}, &acmev1.ChallengeList{}
	for _, list := range []client.ObjectList{orders, challenges} {
		if err := w.Client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
	}
	for _, o := range orders.Items {
		said = append(said, fmt.Sprintf("Order %s: %s %s", o.Name, o.Status.State, o.Status.Reason))
	}
	for _, c := range challenges.Items {
		said = append(said, fmt.Sprintf("Challenge for %s: %s %s", c.Spec.DNSName, c.Status.State, c.Status.Reason))
	}
	return strings.Join(said, "\n")
}

// verify checks that a Secret holds a chain to the CA's root for the names.
func (w *world) verify(t *testing.T, name string, names []string) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), name, secret); err != nil {
		t.Fatal(err)
	}
	chain, err := pki.DecodeChain(secret.Data["tls.crt"])
	if err != nil {
		t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(w.ca.root)
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if got := slices.Sorted(slices.Values(chain[0].DNSNames)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		t.Errorf("%s has the names %v, want %v", name, got, names)
	}
}
