// Package when compares times at which something is to be done. Earliest takes zero for never, Latest for now.
package when

import "time"

// Earliest returns the earlier of two times.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Latest returns the later of two times. Zero is now, and thus the earlier one.
func Latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
