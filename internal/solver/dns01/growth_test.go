package dns01

import (
	"testing"

	"github.com/miekg/dns"

	"chancery.dev/internal/limits"
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
