// Package bounds tests whether the code keeps a bound of docs/limits.md: it tries an input of exactly the bound, and an
// input of one more. Each row of docs/limits.md names the tests of its bounds. Only tests import the package.
package bounds

import (
	"strings"
	"testing"

	"chancery.dev/internal/limits"
)

// Holds fails a test in which try does not say what the number of that name in limits.Table says: that as much as the
// bound is taken, and what becomes of one more. Try gets either in turn, in the unit of the number.
func Holds(t *testing.T, name string, try func(n int) limits.Outcome) {
	t.Helper()
	number, known := find(name)
	if !known {
		t.Fatalf("no row of internal/limits has a number %q", name)
	}
	if got := try(number.Max); got != limits.Taken {
		t.Errorf("%s: %d are %s, and the row says that they are taken", name, number.Max, got)
	}
	if got := try(number.Max + 1); got != number.Above {
		t.Errorf("%s: %d are %s, and the row says %s", name, number.Max+1, got, number.Above)
	}
}

func find(name string) (limits.Number, bool) {
	for _, section := range limits.Table() {
		for _, row := range section.Rows {
			for _, number := range row.Numbers {
				if number.Name == name {
					return number, true
				}
			}
		}
	}
	return limits.Number{}, false
}

// Refusal is what an error says of an attempt: none takes it, and one that contains says refuses it. Any other error
// fails the test.
func Refusal(t *testing.T, err error, says string) limits.Outcome {
	t.Helper()
	switch {
	case err == nil:
		return limits.Taken
	case !strings.Contains(err.Error(), says):
		t.Errorf("got %v, want %q", err, says)
	}
	return limits.Refused
}

// Without is what becomes of n things of which so many are left.
func Without(n, left int) limits.Outcome {
	if left < n {
		return limits.Cut
	}
	return limits.Taken
}
