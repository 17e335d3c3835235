package renewal

import (
	"time"

	"chancery.dev/internal/fault"
)

// Backoff bounds how long a Certificate waits after a failed issuance. A Min of
// zero or less means not at all.
type Backoff struct {
	Min, Max time.Duration
	// ByClass waits after a failure of a known class as suits the class, not by Min and Max: for users who have set
	// neither.
	ByClass bool
}

// After returns how long to wait after that many failures in a row: Min, doubled
// by each further one, at most Max (spec §2.1, 4).
func (b Backoff) After(attempts int) time.Duration {
	if b.Min <= 0 {
		return 0
	}
	return fault.Patience{First: b.Min, Factor: 2, Most: b.Max}.Step(attempts)
}

// AfterClass returns how long to wait after that many failures in a row, of which the last is of that class; false if
// the class says nothing.
func (b Backoff) AfterClass(class fault.Class, attempts int) (time.Duration, bool) {
	p, says := fault.Renewals.Patience(class)
	return p.Step(attempts), says && b.ByClass
}
