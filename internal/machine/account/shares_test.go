package account

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestShares: which orders of a namespace are sent, and until when others wait. A line is a minute, and an order of a
// namespace: a new one, or with an ! one for a certificate that has been issued before; one with a - is not taken by
// the CA.
func TestShares(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		share string
		sent  []string
		// want are, for each order, the minute until which it waits; 0 is an order that is sent.
		want string
	}{
		"no limit":                             {"", []string{"0 a", "0 a", "0 a"}, "0 0 0"},
		"a share is used up":                   {"2/3h", []string{"0 a", "10 a", "10 a", "179 a"}, "0 0 180 180"},
		"the next window":                      {"2/3h", []string{"0 a", "10 a", "180 a", "180 a", "180 a"}, "0 0 0 0 360"},
		"a window begins with an order":        {"1/1h", []string{"90 a", "149 a", "150 a"}, "0 150 0"},
		"each namespace has a share":           {"1/1h", []string{"0 a", "0 a", "0 b", "0 b"}, "0 60 0 60"},
		"what is not taken does not count":     {"1/1h", []string{"0 -a", "0 -a", "0 a", "1 a"}, "0 0 0 60"},
		"renewals are not starved by new ones": {"1/1h", []string{"0 a", "0 a", "0 !a", "1 !a", "1 a"}, "0 60 0 60 60"},
	} {
		m := Machine{}
		share, err := ParseShare(c.share)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, line := range c.sent {
			var minute int
			var who string
			if _, err := fmt.Sscan(line, &minute, &who); err != nil {
				t.Fatal(err)
			}
			now := start.Add(time.Duration(minute) * time.Minute)
			who, fails := strings.CutPrefix(who, "-")
			who, renews := strings.CutPrefix(who, "!")
			o := Order{Identifiers: names("example.com"), Namespace: who, Share: share, Replaces: renews}
			held := m.Send(o, now)
			wait := 0
			if !held.Until.IsZero() {
				wait = int(held.Until.Sub(start).Minutes())
			}
			got = append(got, fmt.Sprint(wait))
			if fails {
				m.OrderFailed(o, now)
			}
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestShareIsSaid: an Order that waits for the share of its namespace says so, and until when.
func TestShareIsSaid(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		renews bool
		want   string
	}{
		{false, `not sent, because namespace "shop" has used up its share of the issuer's orders for new certificates, which is 1 in 3h, until 2026-01-01T03:00:00Z`},
		{true, `not sent, because namespace "shop" has used up its share of the issuer's orders for renewals, which is 1 in 3h, until 2026-01-01T03:00:00Z`},
	} {
		m, o := Machine{}, Order{Namespace: "shop", Share: Share{1, 3 * time.Hour}, Replaces: c.renews}
		if held := m.Send(o, now); held != (Park{}) {
			t.Errorf("the first order is held: %+v", held)
		}
		if held := m.Send(o, now.Add(time.Hour)); held.Reason != c.want {
			t.Errorf("%q, want %q", held.Reason, c.want)
		}
	}
}

// TestSharesAreForgotten: nothing is kept of windows that are over.
func TestSharesAreForgotten(t *testing.T) {
	t.Parallel()
	m, now := Machine{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range 1000 {
		m.Send(Order{Namespace: fmt.Sprint(n), Share: Share{1, time.Hour}}, now)
		now = now.Add(time.Minute)
	}
	if n := len(m.shares); n > 60 {
		t.Errorf("%d windows are kept", n)
	}
}

func TestParseShare(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Share{"": {}, "50/3h": {50, 3 * time.Hour}, "1/1m": {1, time.Minute}, "300/168h": {300, 168 * time.Hour}} {
		if got, err := ParseShare(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"50", "50/", "/3h", "0/3h", "-1/3h", "50/3", "50/1s", "50/-3h", "many/3h", "50/3h/3h"} {
		if got, err := ParseShare(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
