package account

import (
	"fmt"
	"testing"
	"time"

	"chancery.dev/internal/acme"
	bounds "chancery.dev/internal/limits"
	"chancery.dev/internal/rig/growth"
)

// TestOrdersOfAnAccountGrow: what an account knows of an order costs as much as the order has names, and of refused
// ones as much as there are.
func TestOrdersOfAnAccountGrow(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	of := func(first, n int) (ids []acme.Identifier) {
		for i := range n {
			ids = append(ids, acme.Identifier{Type: "dns", Value: fmt.Sprintf("h-%d.z-%d.example.com", first+i, first+i)})
		}
		return ids
	}
	growth.Linear(t, bounds.CertificateNames, func(n int) func() {
		all := Order{Namespace: "shop", Identifiers: of(0, n)}
		return func() {
			m := &Machine{}
			m.OrderRefused(Refusal{Order: all, Wait: time.Hour, Detail: "too many"}, start)
			m.Send(all, start)
			m.OrderTaken(all, start)
		}
	})
	growth.Linear(t, bounds.CertificateNames, func(n int) func() {
		var orders []Order
		for i := range n {
			orders = append(orders, Order{Namespace: fmt.Sprint("n-", i), Identifiers: of(i, 1)})
		}
		return func() {
			m := &Machine{}
			for _, o := range orders {
				m.RefusedForGood(o, start)
				m.OrderRefused(Refusal{Order: o, Wait: time.Hour, Detail: "too many"}, start)
			}
			for _, o := range orders {
				m.Send(o, start)
				m.OrderTaken(o, start)
			}
		}
	})
}
