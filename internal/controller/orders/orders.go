// Package orders reconciles Orders and Challenges with internal/engine, and schedules Challenges.
// internal/machine/order, internal/machine/challenge and internal/machine/schedule decide each step, and this package
// carries out the step. The engine makes the calls to CAs and DNS servers in separate goroutines, so no reconcile
// worker waits for such a call.
package orders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
)

// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders,verbs=get;list;watch
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders;challenges,verbs=issue
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders/status,verbs=patch
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders/finalizers,verbs=update
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=challenges,verbs=get;list;watch;create;delete

// orders walks each Order through order.Decide, by the executor's contract of internal/machine/acmeflow.
type orders struct {
	*controller.Deps

	acmeDeps ACMEDeps
}

// orderView is what is observed of an Order.
type orderView struct {
	order.State

	issuer acmeIssuer
}

type orderPass = engine.Pass[*acmev1.Order, order.Memory]

// SetupOrders adds the reconciler of Orders.
func SetupOrders(ctx context.Context, d *controller.Deps, acme ACMEDeps) error {
	r := &orders{Deps: d, acmeDeps: acme}
	runner := engine.Run(d.Engine, engine.Kind[*acmev1.Order, order.Memory, orderView, order.Action]{
		Name: acmev1.OrderKind, New: func() *acmev1.Order { return &acmev1.Order{} }, Events: d.Events("cert-manager-orders"),
		Observe: r.observe, Plan: r.plan,
		Decide: func(v orderView, now time.Time) order.Action { return order.Decide(v.State, now) },
		Traced: tracedOrder(),
	})
	indexer := d.Manager.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &acmev1.Order{}, controller.IssuerIndex, pendingOrderIssuer); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &acmev1.Challenge{}, ownwrites.OwnerIndex, ownwrites.OwnerOf); err != nil {
		return err
	}
	if err := d.Observed(ctx, &acmev1.Order{}, &acmev1.Challenge{}); err != nil {
		return err
	}
	followAccounts(d, acme.Accounts, &acmev1.OrderList{}, runner.Ring)
	if err := releaseAccounts(ctx, d, acme.Accounts); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(d.Manager).Named("orders").
		For(&acmev1.Order{}).
		Watches(&acmev1.Challenge{}, controller.OnOwned(acmev1.GroupName, acmev1.OrderKind), builder.WithPredicates(matters())).
		WatchesRawSource(runner).
		WithOptions(r.Options(time.Second, 5*time.Minute))
	return d.WatchIssuers(b, &acmev1.OrderList{}).Complete(runner)
}

// matters lets those events of Challenges through that an Order acts on: one is over, about to
// go, gone, or waits for something else. Those that it makes it knows of.
func matters() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			old, ok := e.ObjectOld.(*acmev1.Challenge)
			challenge, same := e.ObjectNew.(*acmev1.Challenge)
			if !ok || !same {
				return true
			}
			over := challenge.Status.State.IsFinal() && !old.Status.State.IsFinal()
			going := challenge.DeletionTimestamp != nil && old.DeletionTimestamp == nil
			class := challenge.Status.FailureClass
			return over || going || class != "" && class != old.Status.FailureClass
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

// observe looks at an Order, its issuer and its Challenges, and takes in what a call has come back with.
func (r *orders) observe(ctx context.Context, p *orderPass) (orderView, error) {
	o := p.Object
	issuer, err := observeIssuer(ctx, r.Deps, r.acmeDeps.Accounts, o.Spec.IssuerRef, o.Namespace)
	if err != nil {
		return orderView{}, err
	}
	if s := o.Status; fault.Class(s.FailureClass) == fault.ClassPermanent && s.FailureTime != nil && issuer.remote != nil {
		issuer.remote.RefusedForGood(o.Namespace, order.Identifiers(o.Spec), s.FailureTime.Time)
	}
	r.takeOutcome(p)
	*p.Memory = p.Memory.Seen(r.Now())
	made := r.acmeDeps.Process != "" && o.Annotations[order.ProcessAnnotation] == r.acmeDeps.Process
	v := orderView{issuer: issuer, State: order.State{
		Order: o, Made: made, Issuer: issuer.flow, Account: issuer.account, Memory: *p.Memory, Settings: r.acmeDeps.Settings,
	}}
	v.Challenges, err = r.challengesOf(ctx, o)
	v.CleaningUp = r.cleaningUp(v.Challenges)
	return v, err
}

