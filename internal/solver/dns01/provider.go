package dns01

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
)

// Record is one TXT record that answers a challenge.
type Record struct {
	// Domain is the name that the challenge is for, without a wildcard label.
	Domain string
	// FQDN is where the record stands, with the trailing dot: _acme-challenge below Domain,
	// with a label of the account for DNS-ACCOUNT-01, or where CNAMEs lead from there.
	FQDN string
	// Zone is the zone that FQDN is in, with the trailing dot.
	Zone string
	// Value is the text of the record (RFC 8555 §8.4).
	Value string
	// Token is the challenge's token, for providers that make the value themselves.
	Token string
	// KeyAuthorization is what Value is the digest of (RFC 8555 §8.1), for the same
	// providers; empty where the account's thumbprint is not known.
	KeyAuthorization string
	// TTL of the record.
	TTL time.Duration
}

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
