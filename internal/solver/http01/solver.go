// Package http01 solves HTTP-01 challenges (RFC 8555 §8.3) without a pod for each:
// one Responder answers all that an Index, fed by watches, knows to be in flight,
// and a self check looks at the answer as the CA would.
//
// The Responder listens itself or stands behind routes, which the package route below
// this one makes. Nothing here watches or schedules: see internal/controller.
package http01

import (
	"context"
	"fmt"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver"
)

// Router makes the way from the internet to a Responder that CAs do not reach by
// themselves. Present and CleanUp are as in solver.Solver.
type Router interface {
	Present(ctx context.Context, t solver.Task) error
	CleanUp(ctx context.Context, t solver.Task) error
	// Status returns what those who serve the route say that is wrong with it; empty if
	// they say nothing.
	Status(ctx context.Context, t solver.Task) string
}

// Solver implements solver.Solver. The Responder answers a Challenge as soon as the
// scheduler has set it processing; what is left to present is the route.
type Solver struct {
	checker *checker
	routes  Router
}

// New makes a Solver. Without routes (nil), CAs reach the Responder directly.
func New(o CheckOptions, routes Router) *Solver { return &Solver{newChecker(o), routes} }

var _ solver.Solver = (*Solver)(nil)

// Present makes the route, if one is needed.
func (s *Solver) Present(ctx context.Context, t solver.Task) error {
	if err := configured(t); err != nil || s.routes == nil {
		return err
	}
	return s.routes.Present(ctx, t)
}

// Check asks for the answer as the CA will, once. Its fault.After says what came
// back and what is wrong with the route; the delay is the longest to wait, and trying
// sooner is fine.
func (s *Solver) Check(ctx context.Context, t solver.Task) error {
	if err := configured(t); err != nil {
		return err
	}
	spec := t.Challenge.Spec
	err := s.checker.check(ctx, spec.DNSName, spec.Token, spec.Key)
	f := fault.Of(err)
	if f == nil || f.Kind != fault.KindAfter {
		return err
	}
	said := Viewpoint
	if s.routes != nil {
		status := s.routes.Status(ctx, t)
		if status == "" {
			status = noProblem
		}
		said = status + "; " + Viewpoint
	}
	explained := *f
	explained.Err = fmt.Errorf("%w; %s", f.Err, said)
	return &explained
}

// Viewpoint is said of every self check that fails: many controllers report no address, and all is well.
const Viewpoint = "if others get the answer and only the cluster does not (hairpin NAT, split-horizon DNS), set waitInsteadOfSelfCheck or selfCheckDeadline on the solver"

// noProblem is said where the route and the Responder are reported to be well: then it is
// the Viewpoint, most likely.
const noProblem = "the route is reported to work and the responder to be ready"

// CleanUp takes the route away. A Challenge in a final state is not answered anyway.
func (s *Solver) CleanUp(ctx context.Context, t solver.Task) error {
	if s.routes == nil || t.Challenge.Spec.Solver.HTTP01 == nil {
		return nil
	}
	return s.routes.CleanUp(ctx, t)
}

func configured(t solver.Task) error {
	if t.Challenge.Spec.Solver.HTTP01 == nil {
		return fault.Terminal(ReasonNotConfigured,
			"the challenge for %q carries no http01 solver: correct the issuer's solvers", t.Challenge.Spec.DNSName)
	}
	return nil
}
