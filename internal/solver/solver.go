// Package solver is the port between challenges and the ways to solve them.
//
// A Solver makes the answer to an ACME challenge visible to the CA (RFC 8555
// §8), tells whether it can be seen, and takes it away. Adapters live in the
// packages below this one, one for each challenge type. Scheduling, retries and
// the conversation with the CA belong to internal/acmeflow and
// internal/controller, not here.
package solver

import (
	"context"

	acmev1 "chancery.dev/api/acme/v1"
)

// ReasonNoZone is that of a fault with which Present or CleanUp says that DNS has been asked,
// and knows no zone that the name could be in: nothing can be, nor can have been, presented
// there. A server that does not answer says nothing of the kind.
const ReasonNoZone = "NoZone"

// Task is one challenge to solve.
type Task struct {
	// Challenge holds name, type, token, key and solver configuration. Solvers
	// MUST NOT change it.
	Challenge *acmev1.Challenge
	// ResourceNamespace is where the Secrets are that the solver configuration
	// names: the Issuer's namespace, or the cluster resource namespace.
	ResourceNamespace string
	// Warn is told by Check of trouble to come, in words for people that are the same on every
	// try; nil if nobody wants to know.
	Warn func(message string)
	// InZone is told by Present of the zone that holds the answer, if there is such a thing; nil if
	// nobody wants to know.
	InZone func(zone string)
}

// Solver solves challenges of one type. Calls MAY block on DNS, HTTP or a
// provider until ctx ends: they are made by calls of the engine, never on a
// reconcile worker. All three MUST be safe for concurrent use.
type Solver interface {
	// Present makes the answer visible. It MUST be idempotent, and MUST NOT
	// disturb answers to other challenges for the same name.
	Present(ctx context.Context, t Task) error
	// Check returns nil once the CA would find the answer. A fault.Pending or
	// fault.After says what was asked of whom and what came back instead; Check
	// MUST NOT change anything.
	Check(ctx context.Context, t Task) error
	// CleanUp takes away what Present made, and only that. It MUST be idempotent
	// and MUST succeed when there is nothing left to take away.
	CleanUp(ctx context.Context, t Task) error
}
