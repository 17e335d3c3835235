package informers

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	acmev1 "chancery.dev/api/acme/v1"
)

func (s *solvers) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}

// decoded is a Challenge as a watch shows it.
func decoded(t *testing.T, of acmev1.ACMEChallengeSolver) *acmev1.Challenge {
	t.Helper()
	text, err := json.Marshal(acmev1.Challenge{Spec: acmev1.ChallengeSpec{Solver: of}})
	if err != nil {
		t.Fatal(err)
	}
	c := &acmev1.Challenge{}
	if err := json.Unmarshal(text, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEqualSolversAreKeptOnce: the Challenges of an Order share their solver, others have their own, and nothing is
// kept of a solver that no Challenge has.
func TestEqualSolversAreKeptOnce(t *testing.T) {
	of := func(config string) acmev1.ACMEChallengeSolver {
		return acmev1.ACMEChallengeSolver{
			Selector: &acmev1.CertificateDNSNameSelector{DNSNames: []string{config}},
			HTTP01:   &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Name: config}},
			DNS01:    &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{Config: &apiextensionsv1.JSON{Raw: []byte(`"` + config + `"`)}}},
		}
	}
	s := &solvers{known: map[[32]byte]any{}}
	transform := s.transform(func(obj any) (any, error) { return obj, nil })
	take := func(config string) *acmev1.Challenge {
		c := decoded(t, of(config))
		want := c.DeepCopy()
		if obj, err := transform(c); err != nil || obj != c {
			t.Fatalf("%v, error %v", obj, err)
		}
		if got, want := c.Spec.Solver.DNS01.Webhook.Config.Raw, want.Spec.Solver.DNS01.Webhook.Config.Raw; string(got) != string(want) {
			t.Errorf("%s, want %s", got, want)
		}
		return c
	}
	large := strings.Repeat("x", 1<<16)
	one, two, other := take(large).Spec.Solver, take(large).Spec.Solver, take(large+"y").Spec.Solver
	if one.DNS01 != two.DNS01 || one.HTTP01 != two.HTTP01 || one.Selector != two.Selector {
		t.Error("equal solvers are kept twice")
	}
	if one.DNS01 == other.DNS01 || one.HTTP01 == other.HTTP01 || one.Selector == other.Selector {
		t.Error("solvers that differ are taken for one")
	}
	if n := s.size(); n != 6 {
		t.Errorf("%d parts of two solvers are known", n)
	}
	runtime.KeepAlive([]acmev1.ACMEChallengeSolver{one, two})
	for range 20_000 { // some seconds: what is dropped is noticed beside the collector
		if s.size() == 3 {
			break
		}
		runtime.GC()
		runtime.Gosched()
	}
	if n := s.size(); n != 3 {
		t.Errorf("%d parts are known, and one Challenge is left", n)
	}
	runtime.KeepAlive(other)
}
