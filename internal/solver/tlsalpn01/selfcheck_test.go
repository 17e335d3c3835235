package tlsalpn01_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/http01"
	"chancery.dev/internal/solver/tlsalpn01"
)

// answering is a server that shows a certificate for TLS-ALPN-01 to whoever asks for it, changed in
// some way.
func answering(change func(c *x509.Certificate, ext *pkix.Extension)) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte("token-0." + thumbprint))
		ext := pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 31}, Critical: true, Value: append([]byte{4, 32}, sum[:]...)}
		parent := &x509.Certificate{
			SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"www.example.test"},
		}
		change(parent, &ext)
		if ext.Id != nil {
			parent.ExtraExtensions = []pkix.Extension{ext}
		}
		signer := key
		if parent.IsCA { // somebody else's signature
			if signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
				t.Fatal(err)
			}
		}
		der, err := x509.CreateCertificate(rand.Reader, parent, &x509.Certificate{Subject: parent.Subject}, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		return handshakes(&tls.Config{
			NextProtos: []string{tlsalpn01.Protocol}, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		})(t)
	}
}

// handshakes is a server that does them.
func handshakes(config *tls.Config) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		return talking(func(c net.Conn) { _ = tls.Server(c, config).HandshakeContext(context.Background()) })(t)
	}
}

// talking is a server that does something with each connection, and closes it.
func talking(say func(net.Conn)) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer func() { _ = conn.Close() }()
					say(conn)
				}()
			}
		}()
		return listener.Addr().String()
	}
}

