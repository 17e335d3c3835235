package rfc2136_test

import (
	"context"
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
		{"udp", func(*acmev1.RFC2136Provider) {}, bindSecret, 0, ""},
		{"tcp", func(c *acmev1.RFC2136Provider) { c.Protocol = acmev1.RFC2136TCP }, bindSecret, 0, ""},
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
			if c.kind == 0 {
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

// A server that does not answer is unexpected, not a fault: it is retried with
// back-off. What the error says does not change from try to try.
func TestSilentServer(t *testing.T) {
	server := serve(t, nil)
	server.SetMode(0, dnsserver.Silent)
	for _, tcp := range []bool{false, true} {
		p, err := rfc2136.New(rfc2136.Config{Nameserver: server.Addr(), TCP: tcp}, rfc2136.Options{Timeout: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		first := p.Present(t.Context(), record("www.example.test", "value"))
		if first == nil || fault.Of(first) != nil || !strings.Contains(first.Error(), "no answer in time") ||
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
