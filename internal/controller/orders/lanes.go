package orders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
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
func laneOf(account *accounts.Account) engine.Lane {
	return engine.Lane{Name: account.Lane(), Limit: acmeCalls, Timeout: acmeTimeout, Bytes: 3 * limits.OneCall}
}

// callBy returns a call that goes out with an ACME account. While the account is missing, the decisions ask for no call
// and wait for an event of the issuer: a call that is asked for all the same fails as if the CA were away.
func callBy(account *accounts.Account, c engine.Call) engine.Call {
	if account == nil {
		c.Run = func(context.Context) (any, error) { return nil, errors.New("the issuer has no ACME account at hand") }
		return c
	}
	c.Lane, c.Gate = laneOf(account), gateOf(account)
	return c
}

// takeOutcome takes in what the call of a step has come back with: the call may not have been sent, or have been lost
// on its way to an outcome.
func takeOutcome[T any](take func(call string) (engine.Outcome, bool), step fmt.Stringer, unsent func(), after func(o T, failure *fault.Fault)) {
	finished, ok := take(step.String())
	outcome, _ := finished.Value.(T)
	switch f := fault.Of(finished.Err); {
	case !ok:
	case errors.Is(finished.Err, engine.ErrDropped):
		unsent()
	case finished.Err != nil && f == nil:
		after(outcome, fault.Answered(fault.ClassUnavailable, "", 0, finished.Err))
	default:
		after(outcome, f)
	}
}

// gateOf drops a call whose turn comes while the account is parked: the object decides anew, and says until when the
// CA is left alone.
func gateOf(account *accounts.Account) func(time.Time) bool {
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
