package status

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// gather is how long changes that come together are waited for.
	gather = 100 * time.Millisecond
	// tick is how often a drawing is looked at anew without a change: what is under way says for how long.
	tick = time.Second
	// fresh goes to the top of a terminal, and clears it.
	fresh = "\x1b[H\x1b[2J"
)

// follow shows the reports, and again with each change, until ctx ends.
func follow(ctx context.Context, c client.WithWatch, q Query, p printer) error {
	var last string
	for ctx.Err() == nil {
		k, err := read(ctx, c, q)
		if err == nil {
			err = k.live(ctx, c, p, &last)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(tick): // a server that ends each watch at once is not asked without end
		}
	}
	return nil
}

// live draws at each change, until a watch ends, as each does after some minutes.
func (k *knowledge) live(ctx context.Context, c client.WithWatch, p printer, last *string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events := make(chan watch.Event)
	for _, list := range k.lists {
		empty, is := reflect.New(reflect.TypeOf(list).Elem()).Interface().(client.ObjectList)
		if !is {
			continue
		}
		w, err := c.Watch(ctx, empty, client.InNamespace(k.query.namespaceOf(list)), &client.ListOptions{
			Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
		})
		if err != nil {
			return fmt.Errorf("watch the %s list: %w", kindOf(list), err)
		}
		defer w.Stop()
		go forward(ctx, w.ResultChan(), events)
	}
	for {
		if err := k.draw(ctx, p, last); err != nil {
			return err
		}
		if ended := k.await(ctx, events); ended {
			return nil
		}
	}
}

// forward passes events on; the end of a watch is an event of no type.
func forward(ctx context.Context, from <-chan watch.Event, to chan<- watch.Event) {
	for {
		e := <-from // the zero event once it is closed
		select {
		case to <- e:
		case <-ctx.Done():
			return
		}
		if e.Type == "" {
			return
		}
	}
}

// await takes the changes that come together, or a tick of the clock. It reports whether a watch has ended.
func (k *knowledge) await(ctx context.Context, events <-chan watch.Event) (ended bool) {
	over := time.NewTimer(tick)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return true
		case <-over.C:
			return false
		case e := <-events:
			switch e.Type {
			case watch.Added, watch.Modified:
				k.put(e.Object)
			case watch.Deleted:
				if object, is := e.Object.(metav1.Object); is {
					delete(k.objects, object.GetUID())
				}
			default: // it ended, or is too old to go on with
				return true
			}
			over.Reset(gather)
		}
	}
}

// draw shows the reports, if they say anything new.
func (k *knowledge) draw(ctx context.Context, p printer, last *string) error {
	now := time.Now()
	reports, err := k.reports(ctx, now)
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
