package route

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/service"
)

const (
	// editTries bounds how often an edit is repeated because the Ingress has changed meanwhile.
	editTries = 20
	// editLimit bounds the time of edits that are written together.
	editLimit = 20 * time.Second
)

// operation is one of a JSON Patch (RFC 6902 §4).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// change changes an Ingress, and returns the operations for the API server that do the same.
type change func(*networkingv1.Ingress) []operation

// edit is a change that a Challenge waits for.
type edit struct {
	ctx    context.Context //nolint:containedctx // the caller's
	change change
	done   chan struct{}
	// in is the Ingress after the edit. in and err are set when done is closed.
	in  *networkingv1.Ingress
	err error
}

// edit changes the Ingress that a Challenge's solver names, and returns it. Edits that come while another edit of the
// same Ingress is being written are written together, next: many Challenges may wait, and writes to one object are
// sequential.
func (r *Router) edit(ctx context.Context, c *acmev1.Challenge, change change) (*networkingv1.Ingress, error) {
	key := client.ObjectKey{Namespace: c.Namespace, Name: c.Spec.Solver.HTTP01.Ingress.Name}
	e := &edit{ctx: ctx, change: change, done: make(chan struct{})}
	r.mu.Lock()
	_, writing := r.edits[key]
	r.edits[key] = append(r.edits[key], e)
	r.mu.Unlock()
	if !writing {
		go r.write(context.WithoutCancel(ctx), key) // for other callers, too, who may wait for longer
	}
	select {
	case <-e.done:
		return e.in, e.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// write writes the edits of an Ingress until none is left.
func (r *Router) write(ctx context.Context, key client.ObjectKey) {
	for {
		r.mu.Lock()
		waiting := r.edits[key]
		if len(waiting) == 0 {
			delete(r.edits, key)
			r.mu.Unlock()
			return
		}
		r.edits[key] = nil // being written
		r.mu.Unlock()
		r.writeTogether(ctx, key, waiting)
	}
}

func (r *Router) writeTogether(ctx context.Context, key client.ObjectKey, waiting []*edit) {
	ctx, cancel := context.WithTimeout(ctx, editLimit)
	defer cancel()
	wanted := slices.DeleteFunc(waiting, func(e *edit) bool { return e.ctx.Err() != nil })
	in, err := r.patch(ctx, key, wanted)
	alone := len(wanted) > 1 && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || fault.Is[*fault.Panic](err))
	for _, e := range wanted {
		e.in, e.err = in, err
		if alone { // one of the edits is refused, which must not affect the others
			e.in, e.err = r.patch(ctx, key, []*edit{e})
		}
		close(e.done)
	}
}

// patch makes changes to an Ingress. Its rules and paths are atomic lists: no field manager can own a part of them. So
// the patch names places in the lists, and is valid only for the version of the Ingress that it was made for.
func (r *Router) patch(ctx context.Context, key client.ObjectKey, edits []*edit) (_ *networkingv1.Ingress, err error) {
	defer fault.Contain(&err)
	for range editTries {
		in := &networkingv1.Ingress{}
		if err := r.o.Client.Get(ctx, key, in); err != nil {
			return nil, err
		}
		operations := []operation{{Op: "test", Path: "/metadata/resourceVersion", Value: in.ResourceVersion}}
		for _, e := range edits {
			operations = append(operations, e.change(in)...)
		}
		if len(operations) == 1 {
			return in, nil
		}
		patch, err := json.Marshal(operations)
		if err != nil {
			return nil, err
		}
		err = r.o.Client.Patch(ctx, in, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(service.FieldManager))
		// The API server answers 422 if the version is another one, and if the Ingress is not valid.
		if err == nil || !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
			return in, err
		}
		now := &networkingv1.Ingress{}
		if again := r.o.Client.Get(ctx, key, now); again != nil {
			return nil, again
		}
		if now.ResourceVersion == in.ResourceVersion {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the Ingress %s/%s changes faster than it can be edited: stop whoever else is writing to it", key.Namespace, key.Name)
}
