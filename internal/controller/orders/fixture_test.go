package orders_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/fakeclock"
	"chancery.dev/internal/rig/faulty"
	"chancery.dev/internal/rig/pebble"
)

// swift is a World with a CA and a DNS server of its own, in which nobody waits: its
// clock leaps.
type swift struct {
	*rig.World

	clock *fakeclock.Clock
	ca    *pebble.Server
	caIs  pebble.Options
	dns   *dnsserver.Server
	cfg   app.Config
}

// newSwift starts the servers; change may alter Pebble's options.
func newSwift(t *testing.T, change func(*pebble.Options)) *swift {
	t.Helper()
	return newSwiftBy(t, fakeclock.New(t.Context()), change)
}

func newSwiftBy(t *testing.T, clock *fakeclock.Clock, change func(*pebble.Options)) *swift {
	t.Helper()
	w := &swift{World: rig.NewWorld(t), clock: clock}
	var err error
	// No TSIG: its times would be those of the leaping clock.
	w.dns, err = dnsserver.Start(t.Context(), dnsserver.Config{Zones: zones(), Begin: clock.Begin})
	if err != nil {
		t.Fatal(err)
	}
	http := rig.FreeAddress(t)
	options := pebble.Options{DNSServer: w.dns.Addr(), HTTPPort: int(http.Port())}
	if change != nil {
		change(&options)
	}
	w.caIs = options
	if w.ca, err = pebble.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	w.cfg = w.Config()
	w.cfg.Clock = w.clock
	w.cfg.ACME.RecursiveNameservers = []string{w.dns.Addr()}
	w.cfg.ACME.AuthoritativePort = w.dns.Port()
	w.cfg.ACME.AccountKeyAlgorithm = pki.ECDSA
	w.cfg.ACME.HTTP01Port, w.cfg.ACME.HTTP01Address = int(http.Port()), http.String()
	w.cfg.ACME.HTTP01Nameservers = []string{w.dns.Addr()}
	return w
}

// zones are those of every swift world: all of their names lead to loopback.
func zones() []dnsserver.Zone {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	return []dnsserver.Zone{{Name: "example.com.", Wildcard: loopback}, {Name: "example.net.", Wildcard: loopback}}
}

// withCA is the same world with another CA of the kind. Pebble can come to a standstill
// where one makes orders while another's authorizations change: its locks are taken in
// opposite orders.
func (w *swift) withCA(t *testing.T) *swift {
	t.Helper()
	own := *w
	var err error
	if own.ca, err = pebble.Start(t.Context(), w.caIs); err != nil {
		t.Fatal(err)
	}
	return &own
}

// connection is that of the controllers, which keeps the clock from leaping while it is
// in use.
func (w *swift) connection() *rest.Config {
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	rc.ContentType, rc.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // which the clock reads
	rc.Wrap(w.clock.Wrap)
	return rc
}

// issuance is one Certificate with an issuer, and an account, of its own, whose CA is
// behind a proxy of its own.
type issuance struct {
	*swift

	// name is that of everything.
	name string
	// size is how many names the certificate has; 0 means one.
	size int
	// plan is the proxy's; hangs says that it keeps requests waiting on purpose.
	plan  func(faulty.Request) faulty.Fault
	hangs bool
	// dns01At is the name server that is updated; empty means the world's. http01 solves
	// by HTTP-01.
	dns01At string
	http01  bool
	// orders is how many orders at the CA are needed; 0 means one.
	orders int
	// late says that what matters comes after the certificate is issued.
	late bool
	// change may alter the issuer.
	change func(*acmev1.ACMEIssuer)

	names []string
	proxy *faulty.Proxy
}

// start makes everything that an issuance needs.
func (w *swift) start(t *testing.T, i *issuance) *issuance {
	t.Helper()
	i.swift = w
	for n := range max(i.size, 1) {
		i.names = append(i.names, fmt.Sprintf("%s-%03d.example.com", i.name, n))
	}
	options := faulty.Options{Upstream: w.ca.DirectoryURL, Client: w.ca.HTTPClient(), Plan: i.plan, Begin: w.clock.Begin, Ahead: w.clock.Ahead}
	if i.hangs {
		options.Begin = nil
	}
	var err error
	if i.proxy, err = faulty.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	if i.dns01At == "" {
		i.dns01At = w.dns.Addr()
	}
	solver := acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{Nameserver: i.dns01At}}}
	if i.http01 {
		solver = acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}}
	}
	spec := &acmev1.ACMEIssuer{
		Server: i.proxy.DirectoryURL, CABundle: i.proxy.TLSBundle, PrivateKey: cmmeta.SecretKeySelector{Name: i.name + "-account"},
		Solvers: []acmev1.ACMEChallengeSolver{solver},
	}
	if i.change != nil {
		i.change(spec)
	}
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: i.name}, Spec: certmanagerv1.IssuerSpec{ACME: spec}},
		i.certificate(i.name, i.names...))
	return i
}

