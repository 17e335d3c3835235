package accounts

import (
	"strconv"
	"testing"
	"time"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/account"
	"chancery.dev/internal/rig/bounds"
)

// TestParksAreBounded: of more than the bound, those that end first are forgotten.
func TestParksAreBounded(t *testing.T) {
	bounds.Holds(t, "parks", func(n int) limits.Outcome {
		now, all := time.Unix(1_000_000, 0), parks{}
		for i := range n {
			m := account.Machine{}
			m.ExtendPark(time.Second+time.Duration(i)*time.Millisecond, now, "later", now)
			all.put(strconv.Itoa(i), m, now)
		}
		last := all.take(strconv.Itoa(n - 1))
		if until := last.Parked(now).Until; !until.After(now) {
			t.Errorf("%d: the last one ends at %v", n, until)
		}
		return bounds.Without(n, len(all)+1)
	})
}
