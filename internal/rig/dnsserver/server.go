// Package dnsserver is a small real DNS server on loopback, for tests and the demo. It runs several name servers for
// the same zones, over UDP and TCP. It takes dynamic updates (RFC 2136), signed with TSIG (RFC 8945) if the server has
// a key. A test can delay the replication of updates to a name server (SetDelay), and can make a name server lame,
// silent or wrong (Mode).
//
// The server answers with authority for its zones, and follows CNAMEs from one zone to another. For a name outside of
// its zones, it answers NXDOMAIN. So it can also be the recursive resolver for everything in a test. It is not a
// general DNS server: it has no DNSSEC, no zone transfers, and no prerequisites in updates.
package dnsserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Mode says how a server behaves.
type Mode int

const (
	// Normal answers as it should.
	Normal Mode = iota
	// Silent reads queries and never answers.
	Silent
	// Refused answers REFUSED to all queries, as a lame server does.
	Refused
	// ServFail answers SERVFAIL to all queries.
	ServFail
	// NXDomain denies every name for TXT queries, whatever the zone holds.
	NXDomain
	// Referral answers without authority and without data, as a server that
	// lost its zone does.
	Referral
	// Truncated sets TC in every UDP answer, so that clients come back over TCP.
	Truncated
)

// Config says what to serve.
type Config struct {
	// Zones to serve; the closest one answers.
	Zones []Zone
	// Servers is how many name servers to run: 0 means one. The first is the
	// primary, which takes updates; the others replicate. They listen on
	// 127.0.0.1, 127.0.0.2, …, all on the same port.
	Servers int
	// Hosts are the addresses of the servers, IPv4 or IPv6, in place of Servers.
	Hosts []netip.Addr
	// Port to listen on; 0 takes a free one.
	Port int
	// Key verifies updates. With nil, updates need no TSIG.
	Key Key
	// Now is the clock of replication; nil means time.Now.
	Now func() time.Time
	// Begin is called when a request comes in, and what it returns when it is answered; may be nil.
	Begin func() (done func())
}

// Key is a TSIG key: what it takes to verify an update and to sign the answer.
type Key interface {
	dns.TsigProvider
}

// Server is a running set of name servers.
type Server struct {
	mu      sync.Mutex
	zones   []*zone
	servers []*instance
	now     func() time.Time
	begin   func() (done func())
	hasKey  bool
	updates []update
	port    int
	done    sync.WaitGroup
}

// instance is one name server: its view of the zones is the static records and
// the updates that have reached it.
type instance struct {
	host    netip.Addr
	mode    Mode
	delay   time.Duration
	applied int
	dynamic map[rrKey]dns.RR
	serials map[*zone]uint32
	counts  map[uint16]int
	stop    []*dns.Server
}

// Start serves until ctx ends. All servers listen when it returns.
func Start(ctx context.Context, c Config) (*Server, error) {
	s := &Server{now: c.Now, begin: c.Begin, hasKey: c.Key != nil}
	if s.now == nil {
		s.now = time.Now
	}
	if s.begin == nil {
		s.begin = func() (done func()) { return func() {} }
	}
	hosts := slices.Clone(c.Hosts)
	for i := len(hosts); i < max(c.Servers, 1); i++ {
		hosts = append(hosts, netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}))
	}
	for _, host := range hosts {
		s.servers = append(s.servers, &instance{
			host:    host,
			dynamic: map[rrKey]dns.RR{},
			serials: map[*zone]uint32{},
			counts:  map[uint16]int{},
		})
	}
	for _, z := range c.Zones {
		parsed, err := newZone(z, s.servers)
		if err != nil {
			return nil, err
		}
		s.zones = append(s.zones, parsed)
	}
	if err := s.listen(ctx, c); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, s.shutdown)
	return s, nil
}

// listen opens a UDP and a TCP socket of the same port on the address of every
// server. A port that is free for one may be taken for another: then all are
// closed and another port is tried.
func (s *Server) listen(ctx context.Context, c Config) error {
	const tries = 20
	var lastErr error
	for range tries {
		sockets, port, err := openAll(ctx, s.servers, c.Port)
		if err != nil {
			lastErr = err
			continue
		}
		s.port = port
		for i, inst := range s.servers {
			s.serve(inst, sockets[i], c.Key)
		}
		return nil
	}
	return fmt.Errorf("no port for %d DNS servers: %w", len(s.servers), lastErr)
}

