// Package ordering reconciles Orders and Challenges, and schedules the latter: it
// carries out what internal/acmeflow and internal/schedule decide. It makes no call
// to a CA or a DNS server on a worker.
package ordering

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/overlay"
)

// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders,verbs=get;list;watch
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders/status,verbs=patch
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders/finalizers,verbs=update
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=challenges,verbs=get;list;watch;create;delete

// orders walks each Order through acmeflow.DecideOrder, by the executor's contract
// of that package.
type orders struct {
	*controller.Deps
	crew

	acmeDeps ACMEDeps
	events   record.EventRecorder
	memories controller.Memories[orderMemory]
	echoes   *controller.Echoes
}

// orderMemory is what this process knows of an Order beside the object.
type orderMemory struct {
	flow acmeflow.OrderMemory
	// deleted are the Challenges that were deleted already, which the watch may not
	// have shown yet.
	deleted map[types.UID]bool
}

// SetupOrders adds the reconciler of Orders.
func SetupOrders(ctx context.Context, d *controller.Deps, acme ACMEDeps) error {
	r := &orders{Deps: d, crew: newCrew(ctx), acmeDeps: acme, events: d.Events("cert-manager-orders")}
	r.echoes = controller.NewEchoes(&r.Doorbell)
	indexer := d.Manager.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &acmev1.Order{}, controller.IssuerIndex, pendingOrderIssuer); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &acmev1.Challenge{}, overlay.OwnerIndex, overlay.OwnerOf); err != nil {
		return err
	}
	if err := d.Observed(ctx, &acmev1.Order{}, &acmev1.Challenge{}); err != nil {
		return err
	}
	followAccounts(d, acme.Accounts, func() client.ObjectList { return &acmev1.OrderList{} }, &r.Doorbell)
	if err := releaseAccounts(ctx, d, acme.Accounts); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(d.Manager).Named("orders").
		For(&acmev1.Order{}, builder.WithPredicates(r.echoes.Predicate())).
		Watches(&acmev1.Challenge{}, controller.OnOwned(acmev1.GroupName, acmev1.OrderKind), builder.WithPredicates(ends())).
		WatchesRawSource(&r.crew).
		WithOptions(r.Options(time.Second, 5*time.Minute))
	return d.WatchIssuers(b, &acmev1.OrderList{}).Complete(r)
}

// ends lets those events of Challenges through that an Order acts on: one is over, about to
// go, or gone. Those that it makes it knows of.
func ends() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			old, ok := e.ObjectOld.(*acmev1.Challenge)
			challenge, same := e.ObjectNew.(*acmev1.Challenge)
			if !ok || !same {
				return true
			}
			over := challenge.Status.State.IsFinal() && !old.Status.State.IsFinal()
			return over || challenge.DeletionTimestamp != nil && old.DeletionTimestamp == nil
		},
	}
}

func pendingOrderIssuer(obj client.Object) []string {
	o, ok := obj.(*acmev1.Order)
	if !ok || o.Status.State.IsFinal() {
		return nil
	}
	return []string{controller.IssuerKeyOf(o.Spec.IssuerRef, o.Namespace)}
}

// Reconcile takes an Order as far as it gets without an event.
func (r *orders) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	for range stepsPerPass {
		order := &acmev1.Order{}
		if err := r.Client.Get(ctx, req.NamespacedName, order); err != nil {
			if uid := r.memories.Drop(req.NamespacedName); uid != "" {
				r.forget(uid)
			}
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if order.DeletionTimestamp != nil {
			return reconcile.Result{}, nil // its Challenges go with it
		}
		memory, replaced := r.memories.Of(req.NamespacedName, order.UID)
		if replaced != "" {
			r.forget(replaced)
		}
		issuer, err := observeIssuer(ctx, r.Deps, r.acmeDeps.Accounts, order.Spec.IssuerRef, order.Namespace)
		if err != nil {
			return controller.Settle(err)
		}
		r.land(order, memory)
		state := acmeflow.OrderState{
			Order: order, Issuer: issuer.flow, Account: issuer.account, Memory: memory.flow, Settings: r.acmeDeps.Settings,
		}
		if state.Challenges, err = r.challengesOf(ctx, order); err != nil {
			return controller.Settle(err)
		}
		action := acmeflow.DecideOrder(state, r.Now())
		if err := r.act(ctx, state, issuer, memory, action); err != nil {
			return settleWrite(err)
		}
		wrote := action.Status != nil || action.Step == acmeflow.OrderCreateChallenges
		if !wrote || action.Step.External() || action.Step == acmeflow.OrderDeleteChallenges {
			return r.Wake(action.Wake), nil
		}
	}
	return reconcile.Result{RequeueAfter: time.Second}, nil
}

