// Package solver is the interface (port) between challenges and the ways to solve a challenge.
//
// A Solver makes the answer to an ACME challenge visible to the CA (RFC 8555 §8), checks whether the answer is visible,
// and removes the answer. The adapters are in packages below this one: http01, tlsalpn01, and dns01 for all challenges
// in DNS. internal/machine/challenge and internal/machine/schedule decide when to call a Solver, and
// internal/controller makes the calls.
package solver

import (
	"context"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
)

// CheckPeriod is the longest wait between two self checks (mission rule 5).
const CheckPeriod = 10 * time.Second

// ReasonNotConfigured is the reason of NotConfigured.
const ReasonNotConfigured = "SolverNotConfigured"

// NotConfigured is the fault of a challenge that has no solver of the kind that is needed.
func NotConfigured(t Task, kind string) error {
	return fault.Terminal(ReasonNotConfigured,
		"the challenge for %q carries no %s solver: correct the issuer's solvers", t.Challenge.Spec.DNSName, kind)
}

// Task is one challenge to solve.
type Task struct {
	// Challenge holds name, type, token, key and solver configuration. Solvers
	// MUST NOT change it.
	Challenge *acmev1.Challenge
	// ResourceNamespace is where the Secrets are that the solver configuration
	// names: the Issuer's namespace, or the cluster resource namespace.
	ResourceNamespace string
	// Missed says that the answer was presented, and self checks have not found it: somebody may have taken it away.
	Missed bool
	// Warn is called by Check with a warning for people, in words that are the same on every try; may be nil.
	Warn func(message string)
	// InZone is called by Present with the zone that holds the answer, before the provider is asked; may be nil.
	InZone func(zone string)
}

// Solver solves challenges of one type. Calls MAY block on DNS, HTTP or a provider until ctx ends: the engine makes
// them in bounded lanes, not on a worker. All three MUST be safe for concurrent use.
type Solver interface {
	// Present makes the answer visible. It MUST be idempotent, and MUST NOT
	// disturb answers to other challenges for the same name.
	Present(ctx context.Context, t Task) error
	// Check returns nil once the CA would find the answer. A fault.Pending or fault.After says which server was asked,
	// and what it answered. Check MUST NOT change anything.
	Check(ctx context.Context, t Task) error
	// CleanUp removes what Present made, and only that. It MUST be idempotent, and MUST succeed if there is nothing to
	// remove.
	CleanUp(ctx context.Context, t Task) error
}
