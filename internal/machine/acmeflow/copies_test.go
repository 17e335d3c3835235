package acmeflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

// ofManyNames is an Order that needs so many Challenges.
func ofManyNames(n int) OrderState {
	s := newOrderState().stored(acmev1.Pending, "pending").saw("pending")
	s.Order.Status.Authorizations = nil
	for i := range n {
		a := remoteAuthorization("pending")
		a.URL, a.Identifier = fmt.Sprint("ca/authz/", i), acme.DNS(fmt.Sprintf("n%d.example.com", i))
		s.Order.Status.Authorizations = append(s.Order.Status.Authorizations, storedAuthorization(a))
	}
	return s
}

// ofSize is a solver of so many bytes of JSON, for the names.
func ofSize(t *testing.T, size int, names ...string) acmev1.ACMEChallengeSolver {
	t.Helper()
	config := &apiextensionsv1.JSON{Raw: []byte(`""`)}
	s := acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{GroupName: "acme.example.com", SolverName: "x", Config: config}}}
	if len(names) > 0 {
		s.Selector = &acmev1.CertificateDNSNameSelector{DNSNames: names}
	}
	empty, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	config.Raw = []byte(`"` + strings.Repeat("x", size-len(empty)) + `"`)
	return s
}

// TestCopiesOfSolversAreBounded: a solver that is not too large by itself is, where an Order has many names.
func TestCopiesOfSolversAreBounded(t *testing.T) {
	const names = 128
	bounds.Holds(t, "solvers of an Order", func(n int) limits.Outcome {
		s := ofManyNames(names)
		each := n / names
		s.Issuer.Solvers = []acmev1.ACMEChallengeSolver{ofSize(t, each), ofSize(t, n-each*(names-1), "n7.example.com")}
		a := DecideOrder(s, start)
		if a.Step == OrderCreateChallenges {
			return limits.Taken
		}
		if a.Status == nil || a.Status.Cause == nil {
			t.Fatalf("%+v", a)
		}
		return bounds.Refusal(t, errors.New(a.Status.Reason), fmt.Sprintf("its solvers are too large for %d names", names))
	})
}

// TestChallengesAreMadeAFewAtATime: a pass of an Order of many names makes a few Challenges, and Orders of other
// namespaces have their turn before the next. The status says at once which solver each name has.
func TestChallengesAreMadeAFewAtATime(t *testing.T) {
	const names = 2*challengesAtOnce + 1
	s := ofManyNames(names)
	for made := 0; made < names; {
		a := DecideOrder(s, start)
		equal(t, a.Step, OrderCreateChallenges)
		if n := len(a.Challenges); n == 0 || n > challengesAtOnce {
			t.Fatalf("%d Challenges in a pass", n)
		}
		equal(t, a.Status != nil, made == 0)
		if a.Status != nil {
			s.Order.Status = *a.Status
		}
		s.Challenges = append(s.Challenges, a.Challenges...)
		made += len(a.Challenges)
	}
	equal(t, DecideOrder(s, start).Step, OrderWait)
}