// cleaningUp are the Challenges whose clean-up was sent, and has not come back; nil if there are none.
func (r *orders) cleaningUp(challenges []*acmev1.Challenge) (is map[types.UID]bool) {
	for _, c := range challenges {
		if c.DeletionTimestamp != nil && r.Engine.UnderWay(c.UID, challenge.CleanUp.String()) {
			if is == nil {
				is = map[types.UID]bool{}
			}
			is[c.UID] = true
		}
	}
	return is
}

// plan says what an action means.
func (r *orders) plan(_ context.Context, p *orderPass, v orderView, action order.Action) (engine.Plan, error) {
	if p.Object.DeletionTimestamp != nil {
		return engine.Plan{}, nil // its Challenges go with it
	}
	if action.Step == order.CreateChallenges && p.Memory.Barred != nil {
		action = r.barred(p, action)
	}
	plan := engine.Plan{Wake: action.Wake, Done: action.Step == order.Done}
	o := p.Object
	if action.Status != nil {
		o = o.DeepCopy()
		o.Status = *action.Status
		plan.Status = o
		*p.Memory = p.Memory.Writing()
	}
	plan.Then = func(ctx context.Context) error {
		if action.Status != nil {
			*p.Memory = p.Memory.Wrote(action, r.Now())
		}
		return r.do(ctx, p, v, o, action)
	}
	if r.Settings.StepEvents && action.Step == order.CreateChallenges {
		for _, c := range action.Challenges {
			plan.Events = append(plan.Events, engine.Event{Reason: acmev1.OrderReasonCreated, Message: fmt.Sprintf(
				"Created Challenge resource %q for domain %q", c.Name, c.Spec.DNSName)})
		}
	}
	if action.Event != nil {
		plan.Events = append(plan.Events, engine.Event(*action.Event))
	}
	wrote := action.Status != nil || action.Step == order.CreateChallenges
	plan.Again = wrote && !action.Step.External() && action.Step != order.DeleteChallenges
	if !o.Status.State.IsFinal() {
		plan.Waits = waitFor(action.Wake, o.Status.Reason)
	}
	return plan, nil
}

// challengesOf lists the Challenges that an Order controls.
func (r *orders) challengesOf(ctx context.Context, o *acmev1.Order) ([]*acmev1.Challenge, error) {
	list := &acmev1.ChallengeList{}
	if err := r.Client.ListOwned(ctx, list, o.Namespace, o.UID); err != nil {
		return nil, err
	}
	out := make([]*acmev1.Challenge, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// do takes the step of an action.
func (r *orders) do(ctx context.Context, p *orderPass, v orderView, o *acmev1.Order, action order.Action) error {
	switch {
	case action.Step == order.Wait, action.Step == order.Done:
		return nil
	case action.Step.External():
		*p.Memory = p.Memory.Started(action.Step, r.Now())
		p.Start(r.call(v.issuer.remote, action))
		return nil
	case action.Step == order.CreateChallenges:
		return r.mayCreate(p, r.createChallenges(ctx, o, action.Challenges))
	case action.Step == order.DeleteChallenges:
		return r.deleteChallenges(ctx, v.Challenges, action.Delete)
	default:
		return errors.New("order.Decide asked for " + action.Step.String() + ", which the controller does not know: please report this as a bug")
	}
}

// call is the call of an external step.
func (r *orders) call(account *accounts.Account, action order.Action) engine.Call {
	return callBy(account, engine.Call{
		Name: action.Step.String(), Urgency: urgency(action),
		Run: func(ctx context.Context) (any, error) { return account.Order(ctx, action) },
	})
}

// begun is the urgency of what was begun.
const begun = 2

// urgency lets what was begun go first, so that its authorizations are used, and renewals before
// what is new: somebody uses the certificate, and CAs limit them less (RFC 9773 §5).
func urgency(action order.Action) int {
	switch {
	case action.Step != order.Create:
		return begun
	case action.NewOrder.Renewal:
		return 1
	default:
		return 0
	}
}

// takeOutcome takes in what a call has come back with.
func (r *orders) takeOutcome(p *orderPass) {
	m := p.Memory
	takeOutcome(p.TakeOutcome, m.Running, m.Finished, func(o order.Outcome, failure *fault.Fault) {
		o.Step, o.At, o.Jitter, o.Failure = m.Running, r.Now(), p.Chance(), failure
		*m = m.After(o)
	})
}
