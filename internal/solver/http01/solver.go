// Package http01 solves HTTP-01 challenges (RFC 8555 §8.3) without a pod for each:
// one Responder answers all that an Index, fed by watches, knows to be in flight,
// and a self check looks at the answer as the CA would.
//
// The Responder listens itself or stands behind a route; this package makes no
// routes yet. It neither watches nor schedules: see internal/controller.
package http01

import (
	"context"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver"
)

// Solver implements solver.Solver for a Responder that CAs reach directly. To
// present is to set the Challenge processing, which the scheduler did before.
type Solver struct {
	checker *checker
}

// New makes a Solver.
func New(o CheckOptions) *Solver { return &Solver{newChecker(o)} }

var _ solver.Solver = (*Solver)(nil)

// Present has nothing to make: the Responder answers from its watch.
func (s *Solver) Present(_ context.Context, t solver.Task) error { return configured(t) }

// Check asks for the answer as the CA will, once. Its fault.After says what came
// back; the delay is the longest to wait, and trying sooner is fine.
func (s *Solver) Check(ctx context.Context, t solver.Task) error {
	if err := configured(t); err != nil {
		return err
	}
	spec := t.Challenge.Spec
	return s.checker.check(ctx, spec.DNSName, spec.Token, spec.Key)
}

// CleanUp has nothing to take away: a Challenge in a final state is not answered.
func (s *Solver) CleanUp(context.Context, solver.Task) error { return nil }

func configured(t solver.Task) error {
	if t.Challenge.Spec.Solver.HTTP01 == nil {
		return fault.Terminal(ReasonNotConfigured,
			"the challenge for %q carries no http01 solver: correct the issuer's solvers", t.Challenge.Spec.DNSName)
	}
	return nil
}
