package issuers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/issuer"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/solver"
)

const (
	// testCall names the call that tests a solver.
	testCall = "SolverTest"
	// testsAtOnce bounds the tests of one namespace, and testLimit each: its three steps, with their last tries.
	testsAtOnce = 2
	testLimit   = 3 * (stepLimit + tryLimit)
	// stepLimit bounds how long a step of a test is tried again, and tryLimit one try.
	stepLimit = 2 * time.Minute
	tryLimit  = 30 * time.Second
	// testThumbprint takes the place of an account's: the CA never sees what a test presents.
	testThumbprint = "solver-test"
)

// observeTest says how the test of a solver stands that the status calls Running.
func observeTest(p *pass, s *issuer.State) {
	known := p.Object.GetStatus().ACME
	if known == nil || known.SolverTest == nil || known.SolverTest.ID != p.Memory.testing {
		return
	}
	s.Testing = true
	// The end of the process has ended a test with context.Canceled: the status stays, and the next process makes the
	// test again.
	if outcome, ok := p.LastOutcome(testCall); ok && !errors.Is(outcome.Err, context.Canceled) {
		tested, ended := outcome.Value.(issuer.Tested)
		switch {
		case !ended:
			tested = issuer.Tested{Step: acmev1.SolverTestPresent, Failure: outcome.Err}
		case outcome.Err != nil: // the record has perhaps not been removed in time
			tested.Failure = cmp.Or(tested.Failure, outcome.Err)
		}
		s.Tested = &tested
	}
}

// followTest starts a test once the status says so, and forgets one once the status says how it has ended.
func (r *issuers) followTest(p *pass, s issuer.State, test *issuer.Test) func(context.Context) error {
	return func(context.Context) error {
		switch {
		case test != nil:
			p.Memory.testing = test.ID
			p.Start(r.testCall(p.Object, test))
		case s.Tested != nil:
			p.Memory.testing = ""
			p.Forget(testCall)
		}
		return nil
	}
}

// testCall is the call that makes a test. The call goes on if the issuer is deleted meanwhile, so that its record is
// removed.
func (r *issuers) testCall(i certmanagerv1.GenericIssuer, t *issuer.Test) engine.Call {
	task := solver.Task{ResourceNamespace: signer.ResourceNamespace(i, r.Settings.ClusterResourceNamespace), Challenge: &acmev1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.GetNamespace(), Name: i.GetName(), UID: i.GetUID(),
			Annotations: map[string]string{acmeflow.AccountThumbprintAnnotation: testThumbprint}},
		Spec: t.Spec,
	}}
	spec := &task.Challenge.Spec
	spec.Token = acme.DNS01Value(string(i.GetUID()) + " " + t.ID)
	spec.Key = acmeflow.KeyToPresent(spec.Type, spec.Token, testThumbprint)
	return engine.Call{
		Name: testCall, Inputs: t.ID + " " + t.Spec.DNSName,
		Lane: engine.Lane{Name: "solver tests of " + task.ResourceNamespace, Limit: testsAtOnce, Timeout: testLimit},
		Run: func(ctx context.Context) (any, error) {
			by := r.Solvers[spec.Type]
			if by == nil {
				return nil, fmt.Errorf("this controller solves no %s challenges", spec.Type)
			}
			tested := try(ctx, by, task)
			return tested, ctx.Err()
		},
	}
}

// try presents a record, waits until the self check sees it, and removes it.
func try(ctx context.Context, by solver.Solver, t solver.Task) issuer.Tested {
	out := issuer.Tested{Unseen: t.Challenge.Spec.Solver.WaitInsteadOfSelfCheck != nil}
	t.InZone = func(string) { out.Step = acmev1.SolverTestPresent }
	out.Failure = repeat(ctx, ownTurn, func(ctx context.Context) error {
		out.Step = acmev1.SolverTestZone
		return by.Present(ctx, t)
	})
	again, unsure := ownTurn, true
	switch f := fault.Of(out.Failure); {
	case out.Failure == nil && out.Unseen:
		again = soon
	case out.Failure == nil:
		out.Step, again = acmev1.SolverTestPropagate, soon
		out.Failure = repeat(ctx, soon, func(ctx context.Context) error { return by.Check(ctx, t) })
	case f != nil && f.Reason == fault.ReasonNoZone:
		return out
	case f != nil:
		unsure = f.Class == fault.ClassUnavailable // else the provider, or the configuration, has said no
	}
	if ctx.Err() != nil {
		return out // the process ends: the next one makes the test again
	}
	t.InZone = nil
	err := repeat(ctx, again, func(ctx context.Context) error { return by.CleanUp(ctx, t) })
	switch {
	case err == nil && out.Failure == nil:
		out.Step = ""
		return out
	case err != nil && out.Failure == nil:
		out.Step, out.Failure = acmev1.SolverTestCleanUp, err
	}
	if err != nil && unsure {
		spec := t.Challenge.Spec
		out.Record = fmt.Sprintf("the TXT record of %s with value %q", acme.DNS01Name(spec.DNSName, spec.AccountLabel), spec.Key)
	}
	return out
}

// soon is the wait before a step is tried again that may only need time.
func soon(err error) time.Duration {
	if fault.IsTerminal(err) {
		return 0
	}
	return solver.CheckPeriod
}

// ownTurn is the wait before a step is tried again that waits for its turn; zero for one that has failed.
func ownTurn(err error) time.Duration {
	if f := fault.Of(err); f != nil && f.Exact {
		return max(f.Delay, time.Millisecond)
	}
	return 0
}

// repeat makes a call until it succeeds, as long as it may be tried again after a wait that is not zero.
func repeat(ctx context.Context, again func(error) time.Duration, call func(context.Context) error) error {
	limit, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	deadline, _ := limit.Deadline()
	for {
		err := once(ctx, call)
		if err == nil {
			return nil
		}
		wait := again(err)
		if wait == 0 || wait > time.Until(deadline) {
			return err
		}
		select {
		case <-limit.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// once makes one try.
func once(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	return call(ctx)
}
