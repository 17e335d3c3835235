package issuers

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/leader/term"
	"chancery.dev/internal/machine/account"
	"chancery.dev/internal/signer"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;patch

// accountMemory is what is remembered of the account of an issuer.
type accountMemory struct {
	// bound says that the issuer used an account when it last came to rest.
	bound bool
	// inputs are those of the calls for the issuer (Deps.IssuerInputs). What follows is only true of them, but for a
	// failure that is account.Overtaken.
	inputs string
	// facts are those with which the issuer has come to rest; nil if there is something left to do.
	facts *signer.Facts
	// failed is the step that calls nobody and has failed, and failure how that stands.
	failed  account.Step
	failure engine.Answer
}

// accountView is a look at the account of an issuer, and what the account needs.
type accountView struct {
	signer.Account
	account.Action

	setUp account.SetUp
	// key is a new private key, if the step needs one.
	key crypto.Signer
}

// observeAccount looks at the account of an issuer, and makes the call that it needs. What the issuer has come to rest
// with is true until the issuer, its Secrets or the account change.
func (r *issuers) observeAccount(ctx context.Context, p *pass, by signer.AccountHolder, o *observation) error {
	inputs, err := r.IssuerInputs(ctx, p.Object)
	m := &p.Memory.account
	switch {
	case err != nil:
		return err
	case m.inputs != inputs:
		fresh := accountMemory{inputs: inputs, bound: m.bound}
		if account.IsOvertaken(m.failure.Err) { // the read that has found it has brought the other inputs
			fresh.failed, fresh.failure = m.failed, m.failure
		}
		*m = fresh
	case m.facts != nil && by.UsesAccount(p.Object.GetUID(), m.facts.ACME.URI):
		o.Facts = m.facts
		return nil
	}
	for answered := []account.Step(nil); ; {
		held, err := by.Account(ctx, p.Object)
		if err != nil {
			return o.fail(err, r.Now())
		}
		v := &accountView{Account: held, setUp: held.SetUp()}
		v.setUp.Answered, v.setUp.WasBound = answered, m.bound
		v.Action = v.setUp.Decide()
		if slices.Contains(answered, v.Step) { // somebody else has undone it
			p.Forget(v.Step.String())
			o.Again = r.Now().Add(time.Second)
			return nil
		}
		step, lane := v.Step, by.Lane(p.Object)
		if step == account.StepCheckSolvers { // it does not wait for a CA that is silent
			lane.Name = "Secrets of solvers"
		}
		answer := r.askFor(p, v, engine.Call{
			Name: step.String(), Inputs: inputs, Lane: lane,
			Run: func(ctx context.Context) (any, error) { return nil, held.Take(ctx, step) },
		})
		switch {
		case answer.Given && step.Asks(): // another look sees what it has come to
			answered = append(answered, step)
			continue
		case answer.Err != nil:
			v.setUp.Failed, v.setUp.Failure, o.Again = step, answer.Err, answer.Until
			v.Action = v.setUp.Decide()
		case !answer.Given:
			return nil // it is in the list of waits as a call
		}
		if o.account = v; v.Step == account.StepRest {
			o.Facts, o.Failure = v.rest(p, r.Now()), v.Failure
		}
		return nil
	}
}

// askFor returns how what a step needs stands: the call to the server; a new private key; the end of the wait after a
// write that has failed; or nothing.
func (r *issuers) askFor(p *pass, v *accountView, call engine.Call) engine.Answer {
	m := &p.Memory.account
	switch {
	case v.Step.Asks():
		return p.Ask(call)
	case v.Step == m.failed && r.Now().Before(m.failure.Until):
		return m.failure
	case v.Step == account.StepCreateKey, v.Step == account.StepStoreNextKey:
		call := controller.KeyCall(v.setUp.NewKey)
		answer := p.Ask(call)
		if answer.Given {
			v.key, _ = answer.Value.(crypto.Signer)
			p.Forget(call.Name) // a key is used once: the answer of a write that uses it may be lost
		}
		return answer
	default:
		return engine.Answer{Given: true}
	}
}

