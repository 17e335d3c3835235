package dnsserver_test

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

func ask(t *testing.T, network, server, name string, qtype uint16) *dns.Msg {
	t.Helper()
	client := dns.Client{Net: network, Timeout: 10 * time.Second}
	m, _, err := client.ExchangeContext(t.Context(), new(dns.Msg).SetQuestion(name, qtype), server)
	if err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[qtype], err)
	}
	return m
}

// change sends one update over UDP and returns the reply.
func change(t *testing.T, server, zone string, key *rfc2136.Key, edit func(*dns.Msg)) *dns.Msg {
	t.Helper()
	m := new(dns.Msg).SetUpdate(zone)
	edit(m)
	client := dns.Client{Timeout: 10 * time.Second}
	if key != nil {
		m.SetTsig(key.Name, key.Algorithm, 300, time.Now().Unix())
		client.TsigProvider = key
	}
	reply, _, err := client.ExchangeContext(t.Context(), m, server)
	if reply == nil {
		t.Fatal(err)
	}
	return reply
}

func txt(name, value string) []dns.RR {
	return []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}, Txt: []string{value}}}
}

func TestAnswers(t *testing.T) {
	s, err := dnsserver.Start(t.Context(), dnsserver.Config{Servers: 2, Zones: []dnsserver.Zone{
		{Name: "a.test", Records: []string{"alias.a.test. CNAME www.b.test.", "deep.er.a.test. A 127.0.0.9"}},
		{Name: "b.test.", Wildcard: netip.MustParseAddr("127.0.0.1")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		qtype   uint16
		rcode   int
		answers int
	}{
		{"a.test.", dns.TypeSOA, dns.RcodeSuccess, 1},
		{"A.test.", dns.TypeNS, dns.RcodeSuccess, 2},
		{"ns2.a.test.", dns.TypeA, dns.RcodeSuccess, 1},
		{"deep.er.a.test.", dns.TypeA, dns.RcodeSuccess, 1},
		{"er.a.test.", dns.TypeA, dns.RcodeSuccess, 0}, // an empty non-terminal
		{"www.a.test.", dns.TypeA, dns.RcodeNameError, 0},
		{"alias.a.test.", dns.TypeA, dns.RcodeSuccess, 2},
		{"alias.a.test.", dns.TypeCNAME, dns.RcodeSuccess, 1},
		{"any.name.b.test.", dns.TypeA, dns.RcodeSuccess, 1},
		{"any.name.b.test.", dns.TypeTXT, dns.RcodeSuccess, 0},
		{"elsewhere.invalid.", dns.TypeA, dns.RcodeNameError, 0},
		{".", dns.TypeSOA, dns.RcodeSuccess, 0},
	} {
		for i, network := range []string{"udp", "tcp"} {
			m := ask(t, network, s.AddrOf(i), c.name, c.qtype)
			if m.Rcode != c.rcode || len(m.Answer) != c.answers {
				t.Errorf("%s %s over %s: %s with %v, want %s with %d records", c.name, dns.TypeToString[c.qtype], network,
					dns.RcodeToString[m.Rcode], m.Answer, dns.RcodeToString[c.rcode], c.answers)
			}
		}
	}
	if n := s.Queries(0, dns.TypeNS); n != 1 {
		t.Errorf("counted %d NS queries, want 1", n)
	}
}

func TestUpdates(t *testing.T) {
	key, err := rfc2136.NewKey("update.key", "HMACSHA512", "MDEyMzQ1Njc4OWFiY2RlZg==")
	if err != nil {
		t.Fatal(err)
	}
	s, err := dnsserver.Start(t.Context(), dnsserver.Config{Key: key, Zones: []dnsserver.Zone{{Name: "a.test"}, {Name: "b.test"}}})
	if err != nil {
		t.Fatal(err)
	}
	const name = "_acme-challenge.a.test."
	insert := func(value string) func(*dns.Msg) { return func(m *dns.Msg) { m.Insert(txt(name, value)) } }
	for _, c := range []struct {
		what, zone string
		key        *rfc2136.Key
		edit       func(*dns.Msg)
		rcode      int
		left       []string
	}{
		{"unsigned", "a.test.", nil, insert("one"), dns.RcodeRefused, nil},
		{"other zone", "b.test.", key, insert("one"), dns.RcodeNotZone, nil},
		{"no zone of ours", "c.test.", key, insert("one"), dns.RcodeNotAuth, nil},
		{"add", "a.test.", key, insert("one"), dns.RcodeSuccess, []string{name + " one"}},
		{"add another", "a.test.", key, insert("two"), dns.RcodeSuccess, []string{name + " one", name + " two"}},
		{"prerequisite", "a.test.", key, func(m *dns.Msg) { m.RRsetUsed(txt(name, "")) }, dns.RcodeNotImplemented, []string{name + " one", name + " two"}},
		{"remove one", "a.test.", key, func(m *dns.Msg) { m.Remove(txt(name, "one")) }, dns.RcodeSuccess, []string{name + " two"}},
		{"remove all", "a.test.", key, func(m *dns.Msg) { m.RemoveRRset(txt(name, "")) }, dns.RcodeSuccess, nil},
	} {
		reply := change(t, s.Addr(), c.zone, c.key, c.edit)
		if reply.Rcode != c.rcode || !slices.Equal(s.TXT(), c.left) {
			t.Errorf("%s: %s, left %q; want %s, %q", c.what, dns.RcodeToString[reply.Rcode], s.TXT(), dns.RcodeToString[c.rcode], c.left)
		}
	}
}

// TestAliasStaysAlone: what an update adds to a name with a CNAME is ignored (RFC 2136 §3.4.2.2).
func TestAliasStaysAlone(t *testing.T) {
	s, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{
		{Name: "a.test", Records: []string{"alias.a.test. CNAME elsewhere.b.test."}}, {Name: "b.test"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	reply := change(t, s.Addr(), "a.test.", nil, func(m *dns.Msg) { m.Insert(txt("alias.a.test.", "one")) })
	if reply.Rcode != dns.RcodeSuccess || len(s.TXT()) != 0 {
		t.Errorf("%s, left %q", dns.RcodeToString[reply.Rcode], s.TXT())
	}
}

// TestFailingZone: nobody gets an answer about the zone, and everybody one about others.
func TestFailingZone(t *testing.T) {
	s, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "a.test"}, {Name: "b.test"}}})
	if err != nil {
		t.Fatal(err)
	}
	for failing, want := range map[bool]int{true: dns.RcodeServerFailure, false: dns.RcodeSuccess} {
		s.Fail("a.test", failing)
		if got := ask(t, "udp", s.Addr(), "a.test.", dns.TypeSOA).Rcode; got != want {
			t.Errorf("failing %t: %s", failing, dns.RcodeToString[got])
		}
		if got := ask(t, "udp", s.Addr(), "b.test.", dns.TypeSOA).Rcode; got != dns.RcodeSuccess {
			t.Errorf("another zone: %s", dns.RcodeToString[got])
		}
	}
}

func TestReplication(t *testing.T) {
	var offset atomic.Int64
	start := time.Now()
	s, err := dnsserver.Start(t.Context(), dnsserver.Config{
		Servers: 2, Zones: []dnsserver.Zone{{Name: "a.test"}},
		Now: func() time.Time { return start.Add(time.Duration(offset.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.SetDelay(1, time.Minute)
	change(t, s.Addr(), "a.test.", nil, func(m *dns.Msg) { m.Insert(txt("x.a.test.", "one")) })
	seen := func(i int) int { return len(ask(t, "udp", s.AddrOf(i), "x.a.test.", dns.TypeTXT).Answer) }
	serial := func(i int) uint32 {
		soa, ok := ask(t, "udp", s.AddrOf(i), "a.test.", dns.TypeSOA).Answer[0].(*dns.SOA)
		if !ok {
			t.Fatal("no SOA")
		}
		return soa.Serial
	}
	if serial(0) != 2 || serial(1) != 1 {
		t.Errorf("at once: the serials are %d and %d, want 2 and 1", serial(0), serial(1))
	}
	if seen(0) != 1 || seen(1) != 0 {
		t.Errorf("at once: primary has %d, replica %d records, want 1 and 0", seen(0), seen(1))
	}
	offset.Store(int64(time.Minute))
	if seen(1) != 1 || serial(1) != 2 {
		t.Errorf("a minute later: replica has %d records, want 1", seen(1))
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := dnsserver.Start(ctx, dnsserver.Config{Servers: 3, Zones: []dnsserver.Zone{{Name: "a.test"}}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	s.Wait()
	again, err := dnsserver.Start(t.Context(), dnsserver.Config{Servers: 3, Port: s.Port(), Zones: []dnsserver.Zone{{Name: "a.test"}}})
	if err != nil || again.Port() != s.Port() {
		t.Errorf("the port is not free again: %v", err)
	}
	if _, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "a.test", Records: []string{"b.test. A 127.0.0.1"}}}}); err == nil {
		t.Error("a record outside its zone was taken")
	}
}
