package account

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/acme"
)

func names(values ...string) (ids []acme.Identifier) {
	for _, v := range values {
		typ := acme.IdentifierDNS
		if strings.Trim(v, "0123456789abcdef.:") == "" {
			typ = acme.IdentifierIP
		}
		ids = append(ids, acme.Identifier{Type: typ, Value: v})
	}
	return ids
}

// TestLimits: which orders wait after which refusals, and for how long.
func TestLimits(t *testing.T) {
	t.Parallel()
	const wait = 24 * time.Hour
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		// done are sets of names that the CA has refused for a day, one after the other; or taken, after a +.
		// A renewal has a ! before it.
		done []string
		// account is for how long an order of other names waits then.
		account time.Duration
		// held are the sets that wait now, but not after a day; after an hour those whose names were refused
		// still do. Free are those that wait no longer than the account.
		held, hour, free []string
	}{
		"nothing": {free: []string{"a.example.com", "192.0.2.1"}},
		"a set of names": {
			done: []string{"b.example.com a.example.com"}, account: time.Minute,
			held: []string{"a.example.com b.example.com", "A.example.com. B.example.com"}, hour: []string{"a.example.com b.example.com"},
			free: []string{"a.example.com", "c.example.com", "example.com", "!a.example.com b.example.com"},
		},
		"the same set again": {
			done: []string{"a.example.com", "a.example.com", "a.example.com", "a.example.com"}, account: time.Minute,
			held: []string{"a.example.com"}, hour: []string{"a.example.com"}, free: []string{"b.example.com"},
		},
		"two are no proof": {
			done: []string{"a.example.com", "b.example.com"}, account: time.Minute,
			held: []string{"a.example.com", "b.example.com"}, free: []string{"c.example.com", "a.example.com b.example.com"},
		},
		"an order of many names is one": {
			done: []string{"a.example.com b.example.com c.example.com d.example.com"}, account: time.Minute,
			held: []string{"a.example.com b.example.com c.example.com d.example.com"}, free: []string{"a.example.com", "e.example.com"},
		},
		"a domain": {
			done: []string{"a.example.com", "b.example.com", "*.c.example.com"}, account: time.Minute,
			held: []string{"d.example.com", "example.com", "*.example.com", "other.example.net x.d.example.com"}, hour: []string{"a.example.com"},
			free: []string{"example.net", "notexample.com", "!d.example.com"},
		},
		"a domain below": {
			done: []string{"a.x.example.com", "b.x.example.com", "c.x.example.com"}, account: time.Minute,
			held: []string{"d.x.example.com", "x.example.com"}, free: []string{"example.com", "y.example.com"},
		},
		"a domain that others are taken of": {
			done: []string{"a.example.com", "b.example.com", "c.example.com", "+d.example.com"},
			held: []string{"a.example.com"}, hour: []string{"a.example.com"}, free: []string{"e.example.com", "d.example.com"},
		},
		"one in between is taken": {
			done: []string{"a.example.com", "b.example.com", "+d.example.com", "c.example.com"},
			held: []string{"c.example.com"}, free: []string{"e.example.com"},
		},
		"a renewal in between proves nothing": {
			done: []string{"a.example.com", "b.example.com", "+!d.example.com", "c.example.com"}, account: time.Minute,
			held: []string{"e.example.com"}, free: []string{"!e.example.com"},
		},
		"a renewal": {
			done: []string{"!a.example.com", "b.example.com", "c.example.com"}, account: time.Minute,
			held: []string{"!e.example.com", "!a.example.com"}, free: []string{"!e.example.net"},
		},
		"two domains": {
			done: []string{"a.example.com", "a.example.net"}, account: time.Minute, held: []string{"a.example.net"}, free: []string{"b.example.com", "192.0.2.2"},
		},
		"several domains": {
			done: []string{"a.example.com", "a.example.net", "192.0.2.1"}, account: time.Minute,
			held: []string{"a.example.net", "192.0.2.1"}, hour: []string{"192.0.2.1"}, free: []string{"b.example.com", "192.0.2.2"},
		},
		"domains of which one is the same": {
			done: []string{"a.example.org a.example.com", "a.example.org a.example.net", "a.example.org a.example.info"}, account: time.Minute,
			held: []string{"a.example.org a.example.com"}, free: []string{"a.example.com", "a.example.org"},
		},
		"others are taken between refusals of one domain": {
			done: []string{"a.example.com", "+a.example.net", "b.example.com", "+z.example.com", "c.example.com"},
			held: []string{"c.example.com"}, hour: []string{"b.example.com"}, free: []string{"e.example.com"},
		},
		"a network": {
			done: []string{"2001:db8::1", "2001:db8::2", "2001:db8::3"}, account: time.Minute,
			held: []string{"2001:db8::4"}, free: []string{"2001:db8:0:1::1", "192.0.2.1"},
		},
	} {
		l, now := &limits{}, start
		for _, set := range c.done {
			set, taken := strings.CutPrefix(set, "+")
			n := order(set)
			if !taken {
				l.refused(Refusal{Order: n, Sent: now, Wait: wait, Detail: "too many"}, now)
			} else if !n.Renewal {
				l.taken(n.Identifiers)
			}
			now = now.Add(time.Millisecond)
		}
		end := func(set string, at time.Time) time.Duration {
			park := l.held(order(set), at)
			until, why := park.Until, park.Reason
			if until.IsZero() != (why == "") {
				t.Errorf("%s: %s until %s: %q", name, set, until, why)
			}
			return max(until.Sub(start), 0).Round(time.Second)
		}
		if got := end("stranger.test", now); got != c.account {
			t.Errorf("%s: others wait %s, not %s", name, got, c.account)
		}
		for _, set := range c.held {
			if got := end(set, now); got <= c.account && got < time.Hour {
				t.Errorf("%s: %s waits %s", name, set, got)
			}
			if got := end(set, now.Add(wait)); got != 0 {
				t.Errorf("%s: %s waits after a day", name, set)
			}
		}
		for _, set := range c.hour {
			if got := end(set, now.Add(time.Hour)); got != wait {
				t.Errorf("%s: %s waits %s in the end", name, set, got)
			}
		}
		for _, set := range c.free {
			if got := end(set, now); got > c.account {
				t.Errorf("%s: %s waits %s", name, set, got)
			}
		}
	}
}