// withoutARI keeps a CA from being asked when to renew. Where nothing else is waited for, the clock leaps from
// question to question, six hours each, until the first certificates are renewed. Who counts orders, or how long
// one took, after a first certificate needs this.
func withoutARI(spec *acmev1.ACMEIssuer) {
	spec.RenewalInformationSource = acmev1.RenewalInformationNone
}

// certificate is one by the issuance's issuer.
func (i *issuance) certificate(name string, names ...string) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
		SecretName: name, DNSNames: names, IssuerRef: cmmeta.IssuerReference{Name: i.name},
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
	}}
}

// unsettled says what is missing until the certificate is issued and nothing is left of
// how that came about; "" if nothing is.
func (i *issuance) unsettled(ctx context.Context) string {
	crt := &certmanagerv1.Certificate{}
	if err := i.Get(ctx, i.name, crt); err != nil {
		return err.Error()
	}
	if crt.Status.Revision == nil || *crt.Status.Revision != 1 ||
		!certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
		return fmt.Sprintf("%s: %+v", i.name, crt.Status.Conditions)
	}
	return i.left(ctx, func(*acmev1.Challenge) bool { return true })
}

// left says what is left of how an issuance came about: records, and Challenges that
// something is true of.
func (i *issuance) left(ctx context.Context, is func(*acmev1.Challenge) bool) string {
	challenges := &acmev1.ChallengeList{}
	if err := i.Client.List(ctx, challenges, client.InNamespace(i.Namespace)); err != nil {
		return err.Error()
	}
	for _, c := range challenges.Items {
		if slices.Contains(i.names, c.Spec.DNSName) && is(&c) {
			return fmt.Sprintf("Challenge %s is left: finalizers %v, %+v", c.Name, c.Finalizers, c.Status)
		}
	}
	for _, record := range i.dns.TXT() {
		for _, name := range i.names {
			if strings.Contains(record, name) {
				return "in DNS there is still " + record
			}
		}
	}
	return ""
}

// settle waits until the certificate is issued, and checks what is true then.
func (i *issuance) settle(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			i.dump(t)
		}
	})
	within(t, i.name+" is issued, and nothing is left", i.unsettled)
	secret := &corev1.Secret{}
	if err := i.Get(t.Context(), i.name, secret); err != nil {
		t.Fatal(err)
	}
	chain, err := pki.DecodeChain(secret.Data["tls.crt"])
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(slices.Values(chain[0].DNSNames)); !slices.Equal(got, i.names) {
		t.Errorf("names %v, want %v", got, i.names)
	}
	if n, needed := i.proxy.Created(), max(i.orders, 1); n > needed+1 {
		t.Errorf("%d orders at the CA, %d are needed: at most one more is allowed", n, needed)
	}
}

// awaitRequest waits until the CA has been sent a kind of request.
func (i *issuance) awaitRequest(t *testing.T, step faulty.Step) {
	t.Helper()
	within(t, fmt.Sprintf("%s asks for %q", i.name, step), func(context.Context) string {
		if slices.ContainsFunc(i.proxy.Seen(), func(r faulty.Request) bool { return r.Step == step }) {
			return ""
		}
		return i.clock.String()
	})
}

// within is rig.Eventually for tests that have much going on at once: it looks seldom,
// and is patient.
func within(t *testing.T, what string, check func(context.Context) string) {
	t.Helper()
	last := ""
	for began := time.Now(); time.Since(began) < 4*rig.Patience; time.Sleep(300 * time.Millisecond) { //nolint:forbidigo // real parts keep their own time
		if last = check(t.Context()); last == "" {
			return
		}
	}
	t.Fatalf("%s did not come true: %s", what, last)
}

// dump says how far an issuance has come.
func (i *issuance) dump(t *testing.T) {
	t.Helper()
	if i.unsettled(context.Background()) == "" {
		return
	}
	t.Logf("%s: clock %s, requests %v", i.name, i.clock, i.proxy.Seen())
	orders, issuer := &acmev1.OrderList{}, &certmanagerv1.Issuer{}
	if err := i.Get(context.Background(), i.name, issuer); err == nil {
		t.Logf("%s: issuer %+v", i.name, issuer.Status.Conditions)
	}
	if err := i.Client.List(context.Background(), orders, client.InNamespace(i.Namespace)); err != nil {
		t.Log(err)
	}
	for _, o := range orders.Items {
		if slices.Contains(o.Spec.DNSNames, i.names[0]) {
			t.Logf("%s: order %s: %s %s", i.name, o.Name, o.Status.State, o.Status.Reason)
		}
	}
}
