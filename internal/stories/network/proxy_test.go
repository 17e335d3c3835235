package network_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
)

// proxy is an HTTP proxy for CONNECT. It alone knows the names below behind.test and root.test.
type proxy struct {
	servers map[string]string // address of each host:port, "" for all others

	mu    sync.Mutex
	asked []string
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Host)
	p.mu.Unlock()
	address, known := p.servers[r.Host]
	if !known {
		address = p.servers[""]
	}
	if _, zone, _ := strings.Cut(r.Host, "."); r.Method != http.MethodConnect || zone != "behind.test:443" && zone != "root.test:443" {
		http.Error(w, "not by this proxy", http.StatusForbidden)
		return
	}
	there, err := new(net.Dialer).DialContext(r.Context(), "tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = there.Close()
		return
	}
	go func() {
		_, _ = io.Copy(there, buffered) // it ends with either side
		_ = there.Close()
	}()
	_, _ = io.Copy(here, there) // as above
	_ = here.Close()
}

func (p *proxy) wasAsked(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.asked, func(asked string) bool { return strings.HasPrefix(asked, host+":") })
}

// recorder is an HTTPS server that has no answers. It notes which hosts were meant.
type recorder struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (s *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, found := strings.Cut(r.Host, ":")
	if !found {
		host = r.Host
	}
	s.mu.Lock()
	s.seen[host] = true
	s.mu.Unlock()
	w.WriteHeader(http.StatusServiceUnavailable)
}

func (s *recorder) saw(host string) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.seen[host] }

// serve serves until the test ends and returns the address.
func serve(t *testing.T, address string, handler http.Handler, pairs ...tls.Certificate) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() {
		if len(pairs) > 0 {
			server.TLSConfig = &tls.Config{Certificates: pairs, MinVersion: tls.VersionTLS12}
			_ = server.ServeTLS(listener, "", "") // it ends by Close
			return
		}
		_ = server.Serve(listener) // as above
	}()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// behindProxy: a certificate is issued by way of the proxy. All other clients send their requests there, too, and
// verify the server by a private root: of a caBundle below behind.test, and of SSL_CERT_FILE below root.test. The self
// check of HTTP-01 uses plain HTTP and no proxy: HTTP_PROXY is not set. The tests of chancery-dns have a proxy of their
// own.
func behindProxy(t *testing.T, rc *rest.Config) {
	t.Helper()
	w := newWorld(t, rc, dnsserver.Zone{Name: "example.com.", Wildcard: netip.MustParseAddr(web4)}, dns4)
	all, bundle := pairs(t)
	others := &recorder{seen: map[string]bool{}}
	direct := serve(t, directHost+":0", others, all...)
	through := &proxy{servers: map[string]string{
		"acme.behind.test:443": strings.TrimPrefix(strings.TrimSuffix(w.ca.DirectoryURL, "/dir"), "https://"), "": direct,
	}}
	serve(t, proxyAddress, through)
	w.run(t, netip.AddrPortFrom(netip.MustParseAddr(web4), httpPort).String())

	acmeDNS := &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{
		Host: "https://acmedns.root.test", AccountSecretRef: cmmeta.SecretKeySelector{Name: "acmedns", Key: "accounts"},
	}}
	webhook := &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{URL: "https://webhook.behind.test/x", CABundle: bundle}}
	doh := w.rfc2136()
	doh.Nameservers = []string{"https://doh.root.test/dns-query"}
	vault := func(server string) certmanagerv1.IssuerSpec {
		return certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{
			Server: server, Path: "pki/sign/web", CABundle: bundle,
			Auth: certmanagerv1.VaultAuth{TokenSecretRef: &cmmeta.SecretKeySelector{Name: "credentials", Key: "token"}},
		}}
	}
	forbidden := w.issuer("https://169.254.169.254/dir").Spec
	w.Create(t,
		&corev1.Secret{ObjectMeta: named("credentials"), StringData: map[string]string{"token": "x", "access-token": "x"}},
		&corev1.Secret{ObjectMeta: named("acmedns"), StringData: map[string]string{
			"accounts": `{"a.example.com": {"username": "u", "password": "p", "fulldomain": "x.example.net", "subdomain": "x"}}`,
		}},
		w.issuer("https://acme.behind.test/dir",
			acmev1.ACMEChallengeSolver{Selector: zone("a.example.com"), DNS01: acmeDNS},
			acmev1.ACMEChallengeSolver{Selector: zone("w.example.com"), DNS01: webhook},
			acmev1.ACMEChallengeSolver{Selector: zone("d.example.com"), DNS01: doh}),
		w.clusterIssuer("vault", vault("https://vault.behind.test")), w.clusterIssuer("direct", vault("https://"+direct)),
		w.clusterIssuer("venafi", certmanagerv1.IssuerSpec{Venafi: &certmanagerv1.VenafiIssuer{Zone: "x", TPP: &certmanagerv1.VenafiTPP{
			URL: "https://tpp.behind.test/vedsdk", CABundle: bundle, CredentialsRef: cmmeta.LocalObjectReference{Name: "credentials"},
		}}}),
		&certmanagerv1.Issuer{ObjectMeta: named("forbidden"), Spec: forbidden},
		w.certificate("web", "a.http.example.com"), w.certificate("acmedns", "a.example.com"), w.certificate("webhook", "w.example.com"),
		w.certificate("doh", "d.example.com"))
	w.issued(t, "web", "a.http.example.com")
	for _, name := range []string{"acmedns.root.test", "doh.root.test", "webhook.behind.test", "vault.behind.test", "tpp.behind.test"} {
		rig.Eventually(t, "a request for "+name, func(context.Context) string {
			if !through.wasAsked(name) || !others.saw(name) {
				return fmt.Sprintf("the proxy was asked: %t, the server: %t", through.wasAsked(name), others.saw(name))
			}
			return ""
		})
	}
	rig.Eventually(t, "a request without the proxy", func(context.Context) string {
		if !others.saw(directHost) {
			return "the server of NO_PROXY was not asked"
		}
		return ""
	})
	rig.Eventually(t, "the forbidden server is refused", func(ctx context.Context) string {
		issuer := &certmanagerv1.Issuer{}
		if err := w.Get(ctx, "forbidden", issuer); err != nil {
			return err.Error()
		}
		if said := fmt.Sprint(issuer.Status.Conditions); !strings.Contains(said, "off limits") {
			return said
		}
		return ""
	})
	if !through.wasAsked("acme.behind.test") {
		t.Error("the ACME server was not asked through the proxy")
	}
	for _, host := range []string{directHost, web4, dns4, "169.254.169.254", "a.http.example.com", "::1"} {
		if through.wasAsked(host) {
			t.Errorf("the proxy was asked for %s", host)
		}
	}
}
