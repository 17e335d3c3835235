package growth

import "testing"

// TestSquaresAreFound: a square is told apart from work that is linear.
func TestSquaresAreFound(t *testing.T) {
	NotUnderRace(t)
	sum := 0
	linear := func(n int) func() {
		return func() {
			of := 0 // in a register: how fast a processor adds to memory differs from moment to moment, by a factor of two
			for i := range n {
				of += i
			}
			sum += of
		}
	}
	square := func(n int) func() { return linear(n * n) }
	copies := func(n int) func() {
		return func() {
			var list [][]byte
			for i := range n {
				list = append(list, make([]byte, 1+i)) //nolint:makezero // what is measured
			}
			sum += len(list)
		}
	}
	const size = 2000
	for name, tc := range map[string]struct {
		prepare func(int) func()
		wrong   bool
	}{"linear": {linear, false}, "square": {square, true}, "copies": {copies, true}} {
		eighth, whole := Measure(tc.prepare(size/part)), Measure(tc.prepare(size))
		// What else the machine does may make one of the two twice as slow, for a second: both come closer to what they
		// cost, the more often they are measured.
		for n := 0; n < tries || n < 20*tries && (compare(eighth, whole) != "") != tc.wrong; n++ {
			eighth, whole = eighth.best(Measure(tc.prepare(size/part))), whole.best(Measure(tc.prepare(size)))
		}
		if problem := compare(eighth, whole); (problem != "") != tc.wrong {
			t.Errorf("%s: %q: %s and %s", name, problem, eighth, whole)
		}
	}
}