// order is one for the names in a text; a renewal if that begins with !.
func order(set string) Order {
	set, renewal := strings.CutPrefix(set, "!")
	return Order{Identifiers: names(strings.Fields(set)...), Renewal: renewal}
}

// TestLimitsOfOneMoment: orders that were in flight when the first was refused make nothing longer.
func TestLimitsOfOneMoment(t *testing.T) {
	t.Parallel()
	l, now := &limits{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	sent := now
	for n := range 16 {
		now = now.Add(time.Millisecond)
		l.refused(Refusal{Order: order(fmt.Sprintf("a.example%d.com", n)), Sent: sent, Wait: time.Hour, Detail: "too many"}, now)
	}
	if park := l.held(order("stranger.test"), now); park.Until.Sub(sent).Round(time.Second) != time.Minute {
		t.Errorf("others wait: %+v", park)
	}
}

// TestLimitsHoldNobodyForGood: somebody whose names the CA refuses again and again leaves others
// of the domain, and of the account, the time to be asked for.
func TestLimitsHoldNobodyForGood(t *testing.T) {
	t.Parallel()
	l, now := &limits{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	began, free := now, time.Duration(0)
	for n := 0; now.Sub(began) < 24*time.Hour; n++ {
		n := order(fmt.Sprintf("n%d.shared.example.com", n))
		if l.held(n, now).Until.IsZero() {
			l.refused(Refusal{Order: n, Sent: now, Wait: 24 * time.Hour, Detail: "too many"}, now)
		}
		next := now.Add(20 * time.Minute) // how often he does it
		until := l.held(order("other.shared.example.com"), now).Until
		if until.Before(now) {
			until = now
		}
		free += max(next.Sub(until), 0)
		if until.Sub(now) > time.Hour {
			t.Fatalf("held until %s", until)
		}
		now = next
	}
	if free < 8*time.Hour {
		t.Errorf("others had %s of a day", free)
	}
}

// TestLimitsAreForgotten: what is over does not count, so that limits of seconds never add up.
func TestLimitsAreForgotten(t *testing.T) {
	t.Parallel()
	l, now := &limits{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range 100 {
		l.refused(Refusal{Order: order(fmt.Sprintf("n%d.example.com", n)), Sent: now, Wait: 36 * time.Second, Detail: "too many"}, now)
		if park := l.held(order("other.example.com"), now); park.Until.Sub(now) != 36*time.Second {
			t.Fatalf("held: %+v", park)
		}
		now = now.Add(36 * time.Second)
	}
	if len(l.scopes) > 8 { // of the last minute
		t.Errorf("%d are remembered", len(l.scopes))
	}
}

// TestAPauseIsOfItsNames: an order that the CA has paused holds back the same names, as paused, and no others.
func TestAPauseIsOfItsNames(t *testing.T) {
	var m Machine
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, name := range []string{"a.example.com", "b.example.com", "c.example.com"} {
		m.OrderRefused(Refusal{Order: order(name), Sent: now, Wait: time.Minute, Detail: "paused", Paused: true}, now)
	}
	if park := m.Send(order("a.example.com"), now); !park.Paused || !park.Until.Equal(now.Add(time.Minute)) || !strings.Contains(park.Reason, "paused") {
		t.Errorf("the names that are paused: %+v", park)
	}
	if park := m.Send(order("d.example.com"), now); park != (Park{}) {
		t.Errorf("other names: %+v", park)
	}
}

// TestRefusedSetsAreDigests: who orders long lists of names again and again, which the CA refuses, takes little memory
// for each.
func TestRefusedSetsAreDigests(t *testing.T) {
	t.Parallel()
	var many []string
	for n := range 100 {
		many = append(many, fmt.Sprintf("%d.%s.example.com", n, strings.Repeat("a", 60)))
	}
	set := setOf(names(many...))
	if len(set) > 64 || set == setOf(names(many[1:]...)) || set != setOf(names(append(many[1:], many[0])...)) {
		t.Errorf("%d bytes: %q", len(set), set)
	}
}
