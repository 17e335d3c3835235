// Package dns01 solves DNS-01 challenges (RFC 8555 §8.4) and DNS-ACCOUNT-01 challenges. The two differ only in the
// record's name. The package finds the zone of the TXT record, lets a Provider write the record, and asks the zone's
// authoritative servers for the record. For DNS-PERSIST-01 challenges, the owner of the zone has written the record,
// and the package only asks the servers.
//
// The package writes no record itself: the providers are in the packages below. It neither schedules nor retries:
// internal/controller does.
package dns01

import (
	"context"

	"github.com/miekg/dns"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/solver"
)

// recordTTL is the TTL of records, in seconds (spec §5.9).
const recordTTL = 60

// ReasonNotPropagated: not every server answers the record yet.
const ReasonNotPropagated = "NotPropagated"

// Solver implements solver.Solver.
type Solver struct {
	resolver *Resolver
	provider Factory
}

// New makes a Solver of a Resolver and a way to make providers.
func New(r *Resolver, f Factory) *Solver { return &Solver{r, f} }

var _ solver.Solver = (*Solver)(nil)

// FQDN returns the name that the CA looks up for a challenge, with the trailing dot (RFC 8555 §8.4,
// draft-ietf-acme-dns-account-label-03). It depends on the challenge only: clean-up needs no account.
func FQDN(spec acmev1.ChallengeSpec) string {
	return dns.CanonicalName(acme.DNS01Name(spec.DNSName, spec.AccountLabel))
}

// Present adds the TXT record.
func (s *Solver) Present(ctx context.Context, t solver.Task) error {
	p, rec, err := s.prepare(ctx, t)
	if err != nil {
		return err
	}
	return p.Present(ctx, rec)
}

// CleanUp removes the TXT record that Present added.
func (s *Solver) CleanUp(ctx context.Context, t solver.Task) error {
	p, rec, err := s.prepare(ctx, t)
	if err != nil {
		return err
	}
	return p.CleanUp(ctx, rec)
}

// Check asks whether the record can be seen. Its fault.After says which server answered what. The delay is the longest
// wait; the caller may try sooner.
func (s *Solver) Check(ctx context.Context, t solver.Task) error {
	config, err := configOf(t)
	if err != nil {
		return err
	}
	spec := t.Challenge.Spec
	if err := s.resolver.forChallenge(t.Challenge, config.Nameservers).Propagated(ctx, FQDN(spec), spec.Key, config.Nameservers); err != nil {
		return fault.After(solver.CheckPeriod, ReasonNotPropagated, "%w", err)
	}
	return nil
}

// prepare finds the zone, calls InZone with it, and returns the provider and the record to write.
func (s *Solver) prepare(ctx context.Context, t solver.Task) (Provider, Record, error) {
	config, err := configOf(t)
	if err != nil {
		return nil, Record{}, err
	}
	spec := t.Challenge.Spec
	rec := Record{
		Domain: spec.DNSName, FQDN: FQDN(spec),
		Value: spec.Key, Token: spec.Token, TTL: recordTTL, Missed: t.Missed,
	}
	if thumbprint := t.Challenge.Annotations[acmeflow.AccountThumbprintAnnotation]; thumbprint != "" {
		rec.KeyAuthorization = spec.Token + "." + thumbprint
	}
	resolver := s.resolver.forChallenge(t.Challenge, config.Nameservers)
	if config.CNAMEStrategy == acmev1.CNAMEStrategyFollow {
		if rec.FQDN, err = resolver.Follow(ctx, rec.FQDN, config.Nameservers); err != nil {
			return nil, Record{}, err
		}
	}
	if rec.Zone, err = resolver.Zone(ctx, rec.FQDN, config.Nameservers); err != nil {
		return nil, Record{}, err
	}
	if t.InZone != nil {
		t.InZone(rec.Zone)
	}
	p, err := s.provider(ctx, Use{
		Config: config, Namespace: t.ResourceNamespace, UID: t.Challenge.UID, Tenant: t.Challenge.Namespace,
		ClusterIssuer: spec.IssuerRef.Kind == cmmeta.ClusterIssuerKind,
	})
	return p, rec, err
}

func configOf(t solver.Task) (*acmev1.DNS01Solver, error) {
	config := t.Challenge.Spec.Solver.DNS01
	if config == nil {
		return nil, solver.NotConfigured(t, "dns01")
	}
	return config, nil
}
