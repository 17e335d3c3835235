package dns01

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
)

// nameserver is one authoritative server of a zone.
type nameserver struct {
	host  string
	addrs []netip.Addr
	// err says why there is no address; nil where DNS says there is none.
	err error
}

const (
	// maxTTL is the longest that anything is cached, in seconds.
	maxTTL = 24 * 60 * 60
	// maxServers bounds the name servers of a zone that are asked, and maxAddresses the addresses of one: the owner of
	// the zone may list thousands.
	maxServers   = limits.NameServers
	maxAddresses = limits.Addresses
)

// lifeOf is how long something is kept that has a TTL in seconds. When the TTL has passed, it is kept no more.
func lifeOf(ttl uint32) time.Duration { return time.Duration(min(ttl, maxTTL))*time.Second - 1 }

// Zone returns the zone of a name: the name itself or the closest name above with an SOA record (spec §5.9). Only zones
// that were found are cached, for the TTL of the SOA record: a name that does not exist yet is asked for again. servers
// are the recursive servers to ask; none means those of the Resolver.
func (r *Resolver) Zone(ctx context.Context, fqdn string, servers []string) (string, error) {
	fqdn = dns.CanonicalName(fqdn)
	if len(servers) == 0 {
		servers = r.o.Nameservers
	}
	key := strings.Join(servers, ",") + " " + fqdn
	if hit, ok := r.zones.Get(key); ok {
		return hit.(string), nil //nolint:forcetypeassert // nothing else is in it
	}
	// Some recursive servers fail for names that do not exist. Then the servers of the zone that is found above say
	// whether the name is in it.
	var failed error
	// Without the root, which would seem to be the zone of a domain that does not exist.
	for _, start := range dns.Split(fqdn) {
		name := fqdn[start:]
		m, err := r.recursive(ctx, servers, name, dns.TypeSOA)
		if none := (*noAnswer)(nil); errors.As(err, &none) && none.failed {
			failed = cmp.Or(failed, err)
			continue
		}
		if err != nil {
			return "", fmt.Errorf("finding the zone of %s: %w", fqdn, err)
		}
		soa := soaOf(m, name)
		if soa == nil {
			continue
		}
		if failed != nil && !r.holds(ctx, name, fqdn) {
			return "", fmt.Errorf("finding the zone of %s: %w", fqdn, failed)
		}
		r.zones.Add(key, name, lifeOf(soa.Hdr.Ttl))
		return name, nil
	}
	if failed != nil {
		return "", fmt.Errorf("finding the zone of %s: %w", fqdn, failed)
	}
	return "", fault.Terminal(fault.ReasonNoZone, "finding the zone of %s: none of its parents has an SOA record according to %s; does the domain exist?",
		fqdn, strings.Join(servers, ", "))
}

// holds reports whether a server of a zone says that a name is in the zone, and not in one below: it denies the name
// with the SOA record of the zone (RFC 2308 §2).
func (r *Resolver) holds(ctx context.Context, zone, fqdn string) bool {
	if r.o.RecursiveOnly {
		return false
	}
	hosts, err := r.authoritative(ctx, zone)
	if err != nil {
		return false
	}
	for _, s := range r.authoritativeServers(hosts) {
		m, err := r.askFirst(ctx, s, fqdn, dns.TypeSOA)
		if err != nil || !m.Authoritative {
			continue
		}
		return slices.ContainsFunc(m.Ns, func(rr dns.RR) bool {
			soa, ok := rr.(*dns.SOA)
			return ok && dns.CanonicalName(soa.Hdr.Name) == zone
		})
	}
	return false
}

// soaOf returns the SOA record in the answer section that name itself owns. An
// answer by way of a CNAME speaks about another zone.
func soaOf(m *dns.Msg, name string) *dns.SOA {
	if m.Rcode != dns.RcodeSuccess {
		return nil
	}
	for _, rr := range m.Answer {
		if _, ok := rr.(*dns.CNAME); ok {
			return nil
		}
	}
	for _, rr := range m.Answer {
		if soa, ok := rr.(*dns.SOA); ok && dns.CanonicalName(soa.Hdr.Name) == name {
			return soa
		}
	}
	return nil
}

// Follow returns the name to which CNAMEs lead from a name; the name itself if it owns no CNAME. Follow ignores a CNAME
// that a wildcard makes for the name (RFC 4592 §2.1.1): as soon as a record is written at the name, the wildcard does
// not answer for the name any more. So the result is the same before, while and after the record is there. servers are
// the recursive servers to ask; none means those of the Resolver.
func (r *Resolver) Follow(ctx context.Context, fqdn string, servers []string) (string, error) {
	if len(servers) == 0 {
		servers = r.o.Nameservers
	}
	seen := []string{dns.CanonicalName(fqdn)}
	for len(seen) <= limits.Aliases+1 {
		name := seen[len(seen)-1]
		m, err := r.recursive(ctx, servers, name, dns.TypeCNAME)
		if err != nil {
			return "", fmt.Errorf("following CNAMEs from %s: %w", fqdn, err)
		}
		target := cnameOf(m, name)
		if target == "" {
			return name, nil
		}
		made, err := r.synthesized(ctx, name, target, servers)
		if err != nil {
			return "", fmt.Errorf("following CNAMEs from %s: %w", fqdn, err)
		}
		if made {
			return name, nil
		}
		if slices.Contains(seen, target) {
			return "", fmt.Errorf("following CNAMEs from %s: they run in a circle: %s",
				fqdn, strings.Join(append(seen, target), " → "))
		}
		seen = append(seen, target)
	}
	return "", fmt.Errorf("following CNAMEs from %s: more than %d", fqdn, limits.Aliases)
}

