package order_test

import (
	"errors"
	"fmt"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/machine/selection"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/flows"
	"chancery.dev/internal/rig/growth"
)

// manyNames is an Order for n names, with a Challenge for each in the given state.
func manyNames(n int, state acmev1.State) flows.OrderState {
	s := flows.NewOrderState().Saw("pending").Stored(acmev1.Pending, "pending")
	s.Order.Spec.DNSNames, s.Order.Status.Authorizations, s.Memory.Remote.Authorizations = nil, nil, nil
	solvers := selection.For(nil, s.Issuer.Solvers)
	for i := range n {
		a := flows.RemoteAuthorization("pending")
		a.URL, a.Identifier = fmt.Sprintf("ca/authz/%d", i), acme.DNS(fmt.Sprintf("host-%d.example.com", i))
		stored := order.StoredAuthorization(a)
		s.Order.Spec.DNSNames = append(s.Order.Spec.DNSNames, a.Identifier.Value)
		s.Order.Status.Authorizations = append(s.Order.Status.Authorizations, stored)
		s.Memory.Remote.Authorizations = append(s.Memory.Remote.Authorizations, a.URL)
		c, err := order.BuildChallenge(s.Order, stored, solvers, s.Account)
		if err != nil {
			panic(err)
		}
		c.Status.State = state
		s.Challenges = append(s.Challenges, c)
	}
	return s
}

// TestAuthorizationsAreBounded: an order has two authorizations for each of its names, and some more.
func TestAuthorizationsAreBounded(t *testing.T) {
	bounds.Holds(t, "further authorizations", func(n int) limits.Outcome {
		const names = 3
		s := manyNames(names, acmev1.Pending)
		s.Order.Status.Authorizations, s.Challenges = nil, nil
		s.Memory.Remote.Authorizations = make([]string, 2*names+n)
		a := s.Decide(start)
		if a.Status == nil || a.Status.State != acmev1.Errored {
			return limits.Taken
		}
		return bounds.Refusal(t, errors.New(a.Status.Reason), "The ACME server lists more than 16 authorizations for an order of 3 names")
	})
}

// TestOrdersGrow: what a look at an Order costs grows with its names.
func TestOrdersGrow(t *testing.T) {
	for name, change := range map[string]func(s *flows.OrderState, n int){
		"all Challenges are missing": func(s *flows.OrderState, _ int) { s.Challenges = nil },
		"all Challenges are open":    func(*flows.OrderState, int) {},
		"all Challenges are of a replaced key": func(s *flows.OrderState, _ int) {
			s.Account.Thumbprint = "another"
		},
		"no Challenge is vouched for": func(s *flows.OrderState, _ int) {
			for _, c := range s.Challenges {
				c.Status.State, c.Spec.Token = acmev1.Errored, "another"
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, limits.CertificateNames, func(n int) func() {
				s := manyNames(n, acmev1.Pending)
				change(&s, n)
				if a := s.Decide(start); a.Step == order.Done {
					t.Fatalf("%+v", a)
				}
				return func() { s.Decide(start) }
			})
		})
	}
}
