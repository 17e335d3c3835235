package dns01

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"

	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
)

// CAA returns the CAA records that hold for a name, and their owner: the name itself, or the closest name above with
// CAA records (RFC 8659 §3). The owner is empty if there are no such records.
func (r *Resolver) CAA(ctx context.Context, fqdn string) (owner string, records []preflight.CAARecord, err error) {
	fqdn = dns.CanonicalName(fqdn)
	for _, start := range dns.Split(fqdn) {
		m, err := r.recursive(ctx, r.o.Nameservers, fqdn[start:], dns.TypeCAA)
		if err != nil {
			return "", nil, err
		}
		for _, rr := range m.Answer {
			if caa, ok := rr.(*dns.CAA); ok {
				records = append(records, preflight.CAARecord{Flag: caa.Flag, Tag: caa.Tag, Value: caa.Value})
			}
		}
		if len(records) > 0 {
			return fqdn[start:], records, nil
		}
	}
	return "", nil, nil
}

// Delegation asks the name servers of the parent zone which servers serve a zone. Then it asks each of these servers,
// and each server that the recursive servers name, whether it serves the zone.
func (r *Resolver) Delegation(ctx context.Context, zone string) (preflight.Delegation, error) {
	d := preflight.Delegation{Zone: dns.CanonicalName(zone)}
	known, err := r.authoritative(ctx, d.Zone)
	if err != nil {
		return d, err
	}
	if next, end := dns.NextLabel(d.Zone, 0); !end {
		if err := r.askParent(ctx, &d, d.Zone[next:]); err != nil {
			return d, err
		}
	}
	var others []*dns.NS
	for _, host := range d.AtParent {
		if !slices.ContainsFunc(known, func(n nameserver) bool { return n.host == host }) && len(others) < maxServers {
			others = append(others, &dns.NS{Ns: host})
		}
	}
	found, _ := r.resolveAll(ctx, others)
	r.askServers(ctx, &d, r.authoritativeServers(append(slices.Clone(known), found...)))
	return d, nil
}

// askParent asks the servers of the parent zone in turn until one knows the name servers of the zone.
func (r *Resolver) askParent(ctx context.Context, d *preflight.Delegation, above string) error {
	var err error
	if d.Parent, err = r.Zone(ctx, above, nil); err != nil {
		return err
	}
	hosts, err := r.authoritative(ctx, d.Parent)
	if err != nil {
		return err
	}
	for _, s := range r.authoritativeServers(hosts) {
		if m, err := r.askFirst(ctx, s, d.Zone, dns.TypeNS); err == nil {
			if d.AtParent = hostsOf(append(slices.Clone(m.Answer), m.Ns...), d.Zone); len(d.AtParent) > 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("no name server of %s says who serves %s", d.Parent, d.Zone)
}

// askFirst asks a server at its addresses in turn, until one answers.
func (r *Resolver) askFirst(ctx context.Context, s server, name string, qtype uint16) (*dns.Msg, error) {
	err := errors.New(s.problem)
	for _, address := range s.addresses {
		m, failed := r.ask(ctx, address, name, qtype, false)
		if failed == nil {
			return m, nil
		}
		err = errors.New(egress.Cause(failed))
	}
	return nil, err
}

// askServers asks all servers at once whether they serve the zone.
func (r *Resolver) askServers(ctx context.Context, d *preflight.Delegation, servers []server) {
	answers, errs := make([]*dns.Msg, len(servers)), make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			defer fault.Contain(&errs[i])
			answers[i], errs[i] = r.askFirst(ctx, s, d.Zone, dns.TypeNS)
		})
	}
	wg.Wait()
	for i, s := range servers {
		switch m := answers[i]; {
		case errs[i] != nil:
			d.Silent = append(d.Silent, s.name+" ("+errs[i].Error()+")")
		case m.Rcode != dns.RcodeSuccess:
			d.Lame = append(d.Lame, s.name+" ("+dns.RcodeToString[m.Rcode]+")")
		case !m.Authoritative || len(hostsOf(m.Answer, d.Zone)) == 0:
			d.Lame = append(d.Lame, s.name+" (answers without authority)")
		default:
			d.Answered++
			d.AtZone = append(d.AtZone, hostsOf(m.Answer, d.Zone)...)
		}
	}
	slices.Sort(d.AtZone)
	d.AtZone = slices.Compact(d.AtZone)
}

// hostsOf are the servers that NS records of a zone name, in order.
func hostsOf(records []dns.RR, zone string) (hosts []string) {
	for _, rr := range records {
		if ns, ok := rr.(*dns.NS); ok && strings.EqualFold(ns.Hdr.Name, zone) {
			hosts = append(hosts, dns.CanonicalName(ns.Ns))
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
