package acmeaccount

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"chancery.dev/internal/acmeflow"
)

// provenBy is how many parts of a domain are refused in a row before the domain itself is
// taken to be what the CA limits.
const provenBy = 3

// limits are what a CA refuses to take orders for. CAs limit orders of an account, of a
// registered domain, of one set of names, and after failed authorizations of a name, and tell
// which only in words for people (RFC 8555 §6.6). So it is found out: the names that were
// refused wait for as long as the CA says. If several parts of a domain are refused and none
// is taken, the whole domain waits, for up to maxPark at a time; and so does the account.
//
// The zero value is ready. It is safe for concurrent use.
type limits struct {
	mu     sync.Mutex
	scopes map[string]*scope
}

// scope is a domain; or a set of names, which has no parts; or the account, which is the empty name.
type scope struct {
	// parts that were refused since an order under it was taken, and until when each has to wait.
	parts map[string]time.Time
	// until is when an order may be sent again, and detail what the CA said.
	until  time.Time
	detail string
}

// refused notes that the CA wants no order for the names for a while, and returns for how long
// to leave the account alone.
func (l *limits) refused(ids []acmeflow.Identifier, wait time.Duration, detail string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune(now)
	set := setOf(ids)
	l.scope(set).hold(now.Add(wait), detail)
	tops := map[string]bool{}
	for _, id := range ids {
		part := set
		for _, domain := range domainsOf(id) {
			s := l.scope(domain)
			if s.add(part, now.Add(wait)) >= provenBy {
				s.hold(now.Add(min(wait, maxPark)), detail)
			}
			part = domain
		}
		tops[part] = true
	}
	part := set
	if len(tops) == 1 {
		part = slices.Collect(maps.Keys(tops))[0]
	}
	return parkFor(wait, l.scope("").add(part, now.Add(wait)))
}

// taken notes that the CA has taken an order for the names: no limit that covers them holds.
func (l *limits) taken(ids []acmeflow.Identifier) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.scopes, "")
	delete(l.scopes, setOf(ids))
	for _, id := range ids {
		for _, domain := range domainsOf(id) {
			delete(l.scopes, domain)
		}
	}
}

// held returns until when no order for the names is to be sent, and why; zero if one may be.
func (l *limits) held(ids []acmeflow.Identifier, now time.Time) (until time.Time, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	consider := func(name, where string) {
		if s := l.scopes[name]; s != nil && s.until.After(now) && s.until.After(until) {
			until, why = s.until, fmt.Sprintf("not sent, because the ACME server has refused orders %s: %s", where, s.detail)
		}
	}
	consider(setOf(ids), "of the same names")
	for _, id := range ids {
		for _, domain := range domainsOf(id) {
			consider(domain, "under "+domain)
		}
	}
	return until, why
}

func (l *limits) scope(name string) *scope {
	s := l.scopes[name]
	if s == nil {
		s = &scope{parts: map[string]time.Time{}}
		if l.scopes == nil {
			l.scopes = map[string]*scope{}
		}
		l.scopes[name] = s
	}
	return s
}

// prune forgets what is over.
func (l *limits) prune(now time.Time) {
	maps.DeleteFunc(l.scopes, func(_ string, s *scope) bool {
		maps.DeleteFunc(s.parts, func(_ string, until time.Time) bool { return !until.After(now) })
		return len(s.parts) == 0 && !s.until.After(now)
	})
}

// add notes a part that was refused, and returns how many there are.
func (s *scope) add(part string, until time.Time) int {
	s.parts[part] = until
	return len(s.parts)
}

func (s *scope) hold(until time.Time, detail string) { s.until, s.detail = until, detail }

// setOf names a set of names as no domain is.
func setOf(ids []acmeflow.Identifier) string {
	var values []string
	for _, id := range ids {
		values = append(values, strings.ToLower(id.Value))
	}
	slices.Sort(values)
	return "=" + strings.Join(values, " ")
}

// domainsOf are a name without its wildcard, and the domains that it is in but for the
// top-level one; none for an address.
func domainsOf(id acmeflow.Identifier) []string {
	if id.Type != "dns" {
		return nil
	}
	var out []string
	domain := strings.ToLower(strings.TrimPrefix(id.Value, "*."))
	for strings.Contains(domain, ".") {
		out = append(out, domain)
		_, domain, _ = strings.Cut(domain, ".")
	}
	return out
}
