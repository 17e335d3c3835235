package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
)

// door is a way to the API server that counts, and that can be shut.
type door struct {
	*httptest.Server

	// writes are the requests that change something, without those for leases; watches are those of leases.
	writes, leases, watches atomic.Int32
	// shut refuses all requests, noLeases those for leases.
	shut, noLeases atomic.Bool
}

func newDoor(t *testing.T, rc *rest.Config) *door {
	t.Helper()
	to, err := url.Parse(rc.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rc)
	if err != nil {
		t.Fatal(err)
	}
	d, proxy := &door{}, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport, FlushInterval: -1,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leases := strings.Contains(r.URL.Path, "/leases")
		switch {
		case d.shut.Load():
			panic(http.ErrAbortHandler)
		case leases && d.noLeases.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
			d.leases.Add(1)
			return
		case leases:
			d.leases.Add(1)
			if r.URL.Query().Has("watch") {
				d.watches.Add(1)
			}
		case r.Method != http.MethodGet:
			d.writes.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(d.Close)
	t.Cleanup(d.CloseClientConnections)
	return d
}

// lease reads the lease of the controllers.
func lease(t *testing.T, w *rig.World) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{}
	if err := w.Get(t.Context(), "cert-manager-controller", l); err != nil {
		t.Fatal(err)
	}
	return l
}

// runsOut waits until nobody has renewed the lease for so often as long as it lasts.
func runsOut(t *testing.T, w *rig.World, times int) {
	t.Helper()
	rig.Eventually(t, "the lease has run out", func(context.Context) string {
		spec := lease(t, w).Spec
		if left := time.Until(spec.RenewTime.Add(time.Duration(times) * time.Duration(*spec.LeaseDurationSeconds) * time.Second)); left > 0 {
			return left.String()
		}
		return ""
	})
}

// away is a server that counts what it is asked, and says that it is not available.
func away(t *testing.T) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	asked := &atomic.Int32{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	return server, asked
}

// TestALeaderThatWakesAsksNobody: a leader is stopped past its lease while it asks a CA, Vault and DNS servers again
// and again. When it goes on and does not know yet that another one leads, it sends nothing to any of them, and no
// write to the API server; the servers count.
func TestALeaderThatWakesAsksNobody(t *testing.T) {
	w := rig.NewWorld(t)
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: w.Namespace, Name: name} }
	issuer := func(name string, spec certmanagerv1.IssuerSpec) *certmanagerv1.Issuer {
		return &certmanagerv1.Issuer{ObjectMeta: named(name), Spec: spec}
	}
	var dnsAsked, pebbleAsked atomic.Int32
	dns, err := dnsserver.Start(t.Context(), dnsserver.Config{
		Zones: []dnsserver.Zone{{Name: "example.com."}}, Begin: func() func() { dnsAsked.Add(1); return func() {} },
	})
	if err != nil {
		t.Fatal(err)
	}
	dns.SetMode(0, dnsserver.NXDomain) // no self check sees the record
	acme, err := pebble.Start(t.Context(), pebble.Options{DNSServer: dns.Addr(), Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { pebbleAsked.Add(1); h.ServeHTTP(w, r) })
	}})
	if err != nil {
		t.Fatal(err)
	}
	ca, caAsked := away(t)
	vault, vaultAsked := away(t)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate().Raw}) // of both
	d := newDoor(t, w.Admin)
	stopped := startController(t, w, rig.Kubeconfig(t, &rest.Config{Host: d.URL}, ""), "3s", "2s", "500ms",
		"--issuer-egress-allow=127.0.0.0/8", "--dns01-recursive-nameservers="+dns.Addr(), fmt.Sprintf("--dns01-authoritative-port=%d", dns.Port()),
		"--dns01-check-retry-period=1s")

	w.Create(t, issuer("acme", certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: acme.DirectoryURL, CABundle: acme.TLSBundle, PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
		Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{Nameserver: dns.Addr()}}}},
	}}), &certmanagerv1.Certificate{ObjectMeta: named("web"), Spec: certmanagerv1.CertificateSpec{
		SecretName: "web", DNSNames: []string{"web.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "acme"},
	}})
	asksOften := func(what string, asked *atomic.Int32, more int32) {
		before := asked.Load()
		rig.Eventually(t, "it asks "+what+" again", func(context.Context) string {
			if now := asked.Load() - before; now < more {
				return fmt.Sprintf("%d requests", now)
			}
			return ""
		})
	}
	rig.Eventually(t, "the challenge is presented", func(ctx context.Context) string {
		all := &acmev1.ChallengeList{}
		if err := w.Client.List(ctx, all, client.InNamespace(w.Namespace)); err != nil || len(all.Items) == 0 || !all.Items[0].Status.Presented {
			return fmt.Sprintf("%+v, %v", all.Items, err)
		}
		return ""
	})
	asksOften("the DNS server", &dnsAsked, 10)
	w.Create(t, &corev1.Secret{ObjectMeta: named("token"), StringData: map[string]string{"token": "t"}},
		issuer("away", certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{Server: ca.URL, CABundle: bundle, PrivateKey: cmmeta.SecretKeySelector{Name: "away"}}}),
		issuer("vault", certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{Server: vault.URL, Path: "pki/sign/web", CABundle: bundle,
			Auth: certmanagerv1.VaultAuth{TokenSecretRef: &cmmeta.SecretKeySelector{Name: "token", Key: "token"}}}}))
	asksOften("the CA", caAsked, 2)
	asksOften("Vault", vaultAsked, 2)

	stopped.signal(t, syscall.SIGSTOP)
	runsOut(t, w, 1)
	taken := lease(t, w)
	taken.Spec.HolderIdentity, taken.Spec.LeaseDurationSeconds, taken.Spec.RenewTime = new("another"), new(int32(3600)), &metav1.MicroTime{Time: time.Now()}
	if err := w.Client.Update(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	count := func() string {
		return fmt.Sprintf("DNS %d, CA %d and %d, Vault %d, writes %d", dnsAsked.Load(), caAsked.Load(), pebbleAsked.Load(), vaultAsked.Load(), d.writes.Load())
	}
	before := count()
	d.noLeases.Store(true)
	stopped.signal(t, syscall.SIGCONT)
	asksOften("for the lease", &d.leases, 12) // for three seconds
	d.noLeases.Store(false)
	if err := stopped.Wait(); err == nil || !strings.Contains(stopped.said.String(), "lost the lease") {
		t.Errorf("it ended with %v: %s", err, stopped.said.String())
	}
	if after := count(); after != before {
		t.Errorf("before it went on: %s; when it ended: %s", before, after)
	}
}

