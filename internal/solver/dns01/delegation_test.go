package dns01_test

import (
	"net"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/solver/dns01"
)

// TestDelegation: each server that the zone or its parent names is asked.
func TestDelegation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	d, err := w.resolver.Delegation(t.Context(), "sub.example.test.")
	if err != nil || d.Parent != "example.test." || d.Answered != 2 || !slices.Equal(d.AtParent, d.AtZone) || len(d.Lame)+len(d.Silent) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	w.dns.SetMode(1, dnsserver.Referral)
	d, err = w.resolver.Delegation(t.Context(), "sub.example.test.")
	if err != nil || d.Answered != 1 || !slices.Equal(d.Lame, []string{"ns2.sub.example.test. (answers without authority)"}) {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err = w.resolver.Delegation(t.Context(), "half.test."); err == nil {
		t.Errorf("a top-level domain above that does not exist: %+v", d)
	}
}

// TestDelegationByReferral: the parent names other servers than the zone, in a referral, as servers of a parent do.
func TestDelegationByReferral(t *testing.T) {
	t.Parallel()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	referred := false // the parent is asked first
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		question := q.Question[0]
		record := func(text string) dns.RR {
			rr, err := dns.NewRR(question.Name + " 60 IN " + text)
			if err != nil {
				t.Error(err)
			}
			return rr
		}
		switch parent := !q.RecursionDesired && !referred; {
		case question.Qtype == dns.TypeSOA && dns.CountLabel(question.Name) < 3:
			m.Answer = append(m.Answer, record("SOA ns1.example.com. a.example.com. 1 1 1 1 1"))
		case question.Qtype == dns.TypeNS && parent:
			referred, m.Ns = true, append(m.Ns, record("NS NS9.example.com."))
		case question.Qtype == dns.TypeNS:
			m.Authoritative, m.Answer = true, append(m.Answer, record("NS ns1.example.com."))
		case question.Qtype == dns.TypeA:
			m.Answer = append(m.Answer, record("A 127.0.0.1"))
		}
		_ = rw.WriteMsg(m) // the client repeats its question
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	address := conn.LocalAddr().(*net.UDPAddr)
	r, err := dns01.NewResolver(dns01.Options{Nameservers: []string{address.String()}, AuthoritativePort: address.Port})
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Delegation(t.Context(), "example.com")
	if err != nil || d.Parent != "com." || !slices.Equal(d.AtParent, []string{"ns9.example.com."}) || !slices.Equal(d.AtZone, []string{"ns1.example.com."}) || d.Answered != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	if f := d.Judge(true); f.Outcome != preflight.Warning {
		t.Errorf("%+v", f)
	}
}

// TestCAA: the closest records upward hold.
func TestCAA(t *testing.T) {
	t.Parallel()
	server, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "example.com", Records: []string{
		`example.com. CAA 0 issue "above.example"`, `own.example.com. CAA 128 issuewild "own.example; a=b"`, `www.alias.example.com. CNAME own.example.com.`,
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := dns01.NewResolver(dns01.Options{Nameservers: []string{server.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	own := preflight.CAARecord{Flag: 128, Tag: "issuewild", Value: "own.example; a=b"}
	for name, want := range map[string]struct {
		owner  string
		record preflight.CAARecord
	}{
		"a.b.example.com":       {"example.com.", preflight.CAARecord{Tag: "issue", Value: "above.example"}},
		"own.example.com":       {"own.example.com.", own},
		"www.alias.example.com": {"www.alias.example.com.", own},
		"example.org":           {},
	} {
		owner, records, err := r.CAA(t.Context(), name)
		if err != nil || owner != want.owner || owner != "" && !slices.Equal(records, []preflight.CAARecord{want.record}) || owner == "" && records != nil {
			t.Errorf("%s: %s %+v %v", name, owner, records, err)
		}
	}
}
