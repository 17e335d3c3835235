package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/slow"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

const tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0"

// moment is one at which the process is killed. The issuance is held there until it is
// dead: or else it might be over, and nothing would be shown.
type moment struct {
	hold    func(bool)
	reached func(*acmev1.Challenge) bool
}

// TestKilledInTheMiddleOfAnOrder kills the whole process at three moments of an
// issuance by ACME: with the Challenge made, presented, and valid, with the order not finalized.
// After a restart there is a certificate, one Order, and no record left in DNS.
func TestKilledInTheMiddleOfAnOrder(t *testing.T) {
	slow.Test(t, slow.Crash)
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	zone := dnsserver.Zone{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}
	dns, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{zone}, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	var finalizing atomic.Bool
	ca, err := pebble.Start(t.Context(), pebble.Options{DNSServer: dns.Addr(), Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if finalizing.Load() && strings.HasPrefix(r.URL.Path, "/finalize-order/") {
				http.Error(w, "wait", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	arguments := []string{
		"--controllers=true", "--unsafe-no-fsync=false", "--data-dir", filepath.Join(dir, "data"), "--kubeconfig-out", kubeconfig,
		"--dns01-recursive-nameservers", dns.Addr(), "--dns01-authoritative-port", strconv.Itoa(dns.Port()),
	}
	p := start(t, arguments...)
	c := typedClient(t, kubeconfig)
	createACMEIssuer(t, c, ca, dns)
	propagation := func(hold bool) { dns.SetMode(0, map[bool]dnsserver.Mode{true: dnsserver.NXDomain}[hold]) }
	for i, m := range []moment{
		{propagation, func(*acmev1.Challenge) bool { return true }},
		{propagation, func(ch *acmev1.Challenge) bool { return ch.Status.Presented }},
		{finalizing.Store, func(ch *acmev1.Challenge) bool { return ch.Status.State == acmev1.Valid }},
	} {
		m.hold(true)
		killAt(t, c, p, fmt.Sprintf("kill-%d", i), m.reached)
		m.hold(false)
		p = start(t, arguments...)
		c = typedClient(t, kubeconfig)
		wantIssuedOnce(t, c, fmt.Sprintf("kill-%d", i), i+1, dns)
	}
}

func createACMEIssuer(t *testing.T, c ctrlclient.Client, ca *pebble.Server, dns *dnsserver.Server) {
	t.Helper()
	objects := []ctrlclient.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tsig"}, StringData: map[string]string{"key": tsigSecret}},
		&certmanagerv1.Issuer{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "acme"},
			Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
				Server: ca.DirectoryURL, CABundle: ca.TLSBundle, PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
				Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
					Nameserver: dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256",
					TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
				}}}},
			}},
		},
	}
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// killAt creates a Certificate and kills the process once a Challenge has got there.
func killAt(t *testing.T, c ctrlclient.Client, p *process, name string, reached func(*acmev1.Challenge) bool) {
	t.Helper()
	crt := &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: []string{name + ".example.com"},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
			IssuerRef:  cmmeta.IssuerReference{Name: "acme"},
		},
	}
	if err := c.Create(t.Context(), crt); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Challenge gets there", func(ctx context.Context) error {
		challenges := &acmev1.ChallengeList{}
		if err := c.List(ctx, challenges); err != nil {
			return err
		}
		for i := range challenges.Items {
			if reached(&challenges.Items[i]) {
				return nil
			}
		}
		return fmt.Errorf("%d challenges", len(challenges.Items))
	})
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
}

func wantIssuedOnce(t *testing.T, c ctrlclient.Client, name string, orders int, dns *dnsserver.Server) {
	t.Helper()
	eventually(t, name+" is ready and all is cleaned up", func(ctx context.Context) error {
		crt := &certmanagerv1.Certificate{}
		if err := c.Get(ctx, ctrlclient.ObjectKey{Namespace: "default", Name: name}, crt); err != nil {
			return err
		}
		if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
			return fmt.Errorf("conditions %+v", crt.Status.Conditions)
		}
		challenges := &acmev1.ChallengeList{}
		if err := c.List(ctx, challenges); err != nil {
			return err
		}
		if left := dns.TXT(); len(left)+len(challenges.Items) > 0 {
			return fmt.Errorf("%d Challenges, records %v", len(challenges.Items), left)
		}
		return nil
	})
	list := &acmev1.OrderList{}
	if err := c.List(t.Context(), list); err != nil || len(list.Items) != orders {
		t.Errorf("%d Orders for %d requests: %v", len(list.Items), orders, err)
	}
}