// besides is a label that nobody uses: a name with it has what a wildcard answers for all names beside it.
const besides = "_no-such-name."

// synthesized reports whether a wildcard makes the CNAME of a name, rather than that the name owns it: then a name
// beside it that does not exist has the same one (RFC 4592 §3.3.1: both have the same closest encloser).
func (r *Resolver) synthesized(ctx context.Context, name, target string, servers []string) (bool, error) {
	start, _ := dns.NextLabel(name, 0)
	beside := besides + name[start:]
	if _, ok := dns.IsDomainName(beside); !ok {
		return false, nil // too long: nobody can be asked
	}
	m, err := r.recursive(ctx, servers, beside, dns.TypeCNAME)
	if err != nil {
		return false, err
	}
	return cnameOf(m, beside) == target, nil
}

// cnameOf returns the target of the CNAME that a name owns in an answer, or "".
func cnameOf(m *dns.Msg, name string) string {
	for _, rr := range m.Answer {
		if c, ok := rr.(*dns.CNAME); ok && dns.CanonicalName(c.Hdr.Name) == name {
			return dns.CanonicalName(c.Target)
		}
	}
	return ""
}

// authoritative returns the servers of a zone with their addresses, cached for the smallest TTL of the answers. Servers
// without an address stay in the list, uncached: the reason is shown, and the others are asked.
func (r *Resolver) authoritative(ctx context.Context, zone string) ([]nameserver, error) {
	if hit, ok := r.hosts.Get(zone); ok {
		return hit.([]nameserver), nil //nolint:forcetypeassert // nothing else is in it
	}
	m, err := r.recursive(ctx, r.o.Nameservers, zone, dns.TypeNS)
	if err != nil {
		return nil, fmt.Errorf("finding the name servers of zone %s: %w", zone, err)
	}
	var names []*dns.NS
	for _, rr := range m.Answer {
		if ns, ok := rr.(*dns.NS); ok {
			names = append(names, ns)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("zone %s has no NS records according to %s", zone, strings.Join(r.o.Nameservers, ", "))
	}
	if len(names) > maxServers {
		return nil, fmt.Errorf("zone %s has %d name servers, more than the %d that are asked: set nameservers in the dns01 solver",
			zone, len(names), maxServers)
	}
	found, ttl := r.resolveAll(ctx, names)
	slices.SortFunc(found, func(a, b nameserver) int { return strings.Compare(a.host, b.host) })
	r.hosts.Add(zone, found, lifeOf(ttl))
	return found, nil
}

// resolveAll finds the addresses of all servers at once: one whose name is slow to
// resolve keeps no other waiting. ttl is the least of all records, in seconds.
func (r *Resolver) resolveAll(ctx context.Context, names []*dns.NS) (found []nameserver, ttl uint32) {
	found = make([]nameserver, len(names))
	ttls := make([]uint32, len(names))
	var wg sync.WaitGroup
	for i, ns := range names {
		wg.Go(func() {
			host := dns.CanonicalName(ns.Ns)
			found[i].host = host
			defer fault.Contain(&found[i].err)
			addrs, least, err := r.addresses(ctx, host)
			found[i], ttls[i] = nameserver{host, addrs, err}, min(ns.Hdr.Ttl, least)
		})
	}
	wg.Wait()
	ttl = maxTTL
	for _, t := range ttls {
		ttl = min(ttl, t)
	}
	return found, ttl
}

// addresses returns the addresses of a server, IPv4 first, and their least TTL. It is an error if there is no address
// and a question failed. The TTL is 0 if a question failed and there may be more addresses.
func (r *Resolver) addresses(ctx context.Context, host string) (addrs []netip.Addr, ttl uint32, err error) {
	ttl = maxTTL
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m, failed := r.recursive(ctx, r.o.Nameservers, host, qtype)
		if failed != nil {
			err, ttl = failed, 0
			continue
		}
		var of []netip.Addr
		for _, rr := range m.Answer {
			var raw []byte
			switch a := rr.(type) {
			case *dns.A:
				raw = a.A.To4()
			case *dns.AAAA:
				raw = a.AAAA.To16()
			}
			if ip, ok := netip.AddrFromSlice(raw); ok {
				of = append(of, ip)
				ttl = min(ttl, rr.Header().Ttl)
			}
		}
		slices.SortFunc(of, netip.Addr.Compare)
		addrs = append(addrs, of[:min(len(of), maxAddresses)]...)
	}
	if len(addrs) == 0 {
		return nil, 0, err
	}
	return addrs, ttl, nil
}
