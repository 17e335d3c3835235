package account

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRetriesAreATenth: how many of a hundred certificates that the CA refuses for good are tried again in a day,
// beside so many orders that it takes; forced ones come soon after the failure.
func TestRetriesAreATenth(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		// before and today are how many orders the CA takes on the day before the retries, and before them on their day.
		before, today int
		// after is how long after the failures the retries come.
		after time.Duration
		want  int
	}{
		"no other orders":             {after: 24 * time.Hour, want: 1},
		"few other orders":            {before: 5, today: 4, after: 24 * time.Hour, want: 1},
		"a hundred on the day before": {before: 100, after: 24 * time.Hour, want: 10},
		"a hundred on both days":      {before: 100, today: 100, after: 24 * time.Hour, want: 20},
		"weekly":                      {before: 100, today: 20, after: 7 * 24 * time.Hour, want: 12},
		"forced":                      {after: time.Hour, want: 100},
		"long after":                  {after: 11 * 24 * time.Hour, want: 100},
	} {
		var m Machine
		failed := func(n int) Order {
			return Order{Namespace: "shop", Identifiers: names(fmt.Sprintf("n%d.example.com", n))}
		}
		for n := range 100 {
			m.RefusedForGood(failed(n), start)
		}
		day := start.Add(c.after)
		for range c.before {
			m.OrderTaken(order("healthy.example.com"), day.Add(-retriesWindow))
		}
		for range c.today {
			m.OrderTaken(order("healthy.example.com"), day)
		}
		sent := 0
		for n := range 100 {
			held := m.Send(failed(n), day.Add(time.Minute))
			if held == (Park{}) {
				sent++
			} else if !held.Until.After(day.Add(time.Minute)) || !strings.Contains(held.Reason, "at most a tenth") {
				t.Errorf("%s: %+v", name, held)
			}
		}
		if sent != c.want {
			t.Errorf("%s: %d of 100 were sent, want %d", name, sent, c.want)
		}
		if held := m.Send(Order{Namespace: "other", Identifiers: names("n99.example.com")}, day.Add(time.Minute)); held != (Park{}) {
			t.Errorf("%s: the same name of another namespace is held: %+v", name, held)
		}
	}
}
