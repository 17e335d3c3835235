// Package http01 solves HTTP-01 challenges (RFC 8555 §8.3) without a pod for each challenge. One Responder answers all
// challenges in an Index. The watches of internal/app fill the Index. The self check sends the same request as the CA.
//
// CAs reach the Responder directly, or through routes that package internal/solver/http01/route makes.
// internal/controller schedules the challenges.
package http01

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver"
)

// Router makes the route from the internet to a Responder that CAs do not reach directly. Present and CleanUp work as
// in solver.Solver.
type Router interface {
	Present(ctx context.Context, t solver.Task) error
	CleanUp(ctx context.Context, t solver.Task) error
	// Status says what is wrong with the route, as its controllers report it; empty if they report nothing.
	Status(ctx context.Context, t solver.Task) string
}

// Solver implements solver.Solver. The Responder answers a Challenge as soon as the scheduler has set it processing:
// Present makes only the route.
type Solver struct {
	o      CheckOptions
	dialer *Dialer
	routes Router
}

// New makes a Solver. Without routes (nil), CAs reach the Responder directly.
func New(o CheckOptions, routes Router) *Solver {
	o.Port, o.Timeout = cmp.Or(o.Port, 80), cmp.Or(o.Timeout, 10*time.Second)
	o.Passes, o.Pause = cmp.Or(o.Passes, 1), cmp.Or(o.Pause, 2*time.Second)
	return &Solver{o, NewDialer(o.Nameservers, o.Egress, o.Dial), routes}
}

var _ solver.Solver = (*Solver)(nil)

// Present makes the route, if one is needed.
func (s *Solver) Present(ctx context.Context, t solver.Task) error {
	switch {
	case t.Challenge.Spec.Solver.HTTP01 == nil:
		return solver.NotConfigured(t, "http01")
	case s.routes == nil:
		return nil
	default:
		return s.routes.Present(ctx, t)
	}
}

// Check asks for the answer as the CA will. Its fault.After says what the answer was and what is wrong with the route.
// Its delay is the longest wait; the caller may try sooner.
func (s *Solver) Check(ctx context.Context, t solver.Task) error {
	spec := t.Challenge.Spec
	if spec.Solver.HTTP01 == nil {
		return solver.NotConfigured(t, "http01")
	}
	err := s.check(ctx, spec.DNSName, spec.Token, spec.Key)
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

// Viewpoint ends the message of every self check that fails: the reason may be that the controller looks from inside.
const Viewpoint = "if others get the answer and only the cluster does not (hairpin NAT, split-horizon DNS), set waitInsteadOfSelfCheck or selfCheckDeadline on the solver"

// noProblem is the message if no problem is reported: then the Viewpoint is the most likely reason.
const noProblem = "the route is reported to work and the responder to be ready"

// CleanUp removes the route. The Responder does not answer a Challenge in a final state.
func (s *Solver) CleanUp(ctx context.Context, t solver.Task) error {
	if s.routes == nil || t.Challenge.Spec.Solver.HTTP01 == nil {
		return nil
	}
	return s.routes.CleanUp(ctx, t)
}
