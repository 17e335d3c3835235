// Package when compares times of planned work. For Earliest, the zero time means never. For Latest, the zero time means
// now. The package reads no clock.
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
