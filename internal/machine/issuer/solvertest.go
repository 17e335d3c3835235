package issuer

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/machine/selection"
)

// maxTestID is the length to which the id of a test is cut.
const maxTestID = 63

// Test is the test of a DNS-01 solver that the annotation cmmeta.TestSolverAnnotation asks for. A process that finds
// the status at Running makes the same test from the beginning: its record has the same value, so the record of a
// process that was killed is removed.
type Test struct {
	// ID is the one that the status has.
	ID string
	// Spec is that of a Challenge for the name, without token and key.
	Spec acmev1.ChallengeSpec
}

// Tested is how a test has ended.
type Tested struct {
	// Step that has failed; empty if none has.
	Step acmev1.ACMESolverTestStep
	// Failure is why; nil if no step has failed.
	Failure error
	// Unseen says that nobody has looked for the record, because the solver asks for no self check.
	Unseen bool
	// Record names the record that may be left behind; empty if none is.
	Record string
}

// test adds what is to be done about the test of a solver.
func (s *State) test(a Action, now time.Time) Action {
	if !s.Managed {
		return a
	}
	status := cmp.Or(a.Status, s.Issuer.GetStatus())
	var known acmev1.ACMEIssuerStatus
	if status.ACME != nil {
		known = *status.ACME
	}
	last := known.SolverTest
	running := last != nil && last.Outcome == acmev1.SolverTestRunning
	var next *acmev1.ACMESolverTest
	switch {
	case running && s.Tested != nil:
		next = s.Tested.end(*last)
	case running && s.Testing:
	case running:
		next, a.Test = s.resume(last)
	case s.Issuer.GetSpec().ACME != nil:
		next, a.Test = s.begin(last)
	}
	if next == nil {
		return a
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	if next.StartTime.IsZero() {
		next.StartTime = at
	}
	if next.Outcome != acmev1.SolverTestRunning {
		next.CompletionTime = &at
		a.Ended = next
	}
	known.SolverTest = next
	a.Status = status.DeepCopy()
	a.Status.ACME = known.DeepCopy()
	return a
}

// begin starts the test that the annotation asks for, unless it is the last one. Without a test to be made, the outcome
// says why.
func (s *State) begin(last *acmev1.ACMESolverTest) (*acmev1.ACMESolverTest, *Test) {
	words := strings.Fields(s.Issuer.GetAnnotations()[cmmeta.TestSolverAnnotation])
	if len(words) == 0 {
		return nil, nil
	}
	id := strings.ToValidUTF8(words[0][:min(len(words[0]), maxTestID)], "")
	if last != nil && last.ID == id {
		return nil, nil
	}
	next := &acmev1.ACMESolverTest{ID: id}
	if len(words) != 2 || id != words[0] || !isDNSName(words[1]) {
		next.Outcome, next.Step = acmev1.SolverTestFailed, acmev1.SolverTestSelect
		next.Message = fmt.Sprintf("the annotation %s needs an id of up to %d characters, a space and a DNS name, as in: 1 www.example.com",
			cmmeta.TestSolverAnnotation, maxTestID)
		return next, nil
	}
	next.DNSName = strings.ToLower(words[1])
	return next, s.choose(next)
}

// isDNSName reports whether a name can be in a certificate as a DNS name.
func isDNSName(name string) bool {
	name = strings.ToLower(strings.TrimPrefix(name, "*."))
	_, notAddress := netip.ParseAddr(name)
	return notAddress != nil && len(validation.IsDNS1123Subdomain(name)) == 0
}

// resume makes a test again that the process before has not ended. Where the issuer has another solver for the name
// now, nobody can remove what the one before has written.
func (s *State) resume(last *acmev1.ACMESolverTest) (*acmev1.ACMESolverTest, *Test) {
	again := &acmev1.ACMESolverTest{ID: last.ID, DNSName: last.DNSName}
	var test *Test
	if s.Issuer.GetSpec().ACME != nil {
		test = s.choose(again)
	}
	if test != nil && again.ChallengeType == last.ChallengeType && again.Provider == last.Provider {
		return nil, test
	}
	next := *last
	next.Outcome, next.Step = acmev1.SolverTestFailed, acmev1.SolverTestCleanUp
	next.Message = fmt.Sprintf("the issuer's solver for the name was changed, and the controller restarted, while the test ran: "+
		"a TXT record of %s may be left: remove the record", acme.DNS01Name(strings.TrimPrefix(last.DNSName, "*."), ""))
	return &next, nil
}

// choose selects the solver for the name of a test as for a Challenge, but without an Order, notes the solver in the
// status, and returns the test if there is one to be made.
func (s *State) choose(t *acmev1.ACMESolverTest) *Test {
	name, wildcard := strings.CutPrefix(t.DNSName, "*.")
	offered := []acmev1.ACMEChallenge{
		{Type: string(acme.ChallengeDNS01)}, {Type: string(acme.ChallengeDNSAccount01)}, {Type: string(acme.ChallengeDNSPersist01)},
	}
	if !wildcard {
		offered = append(offered, acmev1.ACMEChallenge{Type: string(acme.ChallengeHTTP01)}, acmev1.ACMEChallenge{Type: string(acme.ChallengeTLSALPN01)})
	}
	chosen, err := selection.Select(nil, acmev1.ACMEAuthorization{Identifier: name, Wildcard: &wildcard, Challenges: offered}, s.Issuer.GetSpec().ACME.Solvers)
	if err != nil {
		t.Outcome, t.Step, t.Message = acmev1.SolverTestNoSolver, acmev1.SolverTestSelect, err.Error()
		return nil
	}
	t.ChallengeType, t.Message = chosen.Type, chosen.Why
	if chosen.Type != acmev1.ChallengeTypeDNS01 && chosen.Type != acmev1.ChallengeTypeDNSAccount01 {
		t.Outcome = acmev1.SolverTestNotApplicable
		t.Message = fmt.Sprintf("a solver for %s writes no DNS record and needs no credential, so there is nothing to test: %s", chosen.Type, chosen.Why)
		return nil
	}
	t.Provider = chosen.Solver.DNS01.Provider()
	spec := acmev1.ChallengeSpec{DNSName: name, Wildcard: wildcard, Type: chosen.Type, Solver: chosen.Solver,
		IssuerRef: cmmeta.IssuerReference{Name: s.Issuer.GetName(), Kind: cmmeta.DefaultIssuerKind}}
	if s.Issuer.GetNamespace() == "" {
		spec.IssuerRef.Kind = cmmeta.ClusterIssuerKind
	}
	if chosen.Type == acmev1.ChallengeTypeDNSAccount01 {
		account := s.Issuer.GetStatus().ACME
		if account == nil || account.URI == "" {
			t.Outcome, t.Step = acmev1.SolverTestFailed, acmev1.SolverTestSelect
			t.Message = "the record's name needs the issuer's ACME account, which does not exist yet: test again, with another id, once the issuer is ready"
			return nil
		}
		spec.AccountLabel = acme.AccountLabel(account.URI)
	}
	t.Outcome = acmev1.SolverTestRunning
	return &Test{ID: t.ID, Spec: spec}
}

// end says how a test has ended.
func (t *Tested) end(last acmev1.ACMESolverTest) *acmev1.ACMESolverTest {
	did := "written, seen"
	if t.Unseen {
		did = "written, not looked for because of waitInsteadOfSelfCheck,"
	}
	last.Outcome, last.Step, last.Message = acmev1.SolverTestPassed, t.Step, fmt.Sprintf("a TXT record was %s and removed: %s", did, last.Message)
	if t.Failure != nil {
		last.Outcome, last.Message = acmev1.SolverTestFailed, t.Failure.Error()
	}
	if t.Record != "" {
		last.Message += fmt.Sprintf(" (%s may be left: remove the record)", t.Record)
	}
	return &last
}
