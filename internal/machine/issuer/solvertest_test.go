package issuer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig/golden"
)

// tests are the values of what the test of a solver depends on.
func tests() (asked []string, lasts, runs []named) {
	asked = []string{
		"", "1", "1 two names", "1 192.0.2.1", strings.Repeat("é", 40) + " www.example.com", "1 www.example.com", "2 WWW.example.com", "1 *.example.com",
		"1 www.http.example.com", "1 *.http.example.com", "1 www.persist.example.com", "1 www.tls.example.com", "1 www.account.example.com", "1 www.example.org",
	}
	last := func(outcome acmev1.ACMESolverTestOutcome, provider string) func(*State) {
		return func(s *State) {
			s.Issuer.GetStatus().ACME.SolverTest = &acmev1.ACMESolverTest{ID: "1", DNSName: "www.example.com",
				ChallengeType: acmev1.ChallengeTypeDNS01, Provider: provider, Outcome: outcome, Message: "chosen", StartTime: metav1.NewTime(now.Add(-time.Minute))}
		}
	}
	lasts = []named{
		{"no test", func(*State) {}},
		{"no test and no account", func(s *State) { s.Issuer.GetStatus().ACME = nil }},
		{"the test 1 has passed", last(acmev1.SolverTestPassed, "rfc2136")},
		{"the test 1 runs", last(acmev1.SolverTestRunning, "rfc2136")},
		{"the test 1 runs with another solver", last(acmev1.SolverTestRunning, "webhook")},
	}
	runs = []named{
		{"", func(*State) {}},
		{"under way", func(s *State) { s.Testing = true }},
		{"passed", func(s *State) { s.Testing, s.Tested = true, &Tested{} }},
		{"passed unseen", func(s *State) { s.Testing, s.Tested = true, &Tested{Unseen: true} }},
		{"failed", func(s *State) {
			s.Testing, s.Tested = true, &Tested{Step: acmev1.SolverTestPresent, Failure: errors.New("refused"), Record: "the TXT record"}
		}},
	}
	return asked, lasts, runs
}

// ofSolvers is the state of an issuer with a solver of each type.
func ofSolvers(asked string) State {
	below := func(zone string, s acmev1.ACMEChallengeSolver) acmev1.ACMEChallengeSolver {
		s.Selector = &acmev1.CertificateDNSNameSelector{DNSZones: []string{zone}}
		return s
	}
	dns := acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{Nameserver: "192.0.2.53"}}
	i := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "acme", Generation: generation,
		Annotations: map[string]string{cmmeta.TestSolverAnnotation: asked}}}
	i.Status.ACME = &acmev1.ACMEIssuerStatus{URI: "https://ca/1"}
	i.Spec.ACME = &acmev1.ACMEIssuer{Solvers: []acmev1.ACMEChallengeSolver{
		below("example.com", acmev1.ACMEChallengeSolver{DNS01: &dns}),
		below("http.example.com", acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{}}),
		below("tls.example.com", acmev1.ACMEChallengeSolver{TLSALPN01: &acmev1.TLSALPN01Solver{}}),
		below("persist.example.com", acmev1.ACMEChallengeSolver{DNSPersist01: &acmev1.DNSPersist01Solver{}}),
		below("account.example.com", acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{AccountLabel: true, RFC2136: dns.RFC2136}}),
	}}
	return State{Issuer: i, Managed: true}
}

