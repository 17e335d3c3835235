package acmeorder_test

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/account"
	issuermachine "chancery.dev/internal/machine/issuer"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// probe checks an issuer, gives the issuer the status that follows, and returns when it is to be looked at
// again; zero for never.
func (b *bench) probe(t *testing.T, is *certmanagerv1.Issuer) (again time.Time, err error) {
	t.Helper()
	s := issuermachine.State{Issuer: is, Managed: true}
	facts, err := b.walk(t.Context(), is)
	if s.Failure = err; facts.Reason != "" {
		s.Facts = &facts
	}
	a := issuermachine.Decide(s, b.now)
	if a.Status != nil {
		is.Status = *a.Status
	}
	if wait := engine.BackOff(err, 1, 0); err != nil && wait > 0 {
		return b.now.Add(wait), err
	}
	return a.Wake, err
}

// walk takes the steps that the account of an issuer needs, until it comes to rest or one fails, and returns what is to
// be said then. internal/controller/issuers does the same with calls and plans of the engine, and has tests of that.
func (b *bench) walk(ctx context.Context, is *certmanagerv1.Issuer) (signer.Facts, error) {
	_, bound := b.accounts.Of(is.UID)
	var known account.SetUp
	for range 20 {
		held, err := b.signer.Account(ctx, is)
		if err != nil {
			return signer.Facts{}, err
		}
		s := held.SetUp()
		s.WasBound, s.Answered, s.Failed, s.Failure = bound, known.Answered, known.Failed, known.Failure
		a := s.Decide()
		if a.Step == account.StepRest {
			if a.Say == nil {
				return signer.Facts{}, a.Failure
			}
			if a.Say.Warn {
				b.tell(is, true, a.Say.Reason, a.Say.Message)
			}
			return *signer.AccountFacts(&s, a.Say, b.now), a.Failure
		}
		if known.Failed, known.Failure = a.Step, b.take(ctx, is, held, &s, a); known.Failure == nil {
			known.Answered = append(s.Answered, a.Step)
		}
	}
	return signer.Facts{}, errors.New("the account does not come to rest")
}

func (b *bench) tell(is *certmanagerv1.Issuer, warning bool, reason, message string) {
	b.said = append(b.said, fmt.Sprintf("%s %t %s: %s", is.Name, warning, reason, message))
}

// take takes one step.
func (b *bench) take(ctx context.Context, is *certmanagerv1.Issuer, held signer.Account, s *account.SetUp, a account.Action) error {
	var key crypto.Signer
	switch {
	case a.Step.Asks(), a.Step == account.StepAdopt, a.Step == account.StepBind:
		return held.Take(ctx, a.Step)
	case a.Step != account.StepFinishKey:
		var err error
		if key, err = pki.GenerateKey(s.NewKey); err != nil {
			return err
		}
	}
	if a.Step == account.StepCreateKey {
		secret, err := held.Secret(a.Step, nil, key)
		if err != nil {
			return err
		}
		return b.api.Create(ctx, secret)
	}
	live := &corev1.Secret{}
	if err := b.api.Get(ctx, s.Where, live); err != nil {
		return err
	}
	changed, err := held.Secret(a.Step, live, key)
	if changed == nil {
		return err
	}
	write := func() error {
		return b.api.Patch(ctx, changed, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}))
	}
	if b.patch == nil {
		b.patch = func(write func() error) error { return write() }
	}
	switch err = b.patch(write); {
	case apierrors.IsConflict(err):
		return account.Overtaken()
	case err == nil:
		b.tell(is, false, a.Tell.Reason, a.Tell.Message)
	}
	return err
}
