package order_test

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
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/flows"
	"chancery.dev/internal/rig/growth"
)

// ofManyNames is an Order that needs so many Challenges.
func ofManyNames(n int) flows.OrderState {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Saw("pending")
	s.Order.Status.Authorizations = nil
	for i := range n {
		a := flows.RemoteAuthorization("pending")
		a.URL, a.Identifier = fmt.Sprint("ca/authz/", i), acme.DNS(fmt.Sprintf("n%d.example.com", i))
		s.Order.Status.Authorizations = append(s.Order.Status.Authorizations, order.StoredAuthorization(a))
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
		a := s.Decide(start)
		if a.Step == order.CreateChallenges {
			return limits.Taken
		}
		if a.Status == nil || a.Status.Cause == nil {
			t.Fatalf("%+v", a)
		}
		return bounds.Refusal(t, errors.New(a.Status.Reason), fmt.Sprintf("its solvers are too large for %d names", names))
	})
}

// TestChallengesAreMadeAFewAtATime: a pass of an Order of many names makes a few Challenges, fewer if their solver is
// large, and Orders of other namespaces have their turn before the next. The status says at once which solver each name
// has.
func TestChallengesAreMadeAFewAtATime(t *testing.T) {
	const names, large = 2*order.ChallengesAtOnce + 1, 60 << 10
	for size, most := range map[int]int{1 << 10: order.ChallengesAtOnce, large: order.ChallengeBytesAtOnce/large + 1} {
		s := ofManyNames(names)
		s.Issuer.Solvers = []acmev1.ACMEChallengeSolver{ofSize(t, size)}
		for made := 0; made < names; {
			a := s.Decide(start)
			equal(t, a.Step, order.CreateChallenges)
			equal(t, len(a.Challenges), min(most, names-made))
			equal(t, a.Status != nil, made == 0)
			if a.Status != nil {
				s.Order.Status = *a.Status
			}
			s.Challenges = append(s.Challenges, a.Challenges...)
			made += len(a.Challenges)
		}
		equal(t, s.Decide(start).Step, order.Wait)
		for _, a := range s.Order.Status.Authorizations {
			equal(t, a.Solver != "", true)
		}
	}
}

// TestALookEncodesFewSolvers: a name is made of the JSON of the solver. A look at an Order computes that name only for
// the Challenges that it makes, and not again for those that are there.
func TestALookEncodesFewSolvers(t *testing.T) {
	growth.NotUnderRace(t)
	const names, small, large = 64, 1 << 10, 60 << 10
	look := func(size int, there bool) float64 {
		s := ofManyNames(names)
		s.Issuer.Solvers = []acmev1.ACMEChallengeSolver{ofSize(t, size)}
		for there && len(s.Challenges) < names {
			s.Challenges = append(s.Challenges, s.Decide(start).Challenges...)
		}
		return growth.Measure(func() { s.Decide(start) }).Bytes
	}
	for there, encoded := range map[bool]float64{true: 2, false: 16} {
		if more := look(large, there) - look(small, there); more > encoded*large {
			t.Errorf("Challenges are there: %t: a look takes %.0f bytes more for solvers of %d bytes in place of %d", there, more, large, small)
		}
	}
}

// TestALookAtAChallengeEncodesNoSolver: its issuer gives it the solver, however large that is.
func TestALookAtAChallengeEncodesNoSolver(t *testing.T) {
	growth.NotUnderRace(t)
	look := func(size int) float64 {
		s := ofManyNames(1)
		s.Issuer.Solvers = []acmev1.ACMEChallengeSolver{ofSize(t, size)}
		c := s.Decide(start).Challenges[0]
		return growth.Measure(func() { equal(t, acmeflow.Untrusted(s.Order, s.Issuer, c), "") }).Bytes
	}
	if small, large := look(1<<10), look(limits.SolverBytes); large > small+(1<<10) {
		t.Errorf("a look takes %.0f bytes for a large solver, and %.0f for a small one", large, small)
	}
}

// TestAChallengeThatIsGoodStays, also under a name that was computed in another way: it is not made again.
func TestAChallengeThatIsGoodStays(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Saw("pending").Owning(acmev1.Pending)
	s.Challenges[0].Name = "web-of-another-version"
	equal(t, s.Decide(start).Step, order.Wait)
	s.Challenges[0].Spec.Solver = flows.HTTP01()
	a := s.Decide(start)
	equal(t, a.Step, order.DeleteChallenges)
	equal(t, a.Delete, []string{"web-of-another-version"})
}
