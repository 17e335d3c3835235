package dns01_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/solver/dns01"
)

// front is a recursive server that passes questions on and may change the answers.
func front(t *testing.T, upstream func() string, change func(*dns.Msg)) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m, _, err := (&dns.Client{UDPSize: 4096}).Exchange(q, upstream())
		if err != nil {
			t.Error(err)
			return
		}
		change(m)
		_ = w.WriteMsg(m) // a client that is gone does not want it
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return conn.LocalAddr().String()
}

func fronted(t *testing.T, change func(*dns.Msg)) *world {
	t.Helper()
	upstream := make(chan string, 1)
	address := front(t, func() string { a := <-upstream; upstream <- a; return a }, change)
	w := newWorld(t, func(o *dns01.Options) { o.Nameservers = []string{address} })
	w.recursive = []string{address}
	upstream <- w.dns.Addr()
	return w
}

// TestGHSA_gx3x_vq4p_mhhv: a DNS answer whose first record was of another type than expected had cert-manager panic
// when the answer was used a second time, from the cache. Here records of any type, in any order and in any
// section, change nothing, and take nothing down.
func TestGHSA_gx3x_vq4p_mhhv(t *testing.T) {
	var change atomic.Pointer[func(*dns.Msg)]
	asIs := func(*dns.Msg) {}
	change.Store(&asIs)
	w := fronted(t, func(m *dns.Msg) { (*change.Load())(m) })
	w.mustPresent(t, w.task("www.example.test", "value"))
	const name = "_acme-challenge.www.example.test."
	for _, odd := range oddRecords() {
		for where, with := range map[string]func(*dns.Msg){
			"first":     func(m *dns.Msg) { m.Answer = append([]dns.RR{dns.Copy(odd)}, m.Answer...) },
			"last":      func(m *dns.Msg) { m.Answer = append(m.Answer, dns.Copy(odd)) },
			"elsewhere": func(m *dns.Msg) { m.Ns, m.Extra = append(m.Ns, dns.Copy(odd)), append(m.Extra, dns.Copy(odd)) },
			"alone":     func(m *dns.Msg) { m.Answer = []dns.RR{dns.Copy(odd)} },
		} {
			change.Store(&with)
			r, err := dns01.NewResolver(dns01.Options{Nameservers: w.recursive, RecursiveOnly: true, AuthoritativePort: w.dns.Port(), Timeout: 15 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // from the server, then from the cache
				zone, err := r.Zone(t.Context(), name, nil)
				if err == nil {
					_, err = r.Follow(t.Context(), name, nil)
				}
				if err == nil {
					err = r.Propagated(t.Context(), name, "value", nil)
				}
				var bug *fault.Panic
				signature := odd.Header().Rrtype == dns.TypeTSIG || odd.Header().Rrtype == dns.TypeTKEY // of the whole message
				good := err == nil && zone == "example.test."
				if errors.As(err, &bug) || strings.Contains(fmt.Sprint(err), "bug") || good != (where != "alone") && !signature {
					t.Errorf("%s %s: zone %q, %v", dns.TypeToString[odd.Header().Rrtype], where, zone, err)
				}
			}
		}
	}
}

// oddRecords are records of all types that a resolver does not look for, and one of a type that nobody knows.
func oddRecords() []dns.RR {
	header := dns.RR_Header{Name: "www.example.test.", Class: dns.ClassINET, Ttl: 60}
	unknown := &dns.RFC3597{Hdr: header, Rdata: "00ff"}
	unknown.Hdr.Rrtype = 65280
	odd := []dns.RR{unknown}
	looked := []uint16{dns.TypeSOA, dns.TypeCNAME, dns.TypeTXT, dns.TypeNS, dns.TypeA, dns.TypeAAAA, dns.TypeOPT}
	for rrtype, empty := range dns.TypeToRR {
		rr := empty()
		*rr.Header() = header
		rr.Header().Rrtype = rrtype
		_, err := dns.PackRR(rr, make([]byte, 1024), 0, nil, false)
		if err == nil && !slices.Contains(looked, rrtype) {
			odd = append(odd, rr)
		}
	}
	for _, text := range []string{
		"other.test. 60 IN SOA ns.other.test. a.other.test. 1 1 1 1 1", "other.test. 60 IN TXT x", "other.test. 60 IN A 127.0.0.9",
		"other.test. 60 IN MX 1 mail.other.test.", "other.test. 60 IN DNAME www.example.test.",
	} {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		odd = append(odd, rr)
	}
	return odd
}

// A resolver that fails for one family of addresses has still said the other.
func TestOneFamilyOfAddressesIsEnough(t *testing.T) {
	w := fronted(t, func(m *dns.Msg) {
		if m.Question[0].Qtype == dns.TypeAAAA {
			m.Rcode, m.Answer = dns.RcodeServerFailure, nil
		}
	})
	task := w.task("www.example.test", "value")
	w.mustPresent(t, task)
	w.passes(t, task)
}

// What a zone says of itself is not believed for years (RFC 2181 §8).
func TestCachesForgetWithinADay(t *testing.T) {
	w := fronted(t, func(m *dns.Msg) {
		for _, rr := range m.Answer {
			rr.Header().Ttl = 1 << 31
		}
	})
	task := w.task("www.example.test", "value")
	w.mustPresent(t, task)
	w.passes(t, task)
	soa, ns := w.dns.Queries(0, dns.TypeSOA), w.dns.Queries(0, dns.TypeNS)
	w.step(24 * time.Hour)
	w.passes(t, task)
	if w.dns.Queries(0, dns.TypeSOA) == soa || w.dns.Queries(0, dns.TypeNS) == ns {
		t.Error("after a day nothing was asked again")
	}
}

// Whoever runs a zone decides how many name servers it lists, not how many questions we ask.
func TestTooManyNameServers(t *testing.T) {
	bounds.Holds(t, "name servers", func(n int) limits.Outcome {
		records := []string{`_acme-challenge.many.test. 60 IN TXT "value"`}
		for i := range n - 1 { // the server adds one
			records = append(records, fmt.Sprintf("many.test. 60 IN NS x%d.many.test.", i), fmt.Sprintf("x%d.many.test. 60 IN A 127.0.0.1", i))
		}
		server, r := serving(t, "many.test", records)
		err := r.Propagated(t.Context(), "_acme-challenge.many.test.", "value", nil)
		if err != nil && server.Queries(0, dns.TypeA) > 0 {
			t.Errorf("it asked for %d addresses", server.Queries(0, dns.TypeA))
		}
		return bounds.Refusal(t, err, "33 name servers")
	})
}

// TestAddressesAreFew: of a name server with many addresses, some are asked, and the others are not.
func TestAddressesAreFew(t *testing.T) {
	bounds.Holds(t, "addresses", func(n int) limits.Outcome {
		records := []string{"few.test. 60 IN NS ns.few.test."}
		for i := range n {
			records = append(records, fmt.Sprintf("ns.few.test. 60 IN A 127.0.1.%d", i+1))
		}
		var asked sync.Map
		_, r := serving(t, "few.test", records, func(o *dns01.Options) {
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if strings.HasPrefix(address, "127.0.1.") {
					asked.Store(address, true)
					return nil, errors.New("no")
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			}
		})
		if err := r.Propagated(t.Context(), "_acme-challenge.few.test.", "value", nil); err == nil {
			t.Error("no server has answered, and there is no error")
		}
		addresses := 0
		asked.Range(func(any, any) bool { addresses++; return true })
		return bounds.Without(n, addresses)
	})
}

// serving is a server of a zone, and a resolver that asks it.
func serving(t *testing.T, zone string, records []string, change ...func(*dns01.Options)) (*dnsserver.Server, *dns01.Resolver) {
	t.Helper()
	server, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: zone, Records: records}}})
	if err != nil {
		t.Fatal(err)
	}
	o := dns01.Options{Nameservers: []string{server.Addr()}, AuthoritativePort: server.Port(), Timeout: time.Second}
	for _, c := range change {
		c(&o)
	}
	r, err := dns01.NewResolver(o)
	if err != nil {
		t.Fatal(err)
	}
	return server, r
}

