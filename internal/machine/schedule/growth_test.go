package schedule

import (
	"testing"

	"chancery.dev/internal/rig/growth"
)

// TestScheduleGrows: a challenge that ends, and the pass that starts the next, cost as much as challenges are queued.
func TestScheduleGrows(t *testing.T) {
	for _, issuerCap := range []int{0, 10} {
		growth.Linear(t, 10_000, func(n int) func() {
			l := newLoad(n, Options{Cap: DefaultCap, IssuerCap: issuerCap})
			return func() {
				l.pass()
				l.end()
			}
		})
	}
}
