package acmeaccount

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/acmeflow"
)

func names(values ...string) (ids []acmeflow.Identifier) {
	for _, v := range values {
		typ := "dns"
		if strings.Trim(v, "0123456789.") == "" {
			typ = "ip"
		}
		ids = append(ids, acmeflow.Identifier{Type: typ, Value: v})
	}
	return ids
}

// TestLimits: which names wait for which refusals, and the account.
func TestLimits(t *testing.T) {
	t.Parallel()
	const wait = 24 * time.Hour
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		// refused are the sets of names that the CA has refused for a day, one after the other; taken are
		// those that it has taken since.
		refused, taken []string
		// parks of the account, after each.
		parks string
		// now are sets that wait, but not after a day; hour those that wait after an hour, too; free do not wait.
		now, hour, free []string
	}{
		"a set of names": {
			refused: []string{"b.example.com a.example.com"}, parks: "1m0s",
			now: []string{"a.example.com b.example.com", "A.example.com B.example.com"}, hour: []string{"a.example.com b.example.com"},
			free: []string{"a.example.com", "c.example.com", "example.com"},
		},
		"the same set again": {
			refused: []string{"a.example.com", "a.example.com", "a.example.com", "a.example.com"}, parks: "1m0s 1m0s 1m0s 1m0s",
			free: []string{"b.example.com"}, now: []string{"a.example.com"}, hour: []string{"a.example.com"},
		},
		"two are no proof": {
			refused: []string{"a.example.com", "b.example.com"}, parks: "1m0s 1m0s",
			now: []string{"a.example.com"}, hour: []string{"b.example.com"}, free: []string{"c.example.com", "a.example.com b.example.com"},
		},
		"a domain": {
			refused: []string{"a.example.com", "b.example.com", "*.c.example.com"}, parks: "1m0s 1m0s 1m0s",
			now: []string{"d.example.com", "example.com", "*.example.com", "other.example.net x.d.example.com"}, hour: []string{"a.example.com"},
			free: []string{"example.net", "notexample.com"},
		},
		"a domain below": {
			refused: []string{"a.x.example.com", "b.x.example.com", "c.x.example.com"}, parks: "1m0s 1m0s 1m0s",
			now: []string{"d.x.example.com", "x.example.com"}, free: []string{"example.com", "y.example.com"},
		},
		"a domain that others are taken of": {
			refused: []string{"a.example.com", "b.example.com", "c.example.com"}, taken: []string{"d.example.com"}, parks: "1m0s 1m0s 1m0s",
			now: []string{"a.example.com"}, hour: []string{"a.example.com"}, free: []string{"e.example.com", "d.example.com"},
		},
		"the account": {
			refused: []string{"a.example.com", "a.example.net", "a.example.org", "192.0.2.1"}, parks: "1m0s 10m0s 1h0m0s 1h0m0s",
			now: []string{"a.example.net", "192.0.2.1"}, hour: []string{"192.0.2.1"}, free: []string{"b.example.com", "192.0.2.2"},
		},
		"of several domains": {
			refused: []string{"a.example.com a.example.net a.example.org"}, parks: "1m0s",
			now: []string{"a.example.com a.example.net a.example.org"}, free: []string{"a.example.com"},
		},
	} {
		l := &limits{}
		var parks []string
		for _, set := range c.refused {
			parks = append(parks, l.refused(names(strings.Fields(set)...), wait, "too many", start).String())
		}
		for _, set := range c.taken {
			l.taken(names(strings.Fields(set)...))
		}
		if got := strings.Join(parks, " "); got != c.parks {
			t.Errorf("%s: the account is parked for %s, not %s", name, got, c.parks)
		}
		held := func(set string, at time.Time) bool {
			until, why := l.held(names(strings.Fields(set)...), at)
			if until.IsZero() != (why == "") || why != "" && !strings.HasSuffix(why, ": too many") {
				t.Errorf("%s: %s until %s: %q", name, set, until, why)
			}
			return !until.IsZero()
		}
		for i, sets := range [][]string{c.now, c.hour} {
			at := start.Add(time.Duration(i) * maxPark)
			for _, set := range sets {
				if !held(set, at) {
					t.Errorf("%s: %s may be ordered at %s", name, set, at)
				}
			}
		}
		for _, set := range slices.Concat(c.now, c.free) {
			at := start
			if !slices.Contains(c.free, set) {
				at = start.Add(wait)
			}
			if held(set, at) {
				t.Errorf("%s: %s waits at %s", name, set, at)
			}
		}
	}
}

// What is over is forgotten, and does not count: limits of seconds never add up.
func TestLimitsAreForgotten(t *testing.T) {
	t.Parallel()
	l, now := &limits{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range 100 {
		if park := l.refused(names(fmt.Sprintf("n%d.example.com", n)), 36*time.Second, "too many", now); park != 36*time.Second {
			t.Fatalf("parked for %s", park)
		}
		if until, why := l.held(names("other.example.com"), now); !until.IsZero() {
			t.Fatalf("held until %s: %s", until, why)
		}
		now = now.Add(36 * time.Second)
	}
	if len(l.scopes) > 4 {
		t.Errorf("%d are remembered", len(l.scopes))
	}
}
