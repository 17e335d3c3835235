package dns01

import (
	"context"
	"fmt"
	"sync"
	"time"

	"chancery.dev/internal/acme/dnspersist"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver"
)

// defaultWarnBefore is how long before a record's end to warn: an issuance has to come in
// between, and certificates of 90 days are renewed every 60.
const defaultWarnBefore = 90 * 24 * time.Hour

// Persistent implements solver.Solver for DNS-PERSIST-01 challenges
// (draft-ietf-acme-dns-persist-01). It only reads: the record is its owner's.
type Persistent struct {
	resolver *Resolver
}

// NewPersistent makes a Persistent of a Resolver.
func NewPersistent(r *Resolver) *Persistent { return &Persistent{r} }

var _ solver.Solver = (*Persistent)(nil)

// Present does nothing: the owner of the zone has put the record there, or will.
func (*Persistent) Present(context.Context, solver.Task) error { return nil }

// CleanUp does nothing: the record stays for the next time.
func (*Persistent) CleanUp(context.Context, solver.Task) error { return nil }

// Check returns nil if the record is there, is valid, and is of the account. Its fault.After says which record to
// create where, and which server answered what instead. Check warns of a record that ends soon.
func (p *Persistent) Check(ctx context.Context, t solver.Task) error {
	spec := t.Challenge.Spec
	config := spec.Solver.DNSPersist01
	if config == nil {
		return solver.NotConfigured(t, "dnsPersist01")
	}
	record, err := dnspersist.Parse(spec.Key)
	if err != nil {
		return fault.Terminal(solver.ReasonNotConfigured, "the challenge for %q has the key %q, which is no record: %w", spec.DNSName, spec.Key, err)
	}
	name, now := dnspersist.Name(spec.DNSName), p.resolver.o.Now()
	var mu sync.Mutex
	var ends time.Time // the first end that a server has told of
	err = p.resolver.forChallenge(t.Challenge, config.Nameservers).propagated(ctx, name, func(values []string) string {
		until, problem := record.Find(values, now)
		mu.Lock()
		defer mu.Unlock()
		if ends.IsZero() || !until.IsZero() && until.Before(ends) {
			ends = until
		}
		return problem
	}, config.Nameservers)
	if err != nil {
		return fault.After(solver.CheckPeriod, ReasonNotPropagated, "a record of the name %s, the type TXT and the value %q is needed: %w", name, spec.Key, err)
	}
	warnBefore := defaultWarnBefore
	if config.WarnBefore != nil {
		warnBefore = config.WarnBefore.Duration
	}
	if !ends.IsZero() && ends.Sub(now) < warnBefore && t.Warn != nil {
		t.Warn(fmt.Sprintf("the TXT record %s holds until %s only: put a later persistUntil there, or none", name, ends.Format(time.RFC3339)))
	}
	return nil
}
