package orders

import (
	"context"
	"fmt"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/order"
)

// createChallenges makes the Challenges of an Order. One that is there already was
// made by a pass that was cut short: its name says what it is for.
func (r *orders) createChallenges(ctx context.Context, order *acmev1.Order, challenges []*acmev1.Challenge) error {
	for _, c := range challenges {
		c = c.DeepCopy() // the answer is read into it, and the solver in it is the issuer's
		ours, err := r.Make(ctx, c, &acmev1.Challenge{}, order)
		if err != nil {
			return fmt.Errorf("create Challenge %s/%s: %w", c.Namespace, c.Name, err)
		}
		if !ours {
			return fmt.Errorf("the Challenge %s/%s is in the way and does not belong to the Order: delete it", c.Namespace, c.Name)
		}
	}
	return nil
}

// mayCreate takes in what has come of making Challenges. Where the API server refuses one, the Order is decided anew.
func (r *orders) mayCreate(p *orderPass, problem error) error {
	c := cause.OfWrite(problem, acmev1.ChallengeKind)
	if c == nil {
		p.Memory.Unmade, p.Memory.Barred = cause.Refusals{}, nil
		return problem
	}
	p.Memory.Unmade.After(c, r.Now())
	p.Memory.Barred = c
	return engine.ErrDecideAgain
}

// barred says of an Order why its Challenges are not made, until they are tried again. That stays while they are tried.
func (r *orders) barred(p *orderPass, action order.Action) order.Action {
	c, status := p.Memory.Barred, p.Object.Status.DeepCopy()
	if !r.Now().Before(c.NextTry.Time) {
		action.Status = nil
		return action
	}
	wait := order.Action{Step: order.Wait, Wake: c.NextTry.Time}
	if status.Cause.SameAs(c) && status.Cause.NextTry.Equal(c.NextTry) {
		return wait
	}
	if !status.Cause.SameAs(c) {
		wait.Event = &acmeflow.Event{Warning: true, Reason: reasonNotMade, Message: cause.Sentence(c)}
	}
	status.FailureClass, status.ProblemType, status.Reason, status.Cause = "", "", cause.Sentence(c), c
	wait.Status = status
	return wait
}

// reasonNotMade is the reason of the event that says why a Challenge is not made.
const reasonNotMade = "ErrorUpdate"

// deleteChallenges deletes those of the Challenges that are named.
func (r *orders) deleteChallenges(ctx context.Context, owned []*acmev1.Challenge, names []string) error {
	unneeded := make(map[string]bool, len(names))
	for _, name := range names {
		unneeded[name] = true
	}
	for _, c := range owned {
		if c.DeletionTimestamp != nil || !unneeded[c.Name] {
			continue
		}
		if err := r.Client.Delete(ctx, c); err != nil {
			return fmt.Errorf("delete Challenge %s/%s: %w", c.Namespace, c.Name, err)
		}
	}
	return nil
}
