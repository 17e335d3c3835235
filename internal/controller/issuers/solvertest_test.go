package issuers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver"
)

// scripted is a Solver whose calls fail with the errors of their lists, and succeed after them. It notes its calls.
type scripted struct {
	present, check, cleanUp []error
	calls                   []string
}

func (s *scripted) next(call string, errs *[]error) error {
	s.calls = append(s.calls, call)
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

func (s *scripted) Present(_ context.Context, t solver.Task) error {
	t.InZone("example.com.")
	return s.next("present", &s.present)
}

func (s *scripted) Check(context.Context, solver.Task) error { return s.next("check", &s.check) }

func (s *scripted) CleanUp(context.Context, solver.Task) error {
	return s.next("clean up", &s.cleanUp)
}

// TestTry tells which step of a test fails, how long a step is tried, and what may be left behind.
func TestTry(t *testing.T) {
	often := func(err error) []error {
		var out []error
		for range 20 {
			out = append(out, err)
		}
		return out
	}
	unseen, down := fault.After(solver.CheckPeriod, "NotPropagated", "not yet"), errors.New("no answer in time")
	turn := fault.ClassRateLimited.AfterExactly(time.Minute, "ProviderBusy", "others first")
	long := fault.ClassRateLimited.AfterExactly(time.Hour, "CredentialPaused", "paused")
	refused := fault.ClassCredential.After(time.Second, "UpdateRefused", "wrong key")
	for name, tc := range map[string]struct {
		solver *scripted
		step   acmev1.ACMESolverTestStep
		calls  string
		took   time.Duration
		left   bool
	}{
		"passes":           {&scripted{}, "", "present, check, clean up", 0, false},
		"takes time":       {&scripted{check: []error{unseen, unseen}}, "", "present, check, check, check, clean up", 20 * time.Second, false},
		"is never seen":    {&scripted{check: often(unseen)}, acmev1.SolverTestPropagate, "present" + strings.Repeat(", check", 13) + ", clean up", 2 * time.Minute, false},
		"waits its turn":   {&scripted{present: []error{turn}}, "", "present, present, check, clean up", time.Minute, false},
		"paused for long":  {&scripted{present: []error{long}}, acmev1.SolverTestPresent, "present, clean up", 0, false},
		"refused":          {&scripted{present: []error{refused}, cleanUp: often(refused)}, acmev1.SolverTestPresent, "present, clean up", 0, false},
		"may have written": {&scripted{present: []error{down}, cleanUp: often(down)}, acmev1.SolverTestPresent, "present, clean up", 0, true},
		"is removed late":  {&scripted{cleanUp: []error{down, turn}}, "", "present, check, clean up, clean up, clean up", 20 * time.Second, false},
		"is not removed":   {&scripted{cleanUp: often(down)}, acmev1.SolverTestCleanUp, "present, check" + strings.Repeat(", clean up", 13), 2 * time.Minute, true},
		"has no zone":      {&scripted{present: []error{fault.Terminal(fault.ReasonNoZone, "none")}}, acmev1.SolverTestPresent, "present", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got := try(t.Context(), tc.solver, solver.Task{Challenge: &acmev1.Challenge{Spec: acmev1.ChallengeSpec{DNSName: "www.example.com", Key: "value"}}})
				if calls := strings.Join(tc.solver.calls, ", "); got.Step != tc.step || (got.Failure != nil) != (tc.step != "") || calls != tc.calls {
					t.Errorf("%+v after %s, want %s", got, calls, tc.calls)
				}
				if took := time.Since(began); took != tc.took {
					t.Errorf("took %s", took)
				}
				if want := `the TXT record of _acme-challenge.www.example.com with value "value"`; (got.Record == want) != tc.left || !tc.left && got.Record != "" {
					t.Errorf("may be left: %q", got.Record)
				}
			})
		})
	}
}

// TestTryWithoutSelfCheck: where the solver asks for no self check, the test makes none.
func TestTryWithoutSelfCheck(t *testing.T) {
	s, challenge := &scripted{check: []error{errors.New("not reached")}}, &acmev1.Challenge{}
	challenge.Spec.Solver.WaitInsteadOfSelfCheck = &metav1.Duration{Duration: time.Minute}
	if got := try(t.Context(), s, solver.Task{Challenge: challenge}); got.Step != "" || !got.Unseen || strings.Join(s.calls, ", ") != "present, clean up" {
		t.Errorf("%+v after %s", got, s.calls)
	}
}

// TestTryEndsWithTheProcess: nothing is removed that the next process makes again.
func TestTryEndsWithTheProcess(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s := &scripted{present: []error{context.Canceled}}
	if got := try(ctx, s, solver.Task{Challenge: &acmev1.Challenge{}}); len(s.calls) != 1 {
		t.Errorf("%+v after %s", got, s.calls)
	}
}
