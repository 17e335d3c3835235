package ordering

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/flight"
)

// stepsPerPass bounds how many steps one pass takes: an Order or a Challenge waits for
// an event after fewer.
const stepsPerPass = 8

// Bounds of the calls that leave the cluster.
const (
	// acmeCalls and acmeTimeout bound the calls of one ACME account (spec §5.2).
	acmeCalls   = 16
	acmeTimeout = 90 * time.Second
	// solverCalls and solverTimeout bound the calls with one solver configuration, and
	// the self checks of one namespace and shard.
	solverCalls   = 16
	solverTimeout = 30 * time.Second
)

// crew makes calls for the objects of one controller and queues them again when
// the calls have come back.
type crew struct {
	controller.Doorbell

	// acme, solve and check have lanes by account, by solver configuration, and by
	// namespace.
	acme, solve, check *flight.Flights
}

// newCrew returns a crew whose calls are called off when ctx ends. It is there before its
// source starts: a controller that is stopped while it starts has workers without.
func newCrew(ctx context.Context) crew {
	solver := flight.Options{PerLane: solverCalls, Timeout: solverTimeout}
	return crew{
		acme:  flight.New(ctx, flight.Options{PerLane: acmeCalls, Timeout: acmeTimeout}),
		solve: flight.New(ctx, solver), check: flight.New(ctx, solver),
	}
}

// forget drops all calls for an object that is gone.
func (c *crew) forget(object types.UID) {
	for _, flights := range []*flight.Flights{c.acme, c.solve, c.check} {
		flights.Forget(object)
	}
}
