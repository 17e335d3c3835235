package renewal

import (
	"time"

	"chancery.dev/internal/fault"
)

// Backoff bounds how long a Certificate waits after a failed issuance. A Min of
// zero or less means not at all.
type Backoff struct {
	Min, Max time.Duration
	// ByClass has failures whose class is known waited out as suits the class, not by
	// Min and Max: for whoever has set neither.
	ByClass bool
}

// After returns how long to wait after that many failures in a row: Min, doubled
// by each further one, at most Max (spec §2.1, 4).
func (b Backoff) After(attempts int) time.Duration {
	if b.Min <= 0 {
		return 0
	}
	wait := b.Min
	for range attempts - 1 {
		if wait >= b.Max/2 {
			return b.Max
		}
		wait *= 2
	}
	return min(wait, b.Max)
}

// AfterClass returns how long to wait after that many failures in a row, of which the last is of that class; false if
// the class says nothing. The waits for a CA that did not find what it looked for are those of Let's Encrypt's
// integration guide.
func (b Backoff) AfterClass(class fault.Class, attempts int) (time.Duration, bool) {
	if !b.ByClass {
		return 0, false
	}
	switch class {
	case fault.ClassPolicy:
		return Backoff{Min: time.Hour, Max: 24 * time.Hour}.After(attempts), true
	case fault.ClassValidation:
		steps := []time.Duration{time.Minute, 10 * time.Minute, 100 * time.Minute, 24 * time.Hour}
		return steps[min(max(attempts, 1), len(steps))-1], true
	case fault.ClassRateLimited, fault.ClassPaused:
		return Backoff{Min: 30 * time.Minute, Max: 12 * time.Hour}.After(attempts), true
	case fault.ClassUnavailable, fault.ClassRefused, fault.ClassConfiguration:
		return Backoff{Min: time.Minute, Max: time.Hour}.After(attempts), true
	default:
		return 0, false
	}
}
