package dnsserver

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// soaTTL is the TTL of SOA and NS records, in seconds: long enough for a test
// to see them cached, and nothing waits for them to expire.
const soaTTL = 300

// Zone is a zone to serve. Its name servers are ns1, ns2, … below its name, one
// for each server.
type Zone struct {
	// Name of the zone, with or without the trailing dot.
	Name string
	// Wildcard answers A queries, or AAAA queries if it is an IPv6 address, for every name in the zone; the zero value
	// leaves names without a record nonexistent.
	Wildcard netip.Addr
	// Serial is that of the SOA record before the first update; the zero value means 1.
	Serial uint32
	// Records are more static records, in master file format.
	Records []string
}

type zone struct {
	name     string
	serial   uint32
	wildcard netip.Addr
	static   []dns.RR
	// forbidden says that no key may change the zone.
	forbidden bool
	// failing says that nobody gets an answer about the zone.
	failing bool
}

// rrKey names a record with its data, so that equal records collapse (RFC 2136
// §3.4.2.2).
type rrKey struct {
	name  string
	rtype uint16
	data  string
}

// update is one change on its way to the servers.
type update struct {
	at     time.Time
	rr     dns.RR
	remove func(rrKey) bool
	// zone has this serial from the update on.
	zone   *zone
	serial uint32
}

func newZone(z Zone, servers []*instance) (*zone, error) {
	name := dns.CanonicalName(z.Name)
	out := &zone{name: name, serial: cmp.Or(z.Serial, 1), wildcard: z.Wildcard}
	for i, inst := range servers {
		inst.serials[out] = out.serial
		host := fmt.Sprintf("ns%d.%s", i+1, strings.TrimPrefix(name, "."))
		out.static = append(out.static,
			&dns.NS{Hdr: header(name, dns.TypeNS, soaTTL), Ns: host},
			address(host, inst.host, soaTTL))
	}
	for _, text := range z.Records {
		rr, err := dns.NewRR(text)
		if err != nil {
			return nil, fmt.Errorf("record %q of zone %s: %w", text, name, err)
		}
		if rr == nil || !dns.IsSubDomain(name, rr.Header().Name) {
			return nil, fmt.Errorf("record %q does not belong to zone %s", text, name)
		}
		rr.Header().Name = dns.CanonicalName(rr.Header().Name)
		out.static = append(out.static, rr)
	}
	return out, nil
}

func header(name string, rtype uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rtype, Class: dns.ClassINET, Ttl: ttl}
}

// address is the A or AAAA record of a name.
func address(name string, ip netip.Addr, ttl uint32) dns.RR {
	if ip.Is4() {
		return &dns.A{Hdr: header(name, dns.TypeA, ttl), A: ip.AsSlice()}
	}
	return &dns.AAAA{Hdr: header(name, dns.TypeAAAA, ttl), AAAA: ip.AsSlice()}
}

// soa is the SOA record in one server's view.
func (z *zone) soa(inst *instance) *dns.SOA {
	return &dns.SOA{
		Hdr: header(z.name, dns.TypeSOA, soaTTL), Ns: "ns1." + z.name, Mbox: "hostmaster." + z.name,
		Serial: inst.serials[z], Refresh: 3600, Retry: 600, Expire: 86400, Minttl: 60,
	}
}

// zoneOf returns the closest zone around a name, or nil.
func (s *Server) zoneOf(name string) *zone {
	var best *zone
	for _, z := range s.zones {
		if dns.IsSubDomain(z.name, name) && (best == nil || dns.CountLabel(z.name) > dns.CountLabel(best.name)) {
			best = z
		}
	}
	return best
}

func keyOf(rr dns.RR) rrKey {
	h := rr.Header()
	return rrKey{dns.CanonicalName(h.Name), h.Rrtype, strings.TrimPrefix(rr.String(), h.String())}
}

func joined(t *dns.TXT) string { return strings.Join(t.Txt, "") }

// isAlias reports whether a name owns a CNAME.
func (z *zone) isAlias(name string) bool {
	return slices.ContainsFunc(z.static, func(rr dns.RR) bool {
		return rr.Header().Rrtype == dns.TypeCNAME && dns.CanonicalName(rr.Header().Name) == dns.CanonicalName(name)
	})
}

// replicate applies the updates that have had time to reach a server.
func (s *Server) replicate(inst *instance) {
	now := s.now()
	for inst.applied < len(s.updates) {
		u := s.updates[inst.applied]
		if u.at.Add(inst.delay).After(now) {
			return
		}
		inst.applied++
		inst.serials[u.zone] = u.serial
		if u.remove == nil {
			inst.dynamic[keyOf(u.rr)] = u.rr
			continue
		}
		for k := range inst.dynamic {
			if u.remove(k) {
				delete(inst.dynamic, k)
			}
		}
	}
}

// lookup returns the records of a name in one server's view: those of the type
// (or a CNAME), and whether the name exists at all.
func (s *Server) lookup(inst *instance, z *zone, name string, qtype uint16) (rrs []dns.RR, exists bool) {
	if rrs, exists = s.owned(inst, z, name, qtype); exists {
		return rrs, exists
	}
	return s.synthesize(inst, z, name, qtype)
}

// owned is lookup without the wildcards among the records.
func (s *Server) owned(inst *instance, z *zone, name string, qtype uint16) (rrs []dns.RR, exists bool) {
	all := slices.Clone(z.static)
	all = append(all, z.soa(inst))
	for _, rr := range inst.dynamic {
		all = append(all, rr)
	}
	for _, rr := range all {
		h := rr.Header()
		if owner := dns.CanonicalName(h.Name); owner != name {
			// An empty non-terminal exists too (RFC 8020 §2).
			exists = exists || dns.IsSubDomain(name, owner)
			continue
		}
		exists = true
		if h.Rrtype == qtype || h.Rrtype == dns.TypeCNAME || qtype == dns.TypeANY {
			rrs = append(rrs, rr)
		}
	}
	if z.wildcard.IsValid() && !exists {
		exists = true
		if rr := address(name, z.wildcard, 60); rr.Header().Rrtype == qtype {
			rrs = append(rrs, rr)
		}
	}
	slices.SortFunc(rrs, func(a, b dns.RR) int { return strings.Compare(a.String(), b.String()) })
	return rrs, exists
}

// synthesize returns the records of the wildcard at the closest name above that exists (RFC 4592 §3.3.1).
func (s *Server) synthesize(inst *instance, z *zone, name string, qtype uint16) (rrs []dns.RR, exists bool) {
	for _, start := range dns.Split(name)[1:] {
		parent := name[start:]
		rrs, exists = s.owned(inst, z, "*."+parent, qtype)
		for i, rr := range rrs {
			rrs[i] = dns.Copy(rr)
			rrs[i].Header().Name = name
		}
		if _, there := s.owned(inst, z, parent, qtype); exists || there {
			break
		}
	}
	return rrs, exists
}
