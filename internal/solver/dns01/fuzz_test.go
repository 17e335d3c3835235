package dns01

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// FuzzDNSAnswer: whatever a server sends, an answer counts only for its question, a zone is that of its own record,
// and a value is found if and only if one of the TXT records is the value; CNAMEs that run in a circle come to an end.
func FuzzDNSAnswer(f *testing.F) {
	const name, value = "_acme-challenge.example.test.", "the-value"
	question := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
	for _, records := range []string{
		"_acme-challenge.example.test. 60 IN TXT \"the-\" \"value\"",
		"_acme-challenge.example.test. 60 IN CNAME a.test.\na.test. 60 IN CNAME _acme-challenge.EXAMPLE.test.",
		"_acme-challenge.example.test. 60 IN SOA a. b. 1 2 3 4 5",
	} {
		m := new(dns.Msg).SetReply(question)
		for text := range strings.SplitSeq(records, "\n") {
			rr, err := dns.NewRR(text)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer, m.Ns = append(m.Answer, rr), append(m.Ns, rr)
		}
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed, true)
	}
	want := func(values []string) string {
		if slices.Contains(values, value) {
			return ""
		}
		return "another value"
	}
	f.Fuzz(func(t *testing.T, packed []byte, recursive bool) {
		m := new(dns.Msg)
		if m.Unpack(packed) != nil {
			return
		}
		if answers(m, question) == nil && (len(m.Question) != 1 || dns.CanonicalName(m.Question[0].Name) != name || !m.Response) {
			t.Errorf("%v is taken for an answer", m.Question)
		}
		if soa := soaOf(m, name); soa != nil && !strings.EqualFold(soa.Hdr.Name, name) {
			t.Errorf("%s is the zone's", soa)
		}
		found := false
		for _, rr := range m.Answer {
			txt, is := rr.(*dns.TXT)
			found = found || is && strings.Join(txt.Txt, "") == value
		}
		var v verdict
		v.judge(m, server{name: "ns", recursive: recursive}, name, want)
		if v.found != found || found != (v.problem == "") {
			t.Errorf("found %t, want %t: %q", v.found, found, v.problem)
		}
		if target := cnameOf(m, name); target != "" && !dns.IsFqdn(target) {
			t.Errorf("it leads to %q", target)
		}
	})
}

// TestEachRefusalIsSaid: a server may refuse with a code that has no name.
func TestEachRefusalIsSaid(t *testing.T) {
	var v verdict
	v.judge(&dns.Msg{MsgHdr: dns.MsgHdr{Rcode: 12}}, server{name: "ns", recursive: true}, "a.test.", func([]string) string { return "" })
	if v.found || v.problem != "the response code 12" {
		t.Errorf("%+v", v)
	}
}
