package account

import (
	"crypto/sha256"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// provenBy is how many parts of a domain are refused in a row before the domain itself is
// taken to be what the CA limits.
const provenBy = 3

// limits are what a CA refuses to take orders for. CAs limit orders of an account, of a registered domain, of one set
// of names, and after failed authorizations of a name, and tell which only in words for people (RFC 8555 §6.6). So the
// limit is inferred: the names that were refused wait for as long as the CA says. If orders for several parts of a
// domain are refused, and none is taken, the whole domain waits, for up to the longest park at a time. All orders of
// the account wait for the first park at most. A refusal counts for the longest park at most, and only once: a tenant
// whose names the CA refuses again and again cannot hold back the names of other tenants for ever.
//
// The zero value is ready.
type limits struct {
	scopes map[string]*scope
	// pruned is when they were last pruned.
	pruned time.Time
}

// pruneEvery is the time between two looks at all scopes for those that are over.
const pruneEvery = time.Minute

// everything is the name of the widest scope: the account.
const everything = ""

// scope is a set of names; a domain; or the account.
type scope struct {
	// parts that were refused since an order under it was taken, and until when each counts.
	parts map[string]time.Time
	// since and until are when it was last held, and until when.
	since, until time.Time
	// all says that renewals are held, too: one was refused. CAs that know of what they replace limit
	// them less than others, or not at all (RFC 9773 §5).
	all bool
	// detail is what the CA said of a set, and paused that a person has to lift a pause of it.
	detail string
	paused bool
}

// Order is what the limits need to know of a new order.
type Order struct {
	// Identifiers are the names to authorize.
	Identifiers []acme.Identifier
	// Renewal says that the order renews a certificate: CAs limit renewals less, or not at all (RFC 9773 §5).
	Renewal bool
	// Namespace is that of the Order, and Share how many orders the issuer lets it make.
	Namespace string
	Share     Share
	// Replaces says that the order is for a certificate that has been issued before.
	Replaces bool
}

// Refusal is an order that the CA has refused because of a limit.
type Refusal struct {
	Order

	// Sent is when the order went out.
	Sent time.Time
	// Wait is how long the CA wants no such order, Detail what the CA said.
	Wait   time.Duration
	Detail string
	// Paused says that the CA takes orders for the names once a person has lifted a pause.
	Paused bool
}

// refused takes in that the CA has refused an order.
func (l *limits) refused(r Refusal, now time.Time) {
	l.prune(now)
	set := setOf(r.Identifiers)
	s := l.scope(set, r.Renewal, now)
	s.hold(now, r.Wait)
	s.detail, s.paused = r.Detail, r.Paused
	if r.Paused {
		return // it is of the names themselves
	}
	counts := now.Add(min(r.Wait, fault.Parks.With("").Obeyed))
	part := set
	for _, domain := range commonDomains(r.Identifiers) {
		if s := l.scope(domain, r.Renewal, now); !r.Sent.Before(s.since) {
			s.forget(now)
			s.parts[part] = counts
			if len(s.parts) == provenBy {
				s.hold(now, min(r.Wait, fault.Parks.With("").Obeyed))
				clear(s.parts)
			}
		}
		part = domain
	}
	l.scope(everything, r.Renewal, now).widen(r, now)
}

// widen holds all new orders of the account for a moment, unless an earlier refusal explains this one. It never holds
// them for longer, whatever the CA says: the refused names wait by themselves, and most limits are limits of names.
func (s *scope) widen(r Refusal, now time.Time) {
	tops := topsOf(r.Identifiers)
	known := slices.ContainsFunc(tops, func(top string) bool { return s.parts[top].After(now) })
	if known || r.Sent.Before(s.since) {
		return
	}
	for _, top := range tops {
		s.parts[top] = now.Add(min(r.Wait, fault.Parks.With("").Obeyed))
	}
	s.hold(now, min(r.Wait, fault.Parks.With("").First))
}

// taken notes that the CA has taken an order for the names: no limit that covers them holds. Which
// domains have held the account before is kept: they do not do so again soon.
func (l *limits) taken(ids []acme.Identifier) {
	for _, name := range covering(ids) {
		if s := l.scopes[name]; name == everything && s != nil {
			s.until = time.Time{}
			continue
		}
		delete(l.scopes, name)
	}
}

// held returns until when an order is not to be sent, and why; zero if it may be.
func (l *limits) held(n Order, now time.Time) (park Park) {
	for _, name := range covering(n.Identifiers) {
		s := l.scopes[name]
		if s == nil || !s.until.After(now) || !s.until.After(park.Until) || n.Renewal && !s.all {
			continue
		}
		park = Park{Until: s.until, Paused: s.paused}
		switch { // the words of the CA about other orders may name what belongs to other tenants
		case name == setOf(n.Identifiers):
			park.Reason = strings.TrimSuffix("not sent, because the ACME server has refused an order for the same names: "+s.detail, ": ")
		case name == everything:
			park.Reason = "not sent, because the ACME server has refused other orders of this account"
		default:
			park.Reason = "not sent, because the ACME server has refused other orders under " + name
		}
	}
	return park
}

// scope returns the scope of the name, which applies to renewals from now on if one was refused.
func (l *limits) scope(name string, renewal bool, now time.Time) *scope {
	s := l.scopes[name]
	if s == nil || s.over(now) {
		s = &scope{parts: map[string]time.Time{}}
		if l.scopes == nil {
			l.scopes = map[string]*scope{}
		}
		l.scopes[name] = s
	}
	s.all = s.all || renewal
	return s
}

// prune forgets what is over, every now and then: what is asked for in between is looked at itself.
func (l *limits) prune(now time.Time) {
	if now.Before(l.pruned.Add(pruneEvery)) && !now.Before(l.pruned) {
		return
	}
	l.pruned = now
	maps.DeleteFunc(l.scopes, func(_ string, s *scope) bool {
		s.forget(now)
		return s.over(now)
	})
}

// forget takes out the parts that do not count any more.
func (s *scope) forget(now time.Time) {
	maps.DeleteFunc(s.parts, func(_ string, until time.Time) bool { return !until.After(now) })
}

// over reports whether a scope says nothing any more.
func (s *scope) over(now time.Time) bool {
	if s.until.After(now) {
		return false
	}
	for _, until := range s.parts {
		if until.After(now) {
			return false
		}
	}
	return true
}

func (s *scope) hold(now time.Time, wait time.Duration) {
	if until := now.Add(wait); until.After(s.until) {
		s.since, s.until = now, until
	}
}

// covering names the scopes that an order for the names is in.
func covering(ids []acme.Identifier) []string {
	names := []string{everything, setOf(ids)}
	for _, id := range ids {
		names = append(names, domainsOf(id)...)
	}
	return names
}

// setOf names a set of names as no domain is, by a digest: there may be many long names, and refused orders are
// remembered for weeks.
func setOf(ids []acme.Identifier) string {
	var values []string
	for _, id := range ids {
		values = append(values, pki.DNSNameKey(id.Value))
	}
	slices.Sort(values)
	sum := sha256.Sum256([]byte(strings.Join(values, " ")))
	return "=" + string(sum[:])
}

// commonDomains are those that all the names are in, the smallest first.
func commonDomains(ids []acme.Identifier) []string {
	var common []string
	for i, id := range ids {
		domains := domainsOf(id)
		if i == 0 {
			common = domains
			continue
		}
		common = slices.DeleteFunc(common, func(domain string) bool { return !slices.Contains(domains, domain) })
	}
	return common
}

// topsOf are the largest domain of each name; of an address that has none, itself.
func topsOf(ids []acme.Identifier) []string {
	var tops []string
	for _, id := range ids {
		top := pki.DNSNameKey(id.Value)
		if domains := domainsOf(id); len(domains) > 0 {
			top = domains[len(domains)-1]
		}
		tops = append(tops, top)
	}
	return tops
}

// domainsOf are a name without its wildcard, and the domains that it is in but for the
// top-level one; of an IPv6 address the network that its host has, by which CAs limit them.
func domainsOf(id acme.Identifier) []string {
	if id.Type != "dns" {
		address, err := netip.ParseAddr(id.Value)
		if err != nil || !address.Is6() {
			return nil
		}
		return []string{netip.PrefixFrom(address, 64).Masked().String()}
	}
	var out []string
	domain := strings.TrimPrefix(pki.DNSNameKey(id.Value), "*.")
	for strings.Contains(domain, ".") {
		out = append(out, domain)
		_, domain, _ = strings.Cut(domain, ".")
	}
	return out
}
