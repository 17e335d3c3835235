package orders

import (
	"time"

	"chancery.dev/internal/acmeaccount"
	"chancery.dev/internal/engine"
)

// Bounds of the calls that leave the process.
const (
	// acmeCalls and acmeTimeout bound the calls of one ACME account (spec §5.2).
	acmeCalls   = 32
	acmeTimeout = 90 * time.Second
	// solverCalls and solverTimeout bound the calls with one solver configuration, and
	// the self checks of one namespace and shard.
	solverCalls   = 16
	solverTimeout = 30 * time.Second
)

// laneOf is the lane of the calls for an ACME account.
func laneOf(account *acmeaccount.Account) engine.Lane {
	return engine.Lane{Name: account.Lane(), Limit: acmeCalls, Timeout: acmeTimeout}
}

// gateOf drops a call whose turn comes while the account is parked: the object decides anew, and says until when the
// CA is left alone.
func gateOf(account *acmeaccount.Account) func(time.Time) bool {
	return func(now time.Time) bool {
		until, _ := account.Parked()
		return !now.Before(until)
	}
}

// waitFor says what an object waits for that rests until then.
func waitFor(wake time.Time, reason string) engine.For {
	if wake.IsZero() {
		return engine.For{What: engine.WaitEvent, Detail: reason}
	}
	return engine.For{What: engine.WaitTime, Detail: reason}
}