func describeTest(a Action) string {
	var words []string
	if a.Status != nil {
		t := *a.Status.ACME.SolverTest
		words = append(words, strings.Join(strings.Fields(fmt.Sprintf("write %q %s %s %s %s %s (%s)",
			t.ID, t.DNSName, t.ChallengeType, t.Provider, t.Outcome, t.Step, t.Message)), " "))
	}
	if a.Test != nil {
		s := a.Test.Spec
		words = append(words, strings.TrimSpace(fmt.Sprintf("test %s: %s of %s by %s %s", a.Test.ID, s.Type, s.DNSName, s.IssuerRef.Kind, s.AccountLabel)))
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// TestSolverTestTable goes through what is asked for, what the status says, and how the test under way has ended.
func TestSolverTestTable(t *testing.T) {
	var out strings.Builder
	asked, lasts, runs := tests()
	for _, last := range lasts {
		asked, runs := asked, runs
		if strings.Contains(last.name, "runs") {
			asked = []string{"", "1 www.example.com", "2 www.example.org"} // what is asked for waits
		} else {
			runs = runs[:1]
		}
		for _, run := range runs {
			fmt.Fprintf(&out, "%s\n", strings.Trim(last.name+", "+run.name, ", "))
			for _, value := range asked {
				s := ofSolvers(value)
				last.set(&s)
				run.set(&s)
				a := Decide(s, now)
				fmt.Fprintf(&out, "  %q: %s\n", value, describeTest(a))
				checkTest(t, s, a)
			}
		}
	}
	golden.Check(t, "solvertest.txt", out.String())
}

// checkTest says what must hold of every decision about a test.
func checkTest(t *testing.T, s State, a Action) {
	t.Helper()
	if a.Status == nil {
		return
	}
	test := a.Status.ACME.SolverTest
	if running := test.Outcome == acmev1.SolverTestRunning; running == (test.CompletionTime != nil) || running != (a.Test != nil) || test.StartTime.IsZero() {
		t.Errorf("%+v with the test %+v", test, a.Test)
	}
	// Once the decision is written, and the test started or forgotten, nothing is left to do.
	s.Issuer.GetStatus().ACME = a.Status.ACME
	s.Testing, s.Tested = a.Test != nil, nil
	if again := Decide(s, now); (again.Status != nil || again.Test != nil) && s.Issuer.GetAnnotations()[cmmeta.TestSolverAnnotation][:1] == test.ID {
		t.Errorf("decided again: %s", describeTest(again))
	}
}

// TestSolverTestStaysWithTheAccount: a look at the account, which knows nothing of the test, takes nothing of it away.
func TestSolverTestStaysWithTheAccount(t *testing.T) {
	s := ofSolvers("1 www.example.com")
	s.Facts = &Facts{Ready: true, Reason: "Registered", ACME: &acmev1.ACMEIssuerStatus{URI: "https://ca/2"}}
	for range 2 {
		a := Decide(s, now)
		if a.Status == nil || a.Status.ACME.URI != s.Facts.ACME.URI || a.Status.ACME.SolverTest == nil || s.Facts.ACME.SolverTest != nil {
			t.Fatalf("%+v", a.Status)
		}
		*s.Issuer.GetStatus() = *a.Status
		s.Testing = true
		s.Facts = &Facts{Ready: true, Reason: "Registered", ACME: &acmev1.ACMEIssuerStatus{URI: "https://ca/3"}}
	}
}

// TestSolverTestOfOthers: issuers of other types, and those that are nobody's, have no test.
func TestSolverTestOfOthers(t *testing.T) {
	other, unmanaged := ofSolvers("1 www.example.com"), ofSolvers("1 www.example.com")
	other.Issuer.GetSpec().ACME = nil
	unmanaged.Managed = false
	for _, s := range []State{other, unmanaged} {
		if a := Decide(s, now); a.Test != nil || a.Status != nil && a.Status.ACME.SolverTest != nil {
			t.Errorf("%+v", a)
		}
	}
}

// TestSolverTestOfAnotherTypeNow: a test does not run for ever when the issuer gets another type meanwhile.
func TestSolverTestOfAnotherTypeNow(t *testing.T) {
	_, lasts, _ := tests()
	s := ofSolvers("1 www.example.com")
	lasts[3].set(&s)
	s.Issuer.GetSpec().ACME = nil
	a := Decide(s, now)
	if a.Status == nil || a.Test != nil || a.Status.ACME.SolverTest.Outcome != acmev1.SolverTestFailed || a.Ended == nil {
		t.Errorf("%+v", a)
	}
	s.Testing = true
	if a := Decide(s, now); a.Ended != nil {
		t.Errorf("ended under way: %+v", a.Ended)
	}
}
