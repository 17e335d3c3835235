package acmeflow

import (
	"testing"
	"time"
)

// BenchmarkDecide is what one look at an object costs, in each situation of the tables.
func BenchmarkDecide(b *testing.B) {
	orders, challenges := orderSituations(), challengeSituations()
	now := start.Add(time.Second)
	b.Run("Order", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			DecideOrder(orders[i%len(orders)].state, now)
		}
	})
	b.Run("Challenge", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			DecideChallenge(challenges[i%len(challenges)].state, now)
		}
	})
}
