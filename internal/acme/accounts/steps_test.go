package accounts_test

import (
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
)

// order1 executes a step of an Order, and challenge1 one of a Challenge.
func order1(t *testing.T, a *accounts.Account, action order.Action) order.Outcome {
	t.Helper()
	out, err := a.Order(t.Context(), action)
	if out.Failure = fault.Of(err); err != nil && out.Failure == nil {
		t.Fatalf("no fault: %v", err)
	}
	return out
}

func challenge1(t *testing.T, a *accounts.Account, step challenge.Step, spec acmev1.ChallengeSpec) challenge.Outcome {
	t.Helper()
	out, err := a.Challenge(t.Context(), step, spec)
	if out.Failure = fault.Of(err); err != nil && out.Failure == nil {
		t.Fatalf("no fault: %v", err)
	}
	return out
}
