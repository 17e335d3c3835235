package stories_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/pebble"
)

// balancer is a load balancer of layer 4: it passes connections on and looks into none.
type balancer struct {
	port    int
	backend atomic.Pointer[string]
}

func newBalancer(t *testing.T, backend string) *balancer {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	b := &balancer{port: listener.Addr().(*net.TCPAddr).Port}
	b.backend.Store(&backend)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go b.pass(conn)
		}
	}()
	return b
}

func (b *balancer) pass(from net.Conn) {
	defer func() { _ = from.Close() }()
	to, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", *b.backend.Load())
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() { _, _ = io.Copy(to, from) }()
	_, _ = io.Copy(from, to)
}

func tlsSolver() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{TLSALPN01: &acmev1.TLSALPN01Solver{}}
}

// TestTLSHandshake: while a web server answers for a name, the Challenge says so and the CA is told
// nothing; once its port 443 leads to the responder, a certificate for it and for an IP address is
// issued; and for a wildcard, which cannot be proved so, the Order says what the CA offers.
func TestTLSHandshake(t *testing.T) {
	t.Parallel()
	site := httptest.NewUnstartedServer(http.NotFoundHandler())
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	site.StartTLS()
	defer site.Close()
	front := newBalancer(t, site.Listener.Addr().String())
	w := newWatched(t, func(o *pebble.Options) { o.TLSPort = front.port })
	w.cfg.ACME.CheckRetryPeriod = time.Second
	w.cfg.ACME.TLSALPN01Port, w.cfg.ACME.TLSALPN01Address = front.port, rig.FreeAddress(t).String()
	w.run(t)
	w.withIssuer(t, tlsSolver())
	web := certificate(w.World, "web", "acme", "web.example.com")
	web.Spec.IPAddresses = []string{"127.0.0.1"}
	w.Create(t, web, certificate(w.World, "wild", "acme", "*.example.com"))
	for _, name := range []string{"web.example.com", "127.0.0.1"} {
		w.awaitChallenge(t, "says what answers for "+name, func(c *acmev1.Challenge) bool {
			return c.Spec.DNSName == name && c.Spec.Type == acmev1.ChallengeTypeTLSALPN01 && c.Status.Presented &&
				strings.Contains(c.Status.Reason, "speaks TLS, but not acme-tls/1; have TLS for the name")
		})
	}
	if n := w.calls.count("POST /chalZ/"); n > 0 {
		t.Errorf("the CA was told %d times to validate", n)
	}
	front.backend.Store(&w.cfg.ACME.TLSALPN01Address)
	awaitReady(t, w.World, "web")
	w.verify(t, "web", "web.example.com")
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), "web", secret); err != nil {
		t.Fatal(err)
	}
	chain, err := pki.DecodeChain(secret.Data["tls.crt"])
	if err != nil || len(chain[0].IPAddresses) != 1 || chain[0].IPAddresses[0].String() != "127.0.0.1" {
		t.Errorf("addresses %v: %v", chain, err)
	}
	rig.Eventually(t, "the Order for the wildcard says why not", func(context.Context) string {
		said := ""
		for _, o := range w.orders(t) {
			if said += o.Status.Reason + "; "; strings.Contains(o.Status.Reason, "offers dns-01") && strings.Contains(o.Status.Reason, "none of the issuer's solvers is of such a type") {
				return ""
			}
		}
		return said
	})
}

// TestTLSHandshakeNotLooked: where the controller cannot see the answer, a wait stands in for the self
// check.
func TestTLSHandshakeNotLooked(t *testing.T) {
	t.Parallel()
	address := rig.FreeAddress(t)
	w := newWatched(t, func(o *pebble.Options) { o.TLSPort = int(address.Port()) })
	w.cfg.ACME.TLSALPN01Address, w.cfg.ACME.TLSALPN01Port = address.String(), int(rig.FreeAddress(t).Port())
	w.run(t)
	solver := tlsSolver()
	solver.WaitInsteadOfSelfCheck = &metav1.Duration{Duration: time.Millisecond}
	w.withIssuer(t, solver)
	w.Create(t, certificate(w.World, "web", "acme", "web.example.com"))
	awaitReady(t, w.World, "web")
	w.verify(t, "web", "web.example.com")
}
