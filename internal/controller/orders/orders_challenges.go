package orders

import (
	"context"
	"fmt"

	acmev1 "chancery.dev/api/acme/v1"
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
