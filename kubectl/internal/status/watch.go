package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/clientside/inventory"
)

// fresh goes to the top of a terminal, and clears it.
const fresh = "\x1b[H\x1b[2J"

// follow shows the reports, and again with each change, until ctx ends.
func follow(ctx context.Context, c client.WithWatch, q Query, p printer) error {
	starts, err := q.starts(ctx, c)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(starts, func(s start) bool { return len(s.volumes) > 0 }) {
		return errors.New("--watch does not follow certificates of Pods: leave it out, or watch what is said about them: kubectl get events --watch")
	}
	var last string
	show := func(i *inventory.Inventory, _ bool) error { return q.draw(ctx, c, starts, i, p, &last) }
	return inventory.Follow(ctx, c, q.scope(), show, func(err error) error { return err })
}

// draw shows the reports, if they say anything new.
func (q Query) draw(ctx context.Context, c client.Client, starts []start, i *inventory.Inventory, p printer, last *string) error {
	now := time.Now()
	for n := range starts {
		if err := starts[n].include(ctx, c, i); err != nil {
			return err
		}
	}
	reports, err := q.reports(ctx, c, starts, i, now)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	to := p.out
	p.out = &text
	p.all(reports, now)
	said := text.String()
	if !p.colour { // where nothing can be drawn over, the passing of time is no news
		encoded, err := json.Marshal(reports)
		if err != nil {
			return err
		}
		said = string(encoded)
	}
	if said == *last {
		return nil
	}
	*last = said
	if p.colour {
		fmt.Fprint(to, fresh, text.String())
	} else {
		fmt.Fprintf(to, "%s\n%s\n", now.UTC().Format(time.RFC3339), text.String())
	}
	return nil
}
