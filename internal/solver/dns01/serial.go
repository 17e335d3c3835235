package dns01

import (
	"context"
	"sync"

	"github.com/miekg/dns"
)

// noteBehind adds to the verdict of a server without the record that its copy of the zone is older than the copy of a
// server with the record, or of the primary: then the record is on its way, or zone transfers do not work. The text has
// no serial, which would change by itself. A server that has shown its SOA with a negative answer (RFC 2308 §3) is not
// asked again.
func (r *Resolver) noteBehind(ctx context.Context, zone string, verdicts []verdict) {
	var wg sync.WaitGroup
	for i := range verdicts {
		v := &verdicts[i]
		if !v.found && !v.others {
			v.soa = ownedBy(v.soa, zone)
			continue
		}
		wg.Go(func() {
			if m, err := r.ask(ctx, v.address, zone, dns.TypeSOA, false); err == nil && m.Authoritative {
				v.soa = soaOf(m, zone)
			}
		})
	}
	wg.Wait()
	for i := range verdicts {
		if v := &verdicts[i]; !v.found && v.isBehindAny(verdicts) {
			v.problem += " (it has not taken over the newest version of the zone yet: its SOA serial is older)"
		}
	}
}

func (v *verdict) isBehindAny(verdicts []verdict) bool {
	for i := range verdicts {
		if of := &verdicts[i]; (of.found || of.isPrimary()) && isOlder(v.soa, of.soa) {
			return true
		}
	}
	return false
}

// isPrimary reports whether the server calls itself the source of the zone (RFC 1035 §3.3.13).
func (v *verdict) isPrimary() bool { return v.soa != nil && dns.CanonicalName(v.soa.Ns) == v.host }

// isOlder compares two copies of one primary's zone by their serials (RFC 1982 §3.2). Where each
// server is its own primary, or the zone has two operators, serials say nothing.
func isOlder(a, b *dns.SOA) bool {
	if a == nil || b == nil || dns.CanonicalName(a.Ns) != dns.CanonicalName(b.Ns) {
		return false
	}
	const half = 1 << 31 // two serials this far apart have no order
	ahead := b.Serial - a.Serial
	return ahead != 0 && ahead < half
}

// ownedBy returns the record if it is the zone's.
func ownedBy(soa *dns.SOA, zone string) *dns.SOA {
	if soa == nil || dns.CanonicalName(soa.Hdr.Name) != zone {
		return nil
	}
	return soa
}

// negativeSOA is the SOA record of a negative answer, or nil.
func negativeSOA(m *dns.Msg) *dns.SOA {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return soa
		}
	}
	return nil
}