// rest returns the facts with which the issuer comes to rest; nil for none. The calls are forgotten if nothing failed.
// A registration is always forgotten: the CA may lose the account, or another issuer change the contact, while
// something else is tried again.
func (v *accountView) rest(p *pass, now time.Time) (facts *signer.Facts) {
	m := &p.Memory.account
	m.bound = v.setUp.Bound
	if v.Say != nil {
		facts = signer.AccountFacts(&v.setUp, v.Say, now)
	}
	for step := account.StepRest; step <= account.StepFinishKey; step++ {
		if v.Failure == nil || step == account.StepRegister && v.setUp.Failed != step {
			p.Forget(step.String())
		}
	}
	if v.Failure == nil && facts.Until.IsZero() {
		m.facts = facts
	}
	return facts
}

// planAccount adds to a plan what the account needs; v is nil if that is nothing.
func (r *issuers) planAccount(p *pass, v *accountView, plan *engine.Plan) {
	switch {
	case v == nil:
	case v.Step != account.StepRest:
		plan.First, plan.Again = func(ctx context.Context) error { return r.takeStep(ctx, p, v) }, true
	case v.Say != nil && v.Say.Warn && plan.Status != nil:
		plan.Events = append(plan.Events, engine.Event{Warning: true, Reason: v.Say.Reason, Message: v.Say.Message})
	}
}

// takeStep takes a step that calls nobody but the API server. What follows if it fails is for the account machine to
// decide.
func (r *issuers) takeStep(ctx context.Context, p *pass, v *accountView) (err error) {
	switch v.Step {
	case account.StepCreateKey:
		err = r.createKey(ctx, v)
	case account.StepStoreNextKey, account.StepFinishKey:
		err = r.changeKey(ctx, p, v)
	default:
		err = v.Take(ctx, v.Step)
	}
	m, failures := &p.Memory.account, 1
	if m.failed == v.Step && !account.IsOvertaken(m.failure.Err) {
		failures += m.failure.Failures
	}
	m.failed, m.failure = account.StepRest, engine.Answer{}
	if err == nil || ctx.Err() != nil || errors.Is(err, term.ErrOver) { // the end of the term says nothing about the step
		return err
	}
	m.failed, m.failure = v.Step, engine.Answer{Err: err, Failures: failures, Until: r.Now().Add(engine.BackOff(err, failures, p.Chance()))}
	return engine.ErrDecideAgain
}

// createKey makes the Secret. If another issuer with the same Secret was faster, or a cache lags behind, it reads the
// Secret.
func (r *issuers) createKey(ctx context.Context, v *accountView) error {
	secret, err := v.Secret(v.Step, nil, v.key)
	if err == nil {
		err = r.Client.Create(ctx, secret)
	}
	if apierrors.IsAlreadyExists(err) {
		err = r.Client.Live(ctx, r.Manager.GetAPIReader(), v.setUp.Where, secret)
	}
	if err != nil {
		return fmt.Errorf("create Secret %s for the account's private key: %w", v.setUp.Where, err)
	}
	return nil
}

// changeKey changes the Secret, if nobody else has since it was read.
func (r *issuers) changeKey(ctx context.Context, p *pass, v *accountView) error {
	live := &corev1.Secret{}
	err := r.Client.Live(ctx, r.Manager.GetAPIReader(), v.setUp.Where, live)
	if err == nil {
		changed, failed := v.Secret(v.Step, live, v.key)
		if changed == nil {
			return failed
		}
		err = r.Client.Patch(ctx, changed, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}))
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return account.Overtaken()
	case err != nil:
		return fmt.Errorf("Secret %s cannot be written: %w", v.setUp.Where, err)
	}
	p.Tell(engine.Event{Reason: v.Tell.Reason, Message: v.Tell.Message})
	return nil
}