// sockets are the two sockets of one server.
type sockets struct {
	udp net.PacketConn
	tcp net.Listener
}

func openAll(ctx context.Context, servers []*instance, port int) (all []sockets, chosen int, err error) {
	defer func() {
		if err != nil {
			for _, s := range all {
				err = errors.Join(err, s.udp.Close(), s.tcp.Close())
			}
		}
	}()
	var lc net.ListenConfig
	for _, inst := range servers {
		udp, err := lc.ListenPacket(ctx, "udp", netip.AddrPortFrom(inst.host, uint16(port)).String())
		if err != nil {
			return all, 0, err
		}
		if addr, ok := udp.LocalAddr().(*net.UDPAddr); ok {
			port = addr.Port
		}
		tcp, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(inst.host, uint16(port)).String())
		if err != nil {
			return all, 0, errors.Join(err, udp.Close())
		}
		all = append(all, sockets{udp, tcp})
	}
	return all, port, nil
}

// serve starts the two listeners of one server and waits until they run.
func (s *Server) serve(inst *instance, open sockets, key dns.TsigProvider) {
	for _, srv := range []*dns.Server{{PacketConn: open.udp}, {Listener: open.tcp}} {
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		srv.MsgAcceptFunc = acceptUpdates
		srv.TsigProvider = key
		srv.UDPSize = dns.DefaultMsgSize
		srv.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) { s.handle(inst, w, r) })
		inst.stop = append(inst.stop, srv)
		s.done.Go(func() {
			// It ends when shutdown closes its socket: nobody is left to tell.
			_ = srv.ActivateAndServe()
		})
		<-started
	}
}

// acceptUpdates lets updates in, which the library rejects by default; the
// handler answers what else it does not implement.
func acceptUpdates(h dns.Header) dns.MsgAcceptAction {
	const responseBit = 1 << 15
	if h.Bits&responseBit != 0 {
		return dns.MsgIgnore
	}
	if h.Qdcount != 1 {
		return dns.MsgReject
	}
	return dns.MsgAccept
}

func (s *Server) shutdown() {
	for _, inst := range s.servers {
		for _, srv := range inst.stop {
			// The only error is "not started", and serve waited for the start.
			_ = srv.Shutdown()
		}
	}
}

// Wait returns once all listeners have ended, after ctx of Start did.
func (s *Server) Wait() { s.done.Wait() }

// Addr returns host:port of the primary, which also serves as resolver.
func (s *Server) Addr() string { return s.AddrOf(0) }

// AddrOf returns host:port of server i; 0 is the primary.
func (s *Server) AddrOf(i int) string {
	return netip.AddrPortFrom(s.servers[i].host, uint16(s.port)).String()
}

// Port returns the port of all servers, UDP and TCP.
func (s *Server) Port() int { return s.port }

// SetMode changes the behaviour of server i.
func (s *Server) SetMode(i int, m Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers[i].mode = m
}

// Forbid makes the servers refuse updates of a zone, or take them again.
func (s *Server) Forbid(name string, forbidden bool) {
	s.change(name, func(z *zone) { z.forbidden = forbidden })
}

// Fail makes the servers answer SERVFAIL to all questions about a zone, as resolvers do where its signatures are wrong,
// or answer them again.
func (s *Server) Fail(name string, failing bool) {
	s.change(name, func(z *zone) { z.failing = failing })
}

func (s *Server) change(name string, change func(*zone)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range s.zones {
		if z.name == dns.CanonicalName(name) {
			change(z)
		}
	}
}

// SetDelay says how long updates take to reach server i, by the clock of Config.
func (s *Server) SetDelay(i int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers[i].delay = d
}

// Queries returns how many messages of a type server i has received: dns.TypeTXT,
// dns.TypeSOA, … or dns.TypeNone for updates.
func (s *Server) Queries(i int, qtype uint16) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[i].counts[qtype]
}

// TXT returns what updates have left at the primary, as "name value" of every
// TXT record, sorted.
func (s *Server) TXT() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicate(s.servers[0])
	var left []string
	for _, rr := range s.servers[0].dynamic {
		if txt, ok := rr.(*dns.TXT); ok {
			left = append(left, txt.Hdr.Name+" "+joined(txt))
		}
	}
	slices.Sort(left)
	return left
}
