package tlsalpn01_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/solver/conformance"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/http01"
	"chancery.dev/internal/solver/tlsalpn01"
)

const thumbprint = "9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI"

// order returns the Order of a namespace, which lists challenges with the tokens token-0, token-1, …
func order(namespace string, names ...string) *acmev1.Order {
	o := &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "order", UID: types.UID("uid-" + namespace)}}
	for n, name := range names {
		o.Status.Authorizations = append(o.Status.Authorizations, acmev1.ACMEAuthorization{
			Identifier: name,
			Challenges: []acmev1.ACMEChallenge{{URL: fmt.Sprintf("https://ca.test/chall/%d", n), Token: fmt.Sprintf("token-%d", n), Type: "tls-alpn-01"}},
		})
	}
	return o
}

// challenge returns challenge n of that Order, as the scheduler leaves it.
func challenge(namespace, name string, n int) *acmev1.Challenge {
	token := fmt.Sprintf("token-%d", n)
	owner := metav1.NewControllerRef(order(namespace), acmev1.SchemeGroupVersion().WithKind("Order"))
	return &acmev1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("challenge-%d", n), OwnerReferences: []metav1.OwnerReference{*owner}},
		Spec: acmev1.ChallengeSpec{
			URL: fmt.Sprintf("https://ca.test/chall/%d", n), DNSName: name, Type: acmev1.ChallengeTypeTLSALPN01,
			Token: token, Key: token + "." + thumbprint,
			Solver: acmev1.ACMEChallengeSolver{TLSALPN01: &acmev1.TLSALPN01Solver{}},
		},
		Status: acmev1.ChallengeStatus{Processing: true, State: acmev1.Pending},
	}
}

// inFlight returns an Index of challenges for names.
func inFlight(names ...string) *http01.Index {
	x := http01.NewIndex()
	x.UpsertOrder(order("ns", names...))
	for n, name := range names {
		x.UpsertChallenge(challenge("ns", name, n))
	}
	return x
}

// results is what a Responder says of its connections.
type results chan string

func (r results) add(result string) { r <- result }

// next returns the next n results, sorted.
func (r results) next(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = <-r
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// serve runs a Responder on loopback until the end of the test, or of ctx, and returns its address.
func serve(ctx context.Context, t *testing.T, o tlsalpn01.ResponderOptions) string {
	t.Helper()
	r, err := tlsalpn01.NewResponder(o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// shake does what a CA does, and returns the certificate.
func shake(t *testing.T, address string, config *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	config.InsecureSkipVerify = true
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // as rig.Patience
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	secure, ok := conn.(*tls.Conn)
	if !ok {
		t.Fatalf("%T", conn)
	}
	// Nothing is said after the handshake (RFC 8737 §3), whatever the client says.
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
	if said, err := io.ReadAll(conn); len(said) > 0 {
		t.Errorf("the responder says %q (%v)", said, err)
	}
	_ = conn.Close() // the other side has, too
	return secure.ConnectionState(), nil
}

func TestResponderAnswersHandshakes(t *testing.T) {
	const alpn, v6 = tlsalpn01.Protocol, "2001:db8::1"
	said := make(results, 20)
	address := serve(t.Context(), t, tlsalpn01.ResponderOptions{
		Index: inFlight("www.example.test", "192.0.2.1", v6), Wait: time.Millisecond, Answered: said.add,
	})
	for _, c := range []struct {
		name, server string
		protocols    []string
		max          uint16
		san, token   string // of the answer
		says         string
	}{
		{name: "the name", server: "www.example.test", protocols: []string{alpn}, san: "www.example.test", token: "token-0"},
		{name: "in other letters", server: "WWW.example.TEST", protocols: []string{alpn}, san: "www.example.test", token: "token-0"},
		{name: "TLS 1.2", server: "www.example.test", protocols: []string{alpn}, max: tls.VersionTLS12, san: "www.example.test", token: "token-0"},
		{name: "IPv4", server: "1.2.0.192.in-addr.arpa", protocols: []string{alpn}, san: "192.0.2.1", token: "token-1"},
		{name: "IPv6", server: http01.ServerName(v6), protocols: []string{alpn}, san: v6, token: "token-2"},
		{name: "another name", server: "other.example.test", protocols: []string{alpn}, says: "unrecognized name"},
		{name: "a name below", server: "a.www.example.test", protocols: []string{alpn}, says: "unrecognized name"},
		{name: "no name", protocols: []string{alpn}, says: "unrecognized name"},
		{name: "no protocol", server: "www.example.test", says: "internal error"},
		{name: "another protocol", server: "www.example.test", protocols: []string{"h2"}, says: "no application protocol"},
		{name: "more protocols", server: "www.example.test", protocols: []string{alpn, "h2"}, says: "internal error"},
		{name: "TLS 1.1", server: "www.example.test", protocols: []string{alpn}, max: tls.VersionTLS11, says: "protocol version not supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			state, err := shake(t, address, &tls.Config{ServerName: c.server, NextProtos: c.protocols, MinVersion: tls.VersionTLS10, MaxVersion: c.max})
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %s", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			answersFor(t, state, c.san, c.token+"."+thumbprint)
		})
	}
	if got, want := said.next(12), strings.Repeat("answered ", 5)+strings.Repeat("failed ", 4)+"unknown unknown unknown"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

// answersFor looks at a certificate by the letter of RFC 8737 §3 and RFC 8738 §6.
func answersFor(t *testing.T, state tls.ConnectionState, san, key string) {
	t.Helper()
	leaf := state.PeerCertificates[0]
	names := leaf.DNSNames
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if len(state.PeerCertificates) != 1 || len(names) != 1 || names[0] != san || state.NegotiatedProtocol != "acme-tls/1" {
		t.Errorf("%d certificates, names %q, protocol %q", len(state.PeerCertificates), names, state.NegotiatedProtocol)
	}
	if err := leaf.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature); err != nil {
		t.Errorf("not self-signed: %v", err)
	}
	sum := sha256.Sum256([]byte(key))
	want := append([]byte{4, 32}, sum[:]...)
	for _, e := range leaf.Extensions {
		if e.Id.Equal(asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 31}) {
			if !e.Critical || string(e.Value) != string(want) {
				t.Errorf("extension critical=%v %x, want %x", e.Critical, e.Value, want)
			}
			return
		}
	}
	t.Error("no acmeIdentifier")
}

// A handshake that comes before the watch waits for it, if there is room.
func TestResponderWaitsForTheWatch(t *testing.T) {
	x := http01.NewIndex()
	address := serve(t.Context(), t, tlsalpn01.ResponderOptions{Index: x, Wait: time.Minute, MaxWaiters: 1})
	outcome := make(chan error, 2)
	for range 2 {
		go func() {
			state, err := shake(t, address, &tls.Config{ServerName: "www.example.test", NextProtos: []string{tlsalpn01.Protocol}})
			if err == nil {
				answersFor(t, state, "www.example.test", "token-0."+thumbprint)
			}
			outcome <- err
		}()
	}
	if err := <-outcome; err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("one waiter too many: %v", err)
	}
	x.UpsertOrder(order("ns", "www.example.test"))
	x.UpsertChallenge(challenge("ns", "www.example.test", 0))
	if err := <-outcome; err != nil {
		t.Errorf("the waiter: %v", err)
	}
}

