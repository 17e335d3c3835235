package slow

import (
	"testing"
	"time"
)

// runs is how often a time is measured: a machine that is busy with something else makes some of them long, and hardly
// all.
const runs = 3

// Best fails a test of Numbers if the best of three runs takes longer than bound; it ends with the first that does not.
// No test of make test is decided by a time (internal/layout): it counts, or steps a clock.
func Best(t testing.TB, what string, bound time.Duration, run func() time.Duration) {
	t.Helper()
	best := run()
	for range runs - 1 {
		if best <= bound {
			break
		}
		best = min(best, run())
	}
	t.Logf("%s took %s, and may take %s", what, best, bound)
	if best > bound {
		t.Errorf("%s took %s in the best of %d runs, and may take %s", what, best, runs, bound)
	}
}
