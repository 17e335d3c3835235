package inventory

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// gather is how long changes that come together are waited for.
	gather = 100 * time.Millisecond
	// tick is how often show is called without a change, since words depend on the time, too.
	tick = time.Second
)

// Follow reads and watches, until ctx ends. It calls show with what was read, again after changes, and every second
// without one. If reading, watching or show fails, it ends, unless failed returns nil: then it reads again in a second.
func Follow(
	ctx context.Context, c client.WithWatch, s Scope, show func(i *Inventory, changed bool) error, failed func(error) error,
) error {
	for ctx.Err() == nil {
		i, err := Read(ctx, c, s)
		if err == nil {
			err = i.live(ctx, c, show)
		}
		if err != nil && ctx.Err() == nil {
			if err := failed(err); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(tick): // a server that ends each watch at once is not asked without a pause
		}
	}
	return nil
}

// live shows each change, until a watch ends, as each does after some minutes.
func (i *Inventory) live(ctx context.Context, c client.WithWatch, show func(*Inventory, bool) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events := make(chan watch.Event)
	for _, list := range i.read {
		w, err := c.Watch(ctx, list, append(i.scope.options(list), client.Limit(0), &client.ListOptions{
			Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
		})...)
		if apierrors.IsForbidden(err) && i.forbid(list) {
			continue
		}
		if err != nil {
			return fmt.Errorf("watch the %s list: %w", kindOf(list), err)
		}
		defer w.Stop()
		go forward(ctx, w.ResultChan(), events)
	}
	for changed, ended := true, false; !ended; changed, ended = i.await(ctx, events) {
		if err := show(i, changed); err != nil {
			return err
		}
	}
	return nil
}

// forbid drops what was read of requests of Pods, or of warnings about them, since what is not watched gets old: the
// right to list them is enough elsewhere. It reports whether the list is one of these.
func (i *Inventory) forbid(list client.ObjectList) bool {
	kind := kindOf(list)
	if kind != "PodCertificateRequest" && kind != "Event" {
		return false
	}
	i.unread[kind] = true
	maps.DeleteFunc(i.objects, func(_ types.UID, o metav1.Object) bool { return fmt.Sprintf("%T", o) == "*v1."+kind })
	return true
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

// await takes the changes that come together, or a tick of the clock. It reports whether there was a change, and
// whether a watch has ended.
func (i *Inventory) await(ctx context.Context, events <-chan watch.Event) (changed, ended bool) {
	over := time.NewTimer(tick)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return changed, true
		case <-over.C:
			return changed, false
		case e := <-events:
			kept := false
			switch e.Type {
			case watch.Added, watch.Modified:
				kept = i.put(e.Object)
			case watch.Deleted:
				if object, is := e.Object.(metav1.Object); is {
					_, kept = i.objects[object.GetUID()]
					delete(i.objects, object.GetUID())
				}
			default: // it ended, or is too old to go on with
				return changed, true
			}
			if !kept {
				continue
			}
			if !changed { // the first change alone sets the time: changes without end must not hide all of them
				over.Reset(gather)
			}
			changed = true
		}
	}
}
