package dns01

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
)

// verdict is the answer of one server about a TXT record.
type verdict struct {
	server string
	found  bool
	// alias is where a CNAME of this server leads, if the record is not here.
	alias string
	// problem says in a few words why found is false.
	problem string
	// host is the server's name, address the one that has answered.
	host, address string
	// others says that the server has TXT values, but not those that are wanted.
	others bool
	// soa is the zone's SOA record of this server, if it is known.
	soa *dns.SOA
}

// wanted judges the TXT values, one or more, that a server answers for a name. It returns "" if the values are as
// needed, else what is wrong with them.
type wanted func(values []string) (problem string)

// Propagated returns nil if all servers that count, or as many as Quorum says, answer a TXT record with this value at
// fqdn. These are the authoritative servers of the zone, which Propagated asks in parallel; or recursive servers, if
// nameservers are given or the Resolver is told so. Propagated follows CNAMEs, as the CA does (RFC 8555 §8.4). It asks
// every server even if some are silent, lame or wrong, and names these in the error.
func (r *Resolver) Propagated(ctx context.Context, fqdn, value string, nameservers []string) error {
	return r.propagated(ctx, fqdn, func(values []string) string {
		if slices.Contains(values, value) {
			return ""
		}
		return fmt.Sprintf("%d other TXT values", len(values))
	}, nameservers)
}

// propagated is Propagated for any judgement of the values. want is called from several goroutines.
func (r *Resolver) propagated(ctx context.Context, fqdn string, want wanted, nameservers []string) error {
	fqdn = dns.CanonicalName(fqdn)
	if len(nameservers) == 0 && r.o.RecursiveOnly {
		nameservers = r.o.Nameservers
	}
	if len(nameservers) > 0 {
		return r.conclude("DNS servers", fqdn, r.askAll(ctx, recursiveServers(nameservers), fqdn, want))
	}
	seen := []string{fqdn}
	for len(seen) <= limits.Aliases+1 {
		alias, err := r.propagatedAt(ctx, seen[len(seen)-1], want)
		switch {
		case alias == "" && err != nil && len(seen) > 1:
			return fmt.Errorf("%s is an alias (CNAME) of %s, and what is there counts: %w", fqdn, strings.Join(seen[1:], ", and that of "), err)
		case alias == "":
			return err
		case slices.Contains(seen, alias):
			return fmt.Errorf("CNAMEs run in a circle: %s", strings.Join(append(seen, alias), " → "))
		}
		seen = append(seen, alias)
	}
	return fmt.Errorf("more than %d CNAMEs from %s", limits.Aliases, fqdn)
}

// propagatedAt is propagated at a name, or returns where the name leads.
func (r *Resolver) propagatedAt(ctx context.Context, name string, want wanted) (alias string, err error) {
	zone, err := r.Zone(ctx, name, nil)
	if err != nil {
		return "", err
	}
	hosts, err := r.authoritative(ctx, zone)
	if err != nil {
		return "", err
	}
	verdicts := r.askAll(ctx, r.authoritativeServers(hosts), name, want)
	if alias = aliasOf(verdicts); alias != "" {
		return alias, nil
	}
	if found := countFound(verdicts); found > 0 && found < r.needed(verdicts) {
		r.noteBehind(ctx, zone, verdicts)
	}
	return "", r.conclude("name servers of zone "+zone, name, verdicts)
}

// aliasOf returns where the name leads if a server says that it is a CNAME and none has the record itself.
func aliasOf(verdicts []verdict) string {
	alias := ""
	for _, v := range verdicts {
		if v.found {
			return ""
		}
		if alias == "" {
			alias = v.alias
		}
	}
	return alias
}

// needed is how many of the servers have to have the record.
func (r *Resolver) needed(verdicts []verdict) int {
	if r.o.Quorum > 0 {
		return min(r.o.Quorum, len(verdicts))
	}
	return len(verdicts)
}

func countFound(verdicts []verdict) int {
	n := 0
	for _, v := range verdicts {
		if v.found {
			n++
		}
	}
	return n
}

// conclude returns nil if enough servers have the record, else an error in words that do not change from try to try.
func (r *Resolver) conclude(who, name string, verdicts []verdict) error {
	var missing []string
	for _, v := range verdicts {
		if !v.found {
			missing = append(missing, v.server+": "+v.problem)
		}
	}
	needed, need := r.needed(verdicts), ""
	if len(verdicts)-len(missing) >= needed {
		return nil
	}
	if needed < len(verdicts) {
		need = fmt.Sprintf(", and %d have to", needed)
	}
	return fmt.Errorf("asked all %s for TXT %s: %d of %d do not answer the expected value yet%s: %s",
		who, name, len(missing), len(verdicts), need, strings.Join(missing, "; "))
}

