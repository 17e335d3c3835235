package dns01_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"chancery.dev/internal/solver/dns01"
)

// TestServersWithoutEDNS: a server that does not know EDNS refuses the question, and is asked again without it. One
// that knows EDNS, and refuses the question all the same, is believed.
func TestServersWithoutEDNS(t *testing.T) {
	w := newWorld(t, nil)
	w.mustPresent(t, w.task("www.example.test", "value"))
	for name, c := range map[string]struct {
		refuses func(q *dns.Msg) *dns.Msg
		good    bool
	}{
		"format error":    {func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeFormatError) }, true},
		"not implemented": {func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeNotImplemented) }, true},
		"no question in the error": {func(q *dns.Msg) *dns.Msg {
			m := new(dns.Msg).SetRcode(q, dns.RcodeFormatError)
			m.Question = nil
			return m
		}, true},
		"refused": {func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeRefused) }, false},
		"format error with EDNS": {func(q *dns.Msg) *dns.Msg {
			return new(dns.Msg).SetRcode(q, dns.RcodeFormatError).SetEdns0(4096, false)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(to dns.ResponseWriter, q *dns.Msg) {
				m := c.refuses(q)
				if q.IsEdns0() == nil {
					var failed error
					if m, _, failed = (&dns.Client{}).Exchange(q, w.dns.Addr()); failed != nil {
						t.Error(failed)
						return
					}
				}
				_ = to.WriteMsg(m) // a client that is gone does not want it
			})}
			go func() { _ = server.ActivateAndServe() }()
			t.Cleanup(func() { _ = server.Shutdown() })
			r, err := dns01.NewResolver(dns01.Options{
				Nameservers: []string{conn.LocalAddr().String()}, RecursiveOnly: true, AuthoritativePort: w.dns.Port(), Timeout: 15 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			const fqdn = "_acme-challenge.www.example.test."
			zone, err := r.Zone(t.Context(), fqdn, nil)
			if err == nil {
				err = r.Propagated(t.Context(), fqdn, "value", nil)
			}
			if (err == nil) != c.good || c.good && zone != "example.test." {
				t.Errorf("zone %q, %v", zone, err)
			}
		})
	}
}

// TestRecursiveServersThatFailForMissingNames: such as CoreDNS in front of some servers. The zone is the one whose own
// servers deny the name; where the name may be in a zone below, whose servers are out of order, it is not known.
func TestRecursiveServersThatFailForMissingNames(t *testing.T) {
	var below atomic.Value
	w := fronted(t, func(m *dns.Msg) {
		if name := m.Question[0].Name; dns.IsSubDomain(below.Load().(string), dns.CanonicalName(name)) && m.Question[0].Qtype == dns.TypeSOA {
			m.Rcode, m.Answer, m.Ns = dns.RcodeServerFailure, nil, nil
		}
	})
	for _, c := range []struct{ fails, fqdn, zone string }{
		{"www.example.test.", "_acme-challenge.www.example.test.", "example.test."},
		{"_acme-challenge.example.test.", "_acme-challenge.example.test.", "example.test."},
		{"x.sub.example.test.", "_acme-challenge.x.sub.example.test.", "sub.example.test."},
		{"sub.example.test.", "_acme-challenge.y.sub.example.test.", ""}, // none of these is cached
		{"test.", "_acme-challenge.web.example.test.", ""},
	} {
		below.Store(c.fails)
		got, err := w.resolver.Zone(t.Context(), c.fqdn, nil)
		if got != c.zone || (err == nil) != (c.zone != "") || err != nil && !strings.Contains(err.Error(), "SERVFAIL") {
			t.Errorf("%s fails: the zone of %s is %q, %v; want %q", c.fails, c.fqdn, got, err, c.zone)
		}
	}
}
