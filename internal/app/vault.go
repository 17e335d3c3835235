package app

import (
	"context"
	"os"
	"time"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/signer/vault"
)

// vaultAtOnce and vaultTimeout bound the calls to Vault, for each server and credential.
const (
	vaultAtOnce  = 8
	vaultTimeout = 30 * time.Second
)

// AmbientConfig says which issuers may use the credentials that the controller finds in
// its own surroundings: those of its machine, or of its service account at a cloud.
type AmbientConfig struct {
	Issuers, ClusterIssuers bool
}

func (c *Config) vault(ctx context.Context, deps *controller.Deps, rings bells) *vault.Signer {
	return vault.New(vault.Config{
		Secrets: deps.Secrets, Tokens: vault.NewTokenSource(deps.Manager.GetClient()),
		Flights:       flight.New(ctx, flight.Options{PerLane: vaultAtOnce, Timeout: vaultTimeout}),
		NotifyRequest: rings.ring,
		Now:           deps.Now, ClusterResourceNamespace: c.ClusterResourceNamespace, Egress: c.IssuerEgress.policy(),
		AWS: vault.AWSConfig{IssuerAmbient: c.Ambient.Issuers, ClusterIssuerAmbient: c.Ambient.ClusterIssuers, Getenv: os.Getenv},
	})
}
