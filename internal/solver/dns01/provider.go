package dns01

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/solver/dns01/wire"
)

// Record is one TXT record that answers a challenge. With CNAMEs to be followed, its FQDN is where they lead from the
// name that the CA looks up.
type Record = wire.Record

// Provider writes records into a zone. Both methods MUST be idempotent, and MUST
// leave other values of the same name alone: a wildcard and its apex, or two
// clusters, have theirs there at the same time.
type Provider interface {
	// Present adds the record.
	Present(ctx context.Context, r Record) error
	// CleanUp removes exactly that record, and succeeds when it is not there.
	CleanUp(ctx context.Context, r Record) error
}

// Use is a solver configuration and who may use what with it.
type Use struct {
	// Config names the provider.
	Config *acmev1.DNS01Solver
	// Namespace is where its Secrets are.
	Namespace string
	// ClusterIssuer tells whether it is an administrator's, not a tenant's.
	ClusterIssuer bool
	// UID is that of the Challenge.
	UID types.UID
}

// Factory makes the provider that a solver configuration names. It is called for
// every Present and CleanUp, so that changed Secrets take effect.
type Factory func(ctx context.Context, u Use) (Provider, error)
