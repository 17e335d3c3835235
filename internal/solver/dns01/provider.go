package dns01

import (
	"context"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
)

// Record is one TXT record that answers a challenge.
type Record struct {
	// Domain is the name that the challenge is for, without a wildcard label.
	Domain string
	// FQDN is where the record stands, with the trailing dot: _acme-challenge
	// below Domain, or where CNAMEs lead from there.
	FQDN string
	// Zone is the zone that FQDN is in, with the trailing dot.
	Zone string
	// Value is the text of the record (RFC 8555 §8.4).
	Value string
	// Token is the challenge's token, for providers that make the value themselves.
	Token string
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

// Factory makes the provider that a solver configuration names. namespace is
// where its Secrets are. It is called for every Present and CleanUp, so that
// changed Secrets take effect.
type Factory func(ctx context.Context, config *acmev1.DNS01Solver, namespace string) (Provider, error)