// act carries out an action.
func (r *orders) act(ctx context.Context, s acmeflow.OrderState, issuer acmeIssuer, m *orderMemory, action acmeflow.OrderAction) error {
	if action.Status != nil {
		changed := s.Order.DeepCopy()
		changed.Status = *action.Status
		if err := r.echoes.Write(changed, func() error { return r.WriteStatus(ctx, s.Order, changed) }); err != nil {
			return err
		}
		s.Order = changed
	}
	if err := r.do(ctx, s, issuer, m, action); err != nil {
		return err
	}
	if action.Event != nil {
		controller.Emit(r.events, s.Order, action.Event.Warning, action.Event.Reason, action.Event.Message)
	}
	return nil
}

// challengesOf lists the Challenges that an Order controls.
func (r *orders) challengesOf(ctx context.Context, order *acmev1.Order) ([]*acmev1.Challenge, error) {
	list := &acmev1.ChallengeList{}
	if err := r.Client.ListOwned(ctx, list, order.Namespace, order.UID); err != nil {
		return nil, err
	}
	out := make([]*acmev1.Challenge, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// do takes the step of an action.
func (r *orders) do(ctx context.Context, s acmeflow.OrderState, issuer acmeIssuer, m *orderMemory, action acmeflow.OrderAction) error {
	switch {
	case action.Step == acmeflow.OrderWait:
		return nil
	case action.Step.External():
		r.call(s.Order, issuer, m, action)
		return nil
	case action.Step == acmeflow.OrderCreateChallenges:
		return r.createChallenges(ctx, s.Order, action.Challenges)
	case action.Step == acmeflow.OrderDeleteChallenges:
		return r.deleteChallenges(ctx, s.Challenges, m, action.Delete)
	case action.Step == acmeflow.OrderDone:
		r.forget(r.memories.Drop(client.ObjectKeyFromObject(s.Order)))
		return nil
	default:
		return errors.New("acmeflow asked for " + action.Step.String() + ", which the controller does not know: please report this as a bug")
	}
}

// call makes the call of an external step, off the worker.
func (r *orders) call(order *acmev1.Order, issuer acmeIssuer, m *orderMemory, action acmeflow.OrderAction) {
	name := client.ObjectKeyFromObject(order)
	m.flow = m.flow.Started(action.Step, r.Now())
	c := flight.Call{Key: orderCall(order, action.Step), Landed: func() { r.Ring(name) }}
	account := issuer.remote
	if account == nil {
		c.Run = func(context.Context) (any, error) {
			return acmeflow.OrderOutcome{Failure: &acmeflow.Failure{
				Class: acmeflow.ErrorPermanent, Detail: "the issuer has no ACME account at hand",
			}}, nil
		}
	} else {
		c.Lane, c.Urgency = account.Lane(), urgency(action)
		c.Run = func(ctx context.Context) (any, error) { return account.Order(ctx, action), nil }
	}
	r.acme.Ask(c)
}

// urgency has what was begun go first, so that its authorizations are used, and renewals before
// what is new: somebody uses the certificate, and CAs limit them less (RFC 9773 §5).
func urgency(action acmeflow.OrderAction) int {
	switch {
	case action.Step != acmeflow.OrderCreate:
		return 2
	case action.NewOrder.Renewal:
		return 1
	default:
		return 0
	}
}

func orderCall(order *acmev1.Order, step acmeflow.OrderStep) flight.Key {
	return flight.Key{Object: order.UID, Call: step.String()}
}

// land takes in what a call has come back with.
func (r *orders) land(order *acmev1.Order, m *orderMemory) {
	step := m.flow.Flying
	if step == acmeflow.OrderWait {
		return
	}
	landed, ok := r.acme.Ask(flight.Call{
		Key:    orderCall(order, step),
		Run:    func(context.Context) (any, error) { return nil, errLostCall },
		Landed: func() { r.Ring(client.ObjectKeyFromObject(order)) },
	})
	if !ok {
		return
	}
	outcome, ok := landed.Value.(acmeflow.OrderOutcome)
	if !ok {
		outcome.Failure = lostCall(landed.Err)
	}
	outcome.Step, outcome.At, outcome.Jitter = step, r.Now(), r.acmeDeps.chance()
	m.flow = m.flow.After(outcome)
}

// errLostCall stands in for the outcome of a call that nobody knows of.
var errLostCall = errors.New("the call was lost")

// errTooLate says that a Challenge has ended before it could be started.
var errTooLate = errors.New("the challenge has ended")

// lostCall is the failure of a call that has not come to an outcome.
func lostCall(err error) *acmeflow.Failure {
	return &acmeflow.Failure{Class: acmeflow.ErrorUnavailable, Detail: err.Error()}
}
