package dns01

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/solver/dns01/wire"
)

// Record is one TXT record that answers a challenge. If CNAMEs are followed, the record's FQDN is the name to which
// they lead from the name that the CA looks up.
type Record = wire.Record

// Provider writes records into a zone. Both methods MUST be idempotent, and MUST leave other values of the same name
// alone: a wildcard and its apex, or two clusters, have values there at the same time.
type Provider interface {
	// Present adds the record.
	Present(ctx context.Context, r Record) error
	// CleanUp removes exactly that record, and succeeds when it is not there.
	CleanUp(ctx context.Context, r Record) error
}

// MendPeriod is the wait before the next try of a call that fails until somebody corrects something.
const MendPeriod = 30 * time.Second

// The reasons of faults that several providers have.
const (
	// ReasonInvalidConfig: the configuration cannot work as it is.
	ReasonInvalidConfig = "InvalidConfiguration"
	// ReasonUnreachable: the provider does not answer.
	ReasonUnreachable = "ProviderUnreachable"
	// ReasonSecret: a Secret cannot be read or used.
	ReasonSecret = "SecretUnusable"
	// ReasonRefused: the server or program does not make the change.
	ReasonRefused = "UpdateRefused"
)

// Use is a solver configuration, and the Challenge and tenant that it is used for.
type Use struct {
	// Config names the provider.
	Config *acmev1.DNS01Solver
	// Namespace is where its Secrets are.
	Namespace string
	// ClusterIssuer says that the configuration is an administrator's, not a tenant's.
	ClusterIssuer bool
	// Ambient allows credentials of the controller's machine. The Factory sets it.
	Ambient bool
	// UID is that of the Challenge, and Tenant its namespace.
	UID    types.UID
	Tenant string
}

// Factory makes the provider that a solver configuration names. It is called for
// every Present and CleanUp, so that changed Secrets take effect.
type Factory func(ctx context.Context, u Use) (Provider, error)