// TestAnOutageEndsNoProcess: while the API server is away for longer than the lease lasts, both the leader and who
// waits to lead stay as they are; then the leader goes on.
func TestAnOutageEndsNoProcess(t *testing.T) {
	t.Parallel() // it mostly waits
	w := rig.NewWorld(t)
	d := newDoor(t, w.Admin)
	kubeconfig := rig.Kubeconfig(t, &rest.Config{Host: d.URL}, "")
	first := startController(t, w, kubeconfig, "8s", "5s", "1s")
	rig.Eventually(t, "the first one leads", func(ctx context.Context) string {
		l := &coordinationv1.Lease{}
		if err := w.Get(ctx, "cert-manager-controller", l); err != nil || l.Spec.HolderIdentity == nil {
			return fmt.Sprint(err)
		}
		return ""
	})
	before := lease(t, w).Spec
	second := startController(t, w, kubeconfig, "8s", "5s", "1s")
	rig.Eventually(t, "the second one watches the lease", func(context.Context) string {
		if d.watches.Load() == 0 {
			return "no watch"
		}
		return ""
	})
	d.shut.Store(true)
	d.CloseClientConnections()
	runsOut(t, w, 2)
	away := lease(t, w).Spec
	d.shut.Store(false)
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"}, Spec: certmanagerv1.CertificateSpec{
			SecretName: "web", DNSNames: []string{"web.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "self"},
		}})
	rig.Eventually(t, "a certificate is issued", func(ctx context.Context) string {
		secret := &corev1.Secret{}
		if err := w.Get(ctx, "web", secret); err != nil {
			return err.Error()
		}
		return ""
	})
	after := lease(t, w).Spec
	if *after.HolderIdentity != *before.HolderIdentity || *after.LeaseTransitions != *before.LeaseTransitions || !after.RenewTime.After(away.RenewTime.Time) {
		t.Errorf("the lease was %+v before the outage, and is %+v", before, after)
	}
	for _, p := range []process{second, first} {
		p.signal(t, syscall.SIGTERM)
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %s", err, p.said.String())
		}
	}
	if said := first.said.String(); !strings.Contains(said, "nobody is asked until it is") || !strings.Contains(said, "going on") {
		t.Errorf("the leader said: %s", said)
	}
}