func website(t *testing.T) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestSelfCheck(t *testing.T) {
	responder := func(t *testing.T) string {
		t.Helper()
		return serve(t.Context(), t, tlsalpn01.ResponderOptions{Index: inFlight("www.example.test", "127.0.0.1"), Wait: time.Millisecond})
	}
	asIs := func(*x509.Certificate, *pkix.Extension) {}
	noALPN := httptest.NewTLSServer(http.NotFoundHandler())
	defer noALPN.Close()
	plain := noALPN.TLS.Certificates
	const passThrough = "passed through undecrypted"
	for _, c := range []struct {
		name   string
		server func(*testing.T) string
		dns    string
		n      int // of the challenge
		opts   func(*tlsalpn01.CheckOptions)
		says   string // nothing if the check passes
		wrong  bool   // WrongAnswer, not NotReachable
	}{
		{name: "answered", server: responder},
		{name: "answered by another server", server: answering(asIs)},
		{name: "IP address", server: responder, dns: "127.0.0.1", n: 1},
		{name: "challenge not in flight", server: responder, dns: "other.example.test", n: 2, says: "knows no such name", wrong: true},
		{name: "web server", server: website, says: "speaks TLS, but not acme-tls/1; have TLS for the name", wrong: true},
		{name: "web server without ALPN", server: handshakes(&tls.Config{Certificates: plain}), says: "speaks TLS, but not acme-tls/1; have TLS for the name", wrong: true},
		{name: "web server by the name of the protocol", server: handshakes(&tls.Config{Certificates: plain, NextProtos: []string{tlsalpn01.Protocol}}), says: "has no acmeIdentifier", wrong: true},
		{name: "no TLS", server: talking(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 secret\r\n\r\n") }), says: "does not speak TLS; have TLS", wrong: true},
		{name: "refused by alert", server: handshakes(&tls.Config{}), says: passThrough, wrong: true},
		{name: "for another name", server: answering(func(c *x509.Certificate, _ *pkix.Extension) { c.DNSNames[0] = "secret.example.test" }), says: "for another name", wrong: true},
		{name: "for two names", server: answering(func(c *x509.Certificate, _ *pkix.Extension) { c.DNSNames = append(c.DNSNames, "secret.example.test") }), says: "for another name", wrong: true},
		{name: "for an address, too", server: answering(func(c *x509.Certificate, _ *pkix.Extension) { c.IPAddresses = []net.IP{{127, 0, 0, 1}} }), says: "for another name", wrong: true},
		{name: "another challenge", server: answering(func(_ *x509.Certificate, e *pkix.Extension) { e.Value[5]++ }), says: "another challenge for the same name", wrong: true},
		{name: "not critical", server: answering(func(_ *x509.Certificate, e *pkix.Extension) { e.Critical = false }), says: "is not critical", wrong: true},
		{name: "not self-signed", server: answering(func(c *x509.Certificate, _ *pkix.Extension) { c.IsCA = true }), says: "is not self-signed", wrong: true},
		{name: "no extension", server: answering(func(_ *x509.Certificate, e *pkix.Extension) { e.Id = nil }), says: "has no acmeIdentifier", wrong: true},
		{name: "hung up", server: talking(func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<14)) }), says: "closed without an answer"},
		{name: "silent", server: talking(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), dns: "127.0.0.1", n: 1, says: "no answer in time", opts: func(o *tlsalpn01.CheckOptions) { o.Timeout = 50 * time.Millisecond }},
		{name: "nobody", server: func(t *testing.T) string { t.Helper(); return closed(t) }, says: "connection refused"},
		{name: "no such name", server: responder, dns: "nowhere.invalid", n: 2, says: "the name nowhere.invalid does not resolve"},
		{name: "off limits", server: responder, says: "127.0.0.1, which is off limits", opts: func(o *tlsalpn01.CheckOptions) {
			o.Dialer = http01.NewDialer([]string{resolver(t)}, egress.New(nil, nil), nil)
		}},
		{name: "address off limits", server: responder, dns: "127.0.0.1", n: 1, says: "127.0.0.1 is off limits", opts: func(o *tlsalpn01.CheckOptions) {
			o.Dialer = http01.NewDialer(nil, egress.New([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, nil), nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := tlsalpn01.CheckOptions{Port: portOf(c.server(t)), Timeout: 5 * time.Second, Dialer: http01.NewDialer([]string{resolver(t)}, nil, nil)}
			if c.opts != nil {
				c.opts(&o)
			}
			if c.dns == "" {
				c.dns = "www.example.test"
			}
			task := solver.Task{Challenge: challenge("ns", c.dns, c.n)}
			err := tlsalpn01.New(o).Check(t.Context(), task)
			if c.says == "" {
				if err != nil {
					t.Errorf("Check: %v", err)
				}
				return
			}
			reason := map[bool]string{true: http01.ReasonWrongAnswer, false: http01.ReasonNotReachable}[c.wrong]
			if f := fault.Of(err); f == nil || f.Kind != fault.KindAfter || f.Reason != reason {
				t.Fatalf("Check = %v (%+v), want %s to come back from", err, f, reason)
			}
			for _, words := range []string{c.says, "TLS handshake for acme-tls/1 with " + c.dns + ":", "waitInsteadOfSelfCheck"} {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("Check says %q, not %q", err, words)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%q quotes what was found", err)
			}
			// It goes into a status.
			if again := tlsalpn01.New(o).Check(t.Context(), task); again == nil || again.Error() != err.Error() {
				t.Errorf("first %v, then %v", err, again)
			}
		})
	}
}

// A CA connects to any address of a name: a wrong answer at one fails the challenge. An address that does not
// answer may only be out of reach from here.
func TestSelfCheckLooksAtEveryAddress(t *testing.T) {
	responder := serve(t.Context(), t, tlsalpn01.ResponderOptions{Index: inFlight("www.example.test"), Wait: time.Millisecond})
	web := website(t)
	dns, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{
		Name: "example.test", Records: []string{"www.example.test. 60 IN A 203.0.113.1", "www.example.test. 60 IN AAAA 2001:db8::1"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for second, want := range map[string]string{responder: "", web: http01.ReasonWrongAnswer, closed(t): ""} {
		dials := map[string]string{"203.0.113.1:443": responder, "[2001:db8::1]:443": second}
		o := tlsalpn01.CheckOptions{Dialer: http01.NewDialer([]string{dns.Addr()}, nil, func(ctx context.Context, network, to string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, dials[to])
		})}
		err := tlsalpn01.New(o).Check(t.Context(), solver.Task{Challenge: challenge("ns", "www.example.test", 0)})
		if f := fault.Of(err); (want == "") != (err == nil) || f != nil && f.Reason != want {
			t.Errorf("second address leads to %s: Check = %v, want %q", second, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "at 2001:db8::1: ") {
			t.Errorf("Check says %q, not where", err)
		}
	}
}

// IPv6 addresses are connected to, and asked for by their name in DNS (RFC 8738 §6).
func TestSelfCheckOfAnIPv6Identifier(t *testing.T) {
	const ip = "2001:db8::1"
	address := serve(t.Context(), t, tlsalpn01.ResponderOptions{Index: inFlight(ip)})
	var dialed string
	o := tlsalpn01.CheckOptions{Dialer: http01.NewDialer(nil, nil, func(ctx context.Context, network, to string) (net.Conn, error) {
		dialed = to
		return new(net.Dialer).DialContext(ctx, network, address)
	})}
	if err := tlsalpn01.New(o).Check(t.Context(), solver.Task{Challenge: challenge("ns", ip, 0)}); err != nil || dialed != "[2001:db8::1]:443" {
		t.Errorf("Check of %s: %v", dialed, err)
	}
}

// A Challenge with another solver is not retried.
func TestSelfCheckOfAnotherSolver(t *testing.T) {
	c := challenge("ns", "www.example.test", 0)
	c.Spec.Solver = acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{}}
	s := tlsalpn01.New(tlsalpn01.CheckOptions{})
	for _, call := range []func(context.Context, solver.Task) error{s.Present, s.Check} {
		if f := fault.Of(call(t.Context(), solver.Task{Challenge: c})); f == nil || f.Kind != fault.KindTerminal || f.Reason != solver.ReasonNotConfigured {
			t.Errorf("%+v", f)
		}
	}
}

// closed is an address where nobody listens.
func closed(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	return listener.Addr().String()
}