// pipes is a listener whose connections need no kernel, so that time can be stepped.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		if c == nil {
			return nil, errors.New("too many open files")
		}
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.ended) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// Connections are bounded in number: the oldest gives way, at once, to one more. A listener that fails once is not
// given up.
func TestResponderIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := make(results, 20)
		r, err := tlsalpn01.NewResponder(tlsalpn01.ResponderOptions{
			Index: inFlight("www.example.test"), MaxConnections: 2, Timeout: 10 * time.Second, Answered: said.add,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		listener, done := newPipes(), make(chan error, 1)
		go func() { done <- r.Serve(ctx, listener) }()
		listener.conns <- nil
		for range 2 {
			_, server := net.Pipe()
			listener.conns <- server
		}
		start := time.Now()
		client, server := net.Pipe()
		listener.conns <- server
		secure := tls.Client(client, &tls.Config{ServerName: "www.example.test", NextProtos: []string{tlsalpn01.Protocol}, InsecureSkipVerify: true})
		if err := secure.HandshakeContext(ctx); err != nil {
			t.Errorf("a third connection: %v", err)
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("a third connection waits %v for those that are silent", waited)
		}
		go func() { _, _ = io.Copy(io.Discard, client) }()
		if got := said.next(2); got != "answered failed" {
			t.Errorf("told %q", got)
		}
		_, server = net.Pipe()
		listener.conns <- server
		synctest.Wait()
		before := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(before) != 0 {
			t.Errorf("Serve = %v after %v, although what is open can be closed at once", err, time.Since(before))
		}
	})
}

// A listener that somebody closes is not tried for ever.
func TestResponderEndsWithItsListener(t *testing.T) {
	r, err := tlsalpn01.NewResponder(tlsalpn01.ResponderOptions{Index: http01.NewIndex()})
	if err != nil {
		t.Fatal(err)
	}
	listener := newPipes()
	_ = listener.Close()
	if err := r.Serve(t.Context(), listener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve = %v", err)
	}
}

// resolver serves every name below example.test at 127.0.0.1.
func resolver(t *testing.T) string {
	t.Helper()
	s, err := dnsserver.Start(t.Context(), dnsserver.Config{
		Zones: []dnsserver.Zone{{Name: "example.test", Wildcard: netip.MustParseAddr("127.0.0.1")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Addr()
}

func portOf(address string) int { return int(netip.MustParseAddrPort(address).Port()) }

func TestConformance(t *testing.T) {
	x := http01.NewIndex()
	x.UpsertOrder(order("ns", "www.example.test", "www.example.test"))
	address := serve(t.Context(), t, tlsalpn01.ResponderOptions{Index: x, Wait: time.Millisecond})
	options := tlsalpn01.CheckOptions{Port: portOf(address), Dialer: http01.NewDialer([]string{resolver(t)}, nil, nil)}
	conformance.Run(t, conformance.Harness{
		New:       func() solver.Solver { return tlsalpn01.New(options) },
		Task:      func(n int) solver.Task { return solver.Task{Challenge: challenge("ns", "www.example.test", n)} },
		Start:     func(task solver.Task) { x.UpsertChallenge(task.Challenge) },
		Exclusive: true, // a handshake tells no token
		AfterCleanUp: func(task solver.Task) {
			done := task.Challenge.DeepCopy()
			done.Status = acmev1.ChallengeStatus{State: acmev1.Valid}
			x.UpsertChallenge(done)
		},
		Visible: func(_ context.Context, task solver.Task) bool {
			_, key, ok := x.LookupServer(task.Challenge.Spec.DNSName)
			return ok && key == task.Challenge.Spec.Key
		},
	})
}
