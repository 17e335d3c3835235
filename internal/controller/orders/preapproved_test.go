package orders_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/rig/faulty"
)

// trustful is a CA that asks for no proof: it knows the owner of the names by the account (RFC 8555 §7.3.4). Its orders
// are ready as soon as they are made. AWS Certificate Manager is such a CA.
type trustful struct {
	*swift

	// bare says that its orders list no authorizations; otherwise they list some that are valid.
	bare bool
	// takes is how long it takes to issue, and asks what it asks to wait meanwhile, in seconds; empty for none.
	takes time.Duration
	asks  string
	// until is when it issues, in nanoseconds since 1970.
	until atomic.Int64
}

func (c *trustful) plan(r faulty.Request) faulty.Fault {
	switch r.Step {
	case faulty.NewOrder:
		return c.answer(func(order map[string]any, _ http.Header) {
			listed, _ := order["authorizations"].([]any)
			for _, url := range listed {
				c.ca.SetAuthorization(url.(string), "valid")
			}
			order["status"] = "ready"
		})
	case faulty.Finalize:
		c.until.Store(c.clock.Now().Add(c.takes).UnixNano())
		return c.answer(c.processing)
	case faulty.Issuing:
		return c.answer(func(order map[string]any, header http.Header) {
			if c.clock.Now().UnixNano() < c.until.Load() {
				c.processing(order, header)
			}
		})
	case faulty.Order:
		return c.answer(func(map[string]any, http.Header) {})
	default:
		return nil
	}
}

func (c *trustful) processing(order map[string]any, header http.Header) {
	order["status"] = "processing"
	delete(order, "certificate")
	if header.Del("Retry-After"); c.asks != "" {
		header.Set("Retry-After", c.asks)
	}
}

// answer changes the order that Pebble answers with.
func (c *trustful) answer(change func(map[string]any, http.Header)) faulty.Fault {
	return edited(func(order map[string]any, header http.Header) {
		if change(order, header); c.bare {
			order["authorizations"] = []any{}
		}
	})
}

// TestOrdersWithoutChallenges: for a CA that asks for no proof, an issuer needs no solver, and there is no Challenge.
// While the CA takes its time to issue, the controller asks 40 times at most, and once for each answer that asks to
// wait.
func TestOrdersWithoutChallenges(t *testing.T) {
	t.Parallel()
	w := newSwift(t, nil)
	w.RunAs(t, w.cfg, w.connection())
	for name, c := range map[string]struct {
		ca   *trustful
		most int
	}{
		"at-once": {&trustful{}, 10}, // Pebble needs a moment
		"bare":    {&trustful{bare: true}, 10},
		"slow":    {&trustful{takes: 150 * time.Second}, 40},
		"asks":    {&trustful{takes: 150 * time.Second, asks: "30"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := c.ca
			ca.swift = w.withCA(t)
			i := ca.start(t, &issuance{name: name, plan: ca.plan, change: func(spec *acmev1.ACMEIssuer) {
				withoutARI(spec)
				spec.Solvers = nil
			}})
			i.settle(t)
			polls := 0
			for _, r := range i.proxy.Seen() {
				if r.Step == faulty.Issuing {
					polls++
				}
				if slices.Contains([]faulty.Step{faulty.Challenge, faulty.Validating, faulty.Deactivation}, r.Step) {
					t.Errorf("the CA was asked for %s", r.Step)
				}
			}
			t.Logf("%d polls", polls)
			if polls < 1 || polls > c.most {
				t.Errorf("%d polls for a certificate that takes %s, want %d at most", polls, ca.takes, c.most)
			}
		})
	}
}