// TestTooManyCNAMEs: a row of CNAMEs ends, however long its owner has made it.
func TestTooManyCNAMEs(t *testing.T) {
	row := func(n int) *dns01.Resolver {
		records := []string{"row.test. 60 IN NS ns.row.test.", "ns.row.test. 60 IN A 127.0.0.1", fmt.Sprintf(`c%d.row.test. 60 IN TXT "value"`, n)}
		for i := range n {
			records = append(records, fmt.Sprintf("c%d.row.test. 60 IN CNAME c%d.row.test.", i, i+1))
		}
		_, r := serving(t, "row.test", records)
		return r
	}
	bounds.Holds(t, "CNAMEs in a row", func(n int) limits.Outcome {
		err := row(n*limits.CNAMEs).Propagated(t.Context(), "c0.row.test.", "value", nil) // as many of them are in one answer
		return bounds.Refusal(t, err, "more than 10 CNAMEs")
	})
	bounds.Holds(t, "CNAMEs in a row", func(n int) limits.Outcome { // of a recursive server, which is asked for one at a time
		_, err := row(n).Follow(t.Context(), "c0.row.test.", nil)
		return bounds.Refusal(t, err, "more than 10")
	})
}

// A DNS over HTTPS server answers itself, and answers what it is asked.
func TestDNSOverHTTPSGoesNowhereElse(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s was asked", r.URL) }))
	defer elsewhere.Close()
	redirects := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer redirects.Close()
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		m := new(dns.Msg).SetReply(new(dns.Msg).SetQuestion("other.test.", dns.TypeSOA))
		text, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(text) // the test fails without it
	}))
	defer other.Close()
	for server, says := range map[*httptest.Server]string{redirects: "wrong status code '307'", other: "another question"} {
		r, err := dns01.NewResolver(dns01.Options{Nameservers: []string{server.URL}, HTTPClient: server.Client()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Zone(t.Context(), "www.example.test.", nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// A recursive server that is dead costs a moment with each question, not its whole time:
// a walk asks a dozen.
func TestDeadRecursiveServer(t *testing.T) {
	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dead.Close() }()
	w := newWorld(t, nil)
	r, err := dns01.NewResolver(dns01.Options{
		Nameservers: []string{dead.LocalAddr().String(), w.dns.Addr()}, AuthoritativePort: w.dns.Port(), Timeout: 4 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.mustPresent(t, w.task("www.example.test", "value"))
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	if err := r.Propagated(ctx, "_acme-challenge.www.example.test.", "value", nil); err != nil {
		t.Error(err)
	}
}