// server is one server to ask for a TXT record, at the first of its addresses that answers.
type server struct {
	name      string
	addresses []string
	recursive bool
	// problem says why there are no addresses.
	problem string
}

func recursiveServers(addresses []string) []server {
	out := make([]server, 0, len(addresses))
	for _, a := range addresses {
		out = append(out, server{name: a, addresses: []string{a}, recursive: true})
	}
	return out
}

func (r *Resolver) authoritativeServers(hosts []nameserver) []server {
	out := make([]server, 0, len(hosts))
	for _, h := range hosts {
		s := server{name: h.host, problem: "the server's name has no address"}
		if h.err != nil {
			s.problem = "the server's name does not resolve: " + h.err.Error()
		}
		for _, ip := range h.addrs {
			s.addresses = append(s.addresses, r.canonicalAddress(ip))
		}
		out = append(out, s)
	}
	return out
}

// askAll asks all servers at once and returns their verdicts in the same order.
func (r *Resolver) askAll(ctx context.Context, servers []server, name string, want wanted) []verdict {
	verdicts, errs := make([]verdict, len(servers)), make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			defer fault.Contain(&errs[i])
			verdicts[i] = r.askOne(ctx, s, name, want)
		})
	}
	wg.Wait()
	for i, s := range servers {
		if errs[i] != nil {
			verdicts[i] = verdict{server: s.name, host: s.name, problem: errs[i].Error()}
		}
	}
	return verdicts
}

func (r *Resolver) askOne(ctx context.Context, s server, name string, want wanted) verdict {
	v := verdict{server: s.name, host: s.name, problem: s.problem}
	for _, address := range s.addresses {
		v.server = s.name
		if address != s.name {
			v.server = fmt.Sprintf("%s (%s)", s.name, address)
		}
		m, err := r.ask(ctx, address, name, dns.TypeTXT, s.recursive)
		if err != nil {
			v.problem = egress.Cause(err)
			continue
		}
		v.address = address
		v.judge(m, s, name, want)
		return v
	}
	return v
}

// judge reads one server's answer. If an answer without authority has the value, judge believes the answer: a firewall
// may answer in the server's place. If the answer has no value, judge does not believe it.
func (v *verdict) judge(m *dns.Msg, s server, name string, want wanted) {
	var values []string
	for _, rr := range m.Answer {
		if txt, ok := rr.(*dns.TXT); ok {
			values = append(values, strings.Join(txt.Txt, ""))
		}
	}
	other := ""
	if len(values) > 0 {
		if other = want(values); other == "" {
			v.found, v.problem = true, ""
			return
		}
	}
	if m.Authoritative {
		v.others, v.soa = other != "", negativeSOA(m)
	}
	switch {
	case m.Rcode == dns.RcodeNameError:
		v.problem = "NXDOMAIN, the name does not exist" + negativeTTL(m, s)
	case m.Rcode != dns.RcodeSuccess:
		v.problem = cmp.Or(dns.RcodeToString[m.Rcode], fmt.Sprintf("the response code %d", m.Rcode))
		if m.Rcode == dns.RcodeRefused && !s.recursive {
			v.problem += ", it does not serve the zone (lame delegation)"
		}
	case other != "":
		v.problem = other
	case !m.Authoritative && !s.recursive:
		v.problem = "it answers without authority (lame delegation)"
	default:
		v.problem = "no TXT record" + negativeTTL(m, s)
	}
	// A CNAME is followed by a recursive server itself, and where an authoritative
	// one says NXDOMAIN with it, that is about the target (RFC 6604 §3).
	if !s.recursive {
		v.alias = lastAlias(m, name)
	}
}

// lastAlias follows the CNAMEs within one answer to the end.
func lastAlias(m *dns.Msg, name string) string {
	last := ""
	for range limits.CNAMEs {
		next := cnameOf(m, name)
		if next == "" {
			return last
		}
		last, name = next, next
	}
	return last
}

// negativeTTL warns that a recursive server may repeat a negative answer. The SOA's
// MINIMUM is the same on every try, unlike the TTL that is left (RFC 2308 §5).
func negativeTTL(m *dns.Msg, s server) string {
	if !s.recursive {
		return ""
	}
	if soa := negativeSOA(m); soa != nil {
		return fmt.Sprintf(" (it may repeat this for up to %d s: negative caching)", soa.Minttl)
	}
	return ""
}
