package app

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/signer/venafi"
)

// venafiAtOnce and venafiTimeout bound the calls to Certificate Manager, for each server
// and credential. A call is several exchanges of 30 seconds at most.
const (
	venafiAtOnce  = 8
	venafiTimeout = 2 * time.Minute
)

func (c *Config) venafi(ctx context.Context, deps *controller.Deps, rings bells) *venafi.Signer {
	return venafi.New(venafi.Config{
		Secrets: deps.Secrets, Flights: flight.New(ctx, flight.Options{PerLane: venafiAtOnce, Timeout: venafiTimeout}),
		NotifyRequest: rings.ring, UserAgent: c.UserAgent,
		Doubt: func(issuer types.UID) { deps.Engine.Doubt(issuer, controller.ProbeCall) },
		Now:   deps.Now, ClusterResourceNamespace: c.ClusterResourceNamespace, Egress: c.IssuerEgress.policy(),
	})
}
