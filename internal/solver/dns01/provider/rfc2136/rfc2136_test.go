package rfc2136_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/leader/term"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// secrets is a namespace's Secrets by name.
type secrets map[string]map[string][]byte

func (s secrets) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	data, ok := s[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return &corev1.Secret{Data: data}, nil
}

func serve(t *testing.T, key dnsserver.Key) *dnsserver.Server {
	t.Helper()
	s, err := dnsserver.Start(t.Context(), dnsserver.Config{Key: key, Zones: []dnsserver.Zone{{Name: "example.test"}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFromConfig(t *testing.T) {
	server := serve(t, mustKey(t, "update.key", "HMACSHA256", bindSecret))
	full := func() acmev1.RFC2136Provider {
		return acmev1.RFC2136Provider{
			Nameserver: server.Addr(), TSIGKeyName: "Update.Key", TSIGAlgorithm: "hmacsha256",
			TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
		}
	}
	for _, c := range []struct {
		name   string
		change func(*acmev1.RFC2136Provider)
		secret string
		kind   fault.Kind
		says   string
	}{
		{"udp", func(*acmev1.RFC2136Provider) {}, bindSecret, "", ""},
		{"tcp", func(c *acmev1.RFC2136Provider) { c.Protocol = acmev1.RFC2136TCP }, bindSecret, "", ""},
		{"name without secret", func(c *acmev1.RFC2136Provider) { c.TSIGSecretSecretRef.Name = "" }, bindSecret, fault.KindTerminal, "go together"},
		{"secret without name", func(c *acmev1.RFC2136Provider) { c.TSIGKeyName = "" }, bindSecret, fault.KindTerminal, "go together"},
		{"no Secret", func(c *acmev1.RFC2136Provider) { c.TSIGSecretSecretRef.Name = "gone" }, bindSecret, fault.KindAfter, "Secret ns/gone"},
		{"no entry", func(c *acmev1.RFC2136Provider) { c.TSIGSecretSecretRef.Key = "gone" }, bindSecret, fault.KindAfter, `no entry "gone"`},
		{"not base64", func(*acmev1.RFC2136Provider) {}, "~hidden~", fault.KindAfter, "not base64"},
		{"algorithm", func(c *acmev1.RFC2136Provider) { c.TSIGAlgorithm = "HMACSHA3" }, bindSecret, fault.KindAfter, "HMACSHA512"},
		{"nameserver", func(c *acmev1.RFC2136Provider) { c.Nameserver = "::1:x" }, bindSecret, fault.KindTerminal, "[IPv6]:port"},
		{"wrong secret", func(*acmev1.RFC2136Provider) {}, "AAAA", fault.KindAfter, "BADSIG"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := full()
			c.change(&config)
			p, err := rfc2136.FromConfig(t.Context(), &config, "ns", secrets{"tsig": {"key": []byte(c.secret)}}, rfc2136.Options{})
			if err == nil {
				err = p.Present(t.Context(), record("www.example.test", "value"))
			}
			if c.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := p.CleanUp(t.Context(), record("www.example.test", "value")); err != nil {
					t.Fatal(err)
				}
				if left := server.TXT(); len(left) != 0 {
					t.Errorf("left in DNS: %q", left)
				}
				return
			}
			if f := fault.Of(err); f == nil || f.Kind != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v (%+v), want kind %v and %q", err, f, c.kind, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("%q gives the secret away", err)
			}
		})
	}
}

func TestHMACMD5IsTheDefault(t *testing.T) {
	k := mustKey(t, "update.key", "", bindSecret)
	server := serve(t, k)
	p := newProvider(t, rfc2136.Config{Nameserver: server.Addr(), Key: k})
	if err := p.Present(t.Context(), record("www.example.test", "value")); err != nil {
		t.Fatal(err)
	}
	if k.Algorithm != "hmac-md5.sig-alg.reg.int." || len(server.TXT()) != 1 {
		t.Errorf("algorithm %s, DNS holds %q", k.Algorithm, server.TXT())
	}
}

// A server that does not answer is unavailable: it is retried with back-off. What the error says does not change from
// try to try.
func TestSilentServer(t *testing.T) {
	server := serve(t, nil)
	server.SetMode(0, dnsserver.Silent)
	for _, tcp := range []bool{false, true} {
		p, err := rfc2136.New(rfc2136.Config{Nameserver: server.Addr(), TCP: tcp}, rfc2136.Options{Timeout: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		first := p.Present(t.Context(), record("www.example.test", "value"))
		if f := fault.Of(first); f == nil || f.Class != fault.ClassUnavailable || !strings.Contains(first.Error(), "no answer in time") ||
			!strings.Contains(first.Error(), server.Addr()) {
			t.Errorf("Present = %v", first)
		}
		if again := p.Present(t.Context(), record("www.example.test", "value")); again == nil || again.Error() != first.Error() {
			t.Errorf("first %v, then %v", first, again)
		}
	}
	if n := server.Queries(0, dns.TypeNone); n < 4 { // two tries each time over UDP
		t.Errorf("the server saw %d updates, want 4 or more", n)
	}
}

// over is the term of a process that must not act any more.
type over struct{}

func (over) Over() bool { return true }

// TestNoUpdateAfterTheTerm: also where nobody judges the address of the server, as for ClusterIssuers.
func TestNoUpdateAfterTheTerm(t *testing.T) {
	server := serve(t, nil)
	for _, tcp := range []bool{false, true} {
		p := newProvider(t, rfc2136.Config{Nameserver: server.Addr(), TCP: tcp})
		if err := p.Present(term.With(t.Context(), over{}), record("www.example.test", "value")); err == nil || len(server.TXT()) != 0 {
			t.Errorf("TCP %t: error %v, DNS holds %q", tcp, err, server.TXT())
		}
	}
}

// Any tenant may point the controller at any server: whatever it answers, the update
// fails and nothing else does.
func TestRepliesOfAHostileServer(t *testing.T) {
	tsigned := func(m *dns.Msg) []byte {
		m.SetTsig("some.key.", dns.HmacSHA256, 300, 0)
		text, _, err := dns.TsigGenerate(m, bindSecret, "", false)
		if err != nil {
			t.Error(err)
		}
		return text
	}
	for name, reply := range map[string]func(q *dns.Msg) []byte{
		"another id": func(q *dns.Msg) []byte { m := new(dns.Msg).SetReply(q); m.Id++; return pack(t, m) },
		"cut short":  func(q *dns.Msg) []byte { text := pack(t, new(dns.Msg).SetReply(q)); return text[:len(text)-3] },
		"signed":     func(q *dns.Msg) []byte { return tsigned(new(dns.Msg).SetReply(q)) },
	} {
		for _, key := range []*rfc2136.Key{nil, mustKey(t, "update.key", "", bindSecret)} {
			t.Run(fmt.Sprintf("%s, key %t", name, key != nil), func(t *testing.T) {
				p, err := rfc2136.New(rfc2136.Config{Nameserver: "192.0.2.1", TCP: true, Key: key}, rfc2136.Options{
					Timeout: 5 * time.Second, Dial: func(context.Context, string, string) (net.Conn, error) { return answering(t, reply), nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Present(t.Context(), record("www.example.test", "value")); err == nil {
					t.Error("Present took it for success")
				}
			})
		}
	}
}

func pack(t *testing.T, m *dns.Msg) []byte {
	t.Helper()
	text, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return text
}

// answering is a connection to a server that gives one answer over TCP.
func answering(t *testing.T, reply func(q *dns.Msg) []byte) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	go func() {
		conn := &dns.Conn{Conn: there}
		q := new(dns.Msg)
		if text, err := conn.ReadMsgHeader(nil); err != nil || q.Unpack(text) != nil {
			return // the test fails without an answer
		}
		_, _ = conn.Write(reply(q)) // a client that is gone does not want it
	}()
	return here
}
