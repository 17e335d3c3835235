package dns01

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	lru "k8s.io/apimachinery/pkg/util/cache"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/growth"
)

// TestAnswersOfDNSCostNoSquare: a server sends as many records as fit, whose names are all pointers to a long one.
func TestAnswersOfDNSCostNoSquare(t *testing.T) {
	const name, each = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb.cccccccccccccccccccccccccccccccc.example.test.", 14
	question := new(dns.Msg).SetQuestion(name, dns.TypeCNAME)
	growth.Linear(t, limits.DNSMessage, func(size int) func() {
		m := new(dns.Msg).SetReply(question)
		m.Compress = true
		for range size/each - 16 {
			m.Answer = append(m.Answer, &dns.CNAME{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET}, Target: name})
		}
		packed, err := m.Pack()
		if err != nil || len(packed) > limits.DNSMessage {
			t.Fatal(len(packed), err)
		}
		return func() {
			got := new(dns.Msg)
			if err := got.Unpack(packed); err != nil {
				t.Fatal(err)
			}
			_, _, _ = answers(got, question), soaOf(got, name), cnameOf(got, name)
		}
	})
}

// TestChainsOfCNAMEsGrow: a server sends as many CNAMEs as fit, each of which leads to the one before it, and TXT
// records of many parts. What it costs to follow them, and to look for a value, grows with the size of the answer.
func TestChainsOfCNAMEsGrow(t *testing.T) {
	bounds.Holds(t, "CNAMEs in an answer", func(n int) limits.Outcome {
		m := &dns.Msg{}
		for i := range n {
			m.Answer = append(m.Answer, &dns.CNAME{
				Hdr: dns.RR_Header{Name: fmt.Sprintf("c%d.test.", i), Rrtype: dns.TypeCNAME, Class: dns.ClassINET}, Target: fmt.Sprintf("c%d.test.", i+1),
			})
		}
		followed := 0
		_, _ = fmt.Sscanf(lastAlias(m, "c0.test."), "c%d.", &followed)
		return bounds.Without(n, followed)
	})
	name := func(i int) string { return fmt.Sprintf("%07d.example.test.", i) }
	question := new(dns.Msg).SetQuestion(name(0), dns.TypeTXT)
	header := func(of string, rrtype uint16) dns.RR_Header {
		return dns.RR_Header{Name: of, Rrtype: rrtype, Class: dns.ClassINET}
	}
	for what, records := range map[string]func(size int) []dns.RR{
		"a chain, the last first": func(size int) (all []dns.RR) {
			for i := range size / 32 {
				all = append(all, &dns.CNAME{Hdr: header(name(i), dns.TypeCNAME), Target: name(i + 1)})
			}
			slices.Reverse(all)
			return all
		},
		"a circle": func(size int) (all []dns.RR) {
			for i := range size / 32 {
				all = append(all, &dns.CNAME{Hdr: header(name(i+1), dns.TypeCNAME), Target: name(i + 2)})
			}
			return append(all, &dns.CNAME{Hdr: header(name(0), dns.TypeCNAME), Target: name(0)})
		},
		"one value of many parts": func(size int) []dns.RR {
			parts := make([]string, size-100)
			return []dns.RR{&dns.TXT{Hdr: header(name(0), dns.TypeTXT), Txt: parts}}
		},
		"many values": func(size int) (all []dns.RR) {
			for range size/14 - 16 {
				all = append(all, &dns.TXT{Hdr: header(name(0), dns.TypeTXT), Txt: []string{"a"}})
			}
			return all
		},
	} {
		t.Run(what, func(t *testing.T) {
			growth.Linear(t, limits.DNSMessage, func(size int) func() {
				m := new(dns.Msg).SetReply(question)
				m.Compress, m.Answer = true, records(size)
				packed, err := m.Pack()
				if err != nil || len(packed) > limits.DNSMessage {
					t.Fatal(len(packed), err)
				}
				want := func(values []string) string { return fmt.Sprintf("%d other values", len(values)) }
				return func() {
					got := new(dns.Msg)
					if err := got.Unpack(packed); err != nil {
						t.Fatal(err)
					}
					var v verdict
					if v.judge(got, server{name: "ns"}, name(0), want); v.found {
						t.Fatal("it is found")
					}
				}
			})
		})
	}
}

// TestZonesAreBounded: who has Certificates for many names chooses how many zones are known, up to a bound.
func TestZonesAreBounded(t *testing.T) {
	r, err := NewResolver(Options{Nameservers: []string{"127.0.0.1:53"}})
	if err != nil {
		t.Fatal(err)
	}
	// known is what becomes of as many entries of a cache.
	known := func(of *lru.LRUExpireCache) func(n int) limits.Outcome {
		return func(n int) limits.Outcome {
			for i := range n {
				of.Add(i, "", time.Hour)
			}
			if _, first := of.Get(0); first {
				return bounds.Without(n, len(of.Keys()))
			}
			if _, last := of.Get(n - 1); !last {
				t.Error("the last one is not kept")
			}
			return limits.Dropped
		}
	}
	bounds.Holds(t, "zones of names", known(r.zones))
	bounds.Holds(t, "servers of zones", known(r.hosts))
}
