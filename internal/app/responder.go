package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/solver/http01"
)

// responder answers HTTP-01 challenges from the watch cache. Every replica does,
// whoever leads.
type responder struct {
	manager ctrl.Manager
	address string
	index   *http01.Index
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*responder) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable: it serves until ctx ends.
func (r *responder) Start(ctx context.Context) error {
	if err := r.watch(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.address)
	if err != nil {
		return fmt.Errorf("--http01-listen-address: %w: choose another port, or end what listens there", err)
	}
	server := http01.NewServer(http01.NewResponder(http01.ResponderOptions{Lookup: r.index}))
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(within))
}

func (r *responder) watch(ctx context.Context) error {
	challenges, err := r.manager.GetCache().GetInformer(ctx, &acmev1.Challenge{})
	if err != nil {
		return err
	}
	orders, err := r.manager.GetCache().GetInformer(ctx, &acmev1.Order{})
	if err != nil {
		return err
	}
	_, err = challenges.AddEventHandler(handle(r.index.UpsertChallenge, func(c *acmev1.Challenge) { r.index.DeleteChallenge(c.Namespace, c.Name) }))
	if err != nil {
		return err
	}
	_, err = orders.AddEventHandler(handle(r.index.UpsertOrder, func(o *acmev1.Order) { r.index.DeleteOrder(o.Namespace, o.Name) }))
	return err
}

// handle feeds one kind of object to upsert and remove.
func handle[T any](upsert, remove func(T)) toolscache.ResourceEventHandler {
	do := func(f func(T), obj any) {
		if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if o, ok := obj.(T); ok {
			f(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { do(upsert, obj) },
		UpdateFunc: func(_, obj any) { do(upsert, obj) },
		DeleteFunc: func(obj any) { do(remove, obj) },
	}
}
