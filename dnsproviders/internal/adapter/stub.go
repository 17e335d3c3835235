package adapter

import (
	"net"
	"strings"
	"sync"

	"github.com/miekg/dns"

	"chancery.dev/internal/solver/dns01/wire"
)

// stub is the DNS server that lego asks in this process: it answers what the request
// says. Chancery has found zone and name by the resolvers, and the CNAME strategy,
// that the solver is configured with; lego would ask others and come to other results.
type stub struct {
	address string

	mu     sync.Mutex
	record wire.Record
}

func newStub() (*stub, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0") //nolint:noctx // it lives as long as the process
	if err != nil {
		return nil, err
	}
	s := &stub{address: conn.LocalAddr().String()}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: conn, Handler: s, NotifyStartedFunc: func() { close(started) }}
	failed := make(chan error, 1)
	go func() { failed <- server.ActivateAndServe() }()
	select {
	case <-started:
		return s, nil
	case err := <-failed:
		return nil, err
	}
}

func (s *stub) tell(r wire.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record = r
}

// ServeDNS answers CNAME at the challenge's name and SOA at its zone.
func (s *stub) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	r := s.record
	s.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	name, qtype := strings.ToLower(q.Question[0].Name), q.Question[0].Qtype
	fqdn, zone := dns.CanonicalName(r.FQDN), dns.CanonicalName(r.Zone)
	soa := &dns.SOA{
		Hdr: dns.RR_Header{Name: zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 1},
		Ns:  "ns.invalid.", Mbox: "hostmaster.invalid.", Serial: 1, Refresh: 1, Retry: 1, Expire: 1, Minttl: 1,
	}
	switch challenge := dns.CanonicalName("_acme-challenge." + r.Domain); {
	case name == challenge && name != fqdn:
		m.Answer = []dns.RR{&dns.CNAME{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 1}, Target: fqdn}}
	case name == zone && qtype == dns.TypeSOA:
		m.Answer = []dns.RR{soa}
	case dns.IsSubDomain(zone, name):
		m.Ns = []dns.RR{soa}
	default:
		m.Rcode = dns.RcodeNameError
	}
	_ = w.WriteMsg(m) // lego asks again
}
