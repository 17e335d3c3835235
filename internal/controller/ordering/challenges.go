package ordering

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/propagation"
	"chancery.dev/internal/schedule"
)

// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=challenges,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=challenges/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// challenges walks each Challenge through acmeflow.DecideChallenge, by the
// executor's contract of that package.
type challenges struct {
	*controller.Deps
	crew

	acmeDeps  ACMEDeps
	events    record.EventRecorder
	memories  controller.Memories[acmeflow.ChallengeMemory]
	echoes    *controller.Echoes
	scheduler *scheduler
	mended    mended
	settled   propagation.Ledger
}

// SetupChallenges adds the reconciler of Challenges and their scheduler. SetupOrders
// comes first.
func SetupChallenges(ctx context.Context, d *controller.Deps, acme ACMEDeps) error {
	s, err := setupScheduler(ctx, d, acme.Settings, schedule.Options{
		Cap: acme.MaxConcurrentChallenges, IssuerCap: acme.MaxConcurrentChallengesPerIssuer, ClassCap: acme.MaxConcurrentChallengesPerIngressClass,
	})
	if err != nil {
		return err
	}
	r := &challenges{Deps: d, crew: newCrew(ctx), acmeDeps: acme, events: d.Events("cert-manager-challenges"), scheduler: s}
	r.echoes = controller.NewEchoes(&r.Doorbell)
	if err := d.Manager.GetFieldIndexer().IndexField(ctx, &acmev1.Challenge{}, controller.IssuerIndex, pendingChallengeIssuer); err != nil {
		return err
	}
	if err := d.Manager.GetFieldIndexer().IndexField(ctx, &acmev1.Challenge{}, credentialIndex, r.credentials); err != nil {
		return err
	}
	followAccounts(d, acme.Accounts, func() client.ObjectList { return &acmev1.ChallengeList{} }, &r.Doorbell)
	b := ctrl.NewControllerManagedBy(d.Manager).Named("challenges").
		For(&acmev1.Challenge{}, builder.WithPredicates(r.echoes.Predicate())).
		WatchesRawSource(&r.crew).
		WatchesRawSource(d.OnSecret(r.withCredential)).
		WithOptions(r.Options(time.Second, 5*time.Minute))
	return d.WatchIssuers(b, &acmev1.ChallengeList{}).Complete(r)
}

func pendingChallengeIssuer(obj client.Object) []string {
	c, ok := obj.(*acmev1.Challenge)
	if !ok || c.Status.State.IsFinal() {
		return nil
	}
	return []string{controller.IssuerKeyOf(c.Spec.IssuerRef, c.Namespace)}
}

// Reconcile takes a Challenge as far as it gets without an event.
func (r *challenges) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	for range stepsPerPass {
		challenge := &acmev1.Challenge{}
		if err := r.Client.Get(ctx, req.NamespacedName, challenge); err != nil {
			r.drop(req.NamespacedName)
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		issuer, err := observeIssuer(ctx, r.Deps, r.acmeDeps.Accounts, challenge.Spec.IssuerRef, challenge.Namespace)
		if err != nil {
			return controller.Settle(err)
		}
		memory := r.remember(challenge)
		action := acmeflow.DecideChallenge(acmeflow.ChallengeState{
			Challenge: challenge, Issuer: issuer.flow, Account: issuer.account, Memory: *memory, Settings: r.acmeDeps.Settings,
			NamespaceTerminating: r.namespaceTerminating(ctx, challenge, *memory),
		}, r.Now())
		if err := r.act(ctx, challenge, issuer, memory, action); err != nil {
			return settleWrite(err)
		}
		if action.Step.External() && action.Wake.IsZero() {
			// A call that never comes back is no event: look whether it has lost its slot.
			action.Wake = r.Now().Add(r.acmeDeps.Settings.YieldAfter)
		}
		wrote := action.Status != nil || action.Step == acmeflow.ChallengeAddFinalizer || action.Step == acmeflow.ChallengeRemoveFinalizer
		if !wrote || action.Step.External() {
			return r.Wake(action.Wake), nil
		}
	}
	return reconcile.Result{RequeueAfter: time.Second}, nil
}

// remember returns what is known of a Challenge, with what has come back by now.
func (r *challenges) remember(c *acmev1.Challenge) *acmeflow.ChallengeMemory {
	name := client.ObjectKeyFromObject(c)
	memory, replaced := r.memories.Of(name, c.UID)
	if replaced != "" {
		r.forget(replaced)
	}
	r.land(c, memory)
	if memory.Flying == acmeflow.ChallengeWait && r.mended.take(name) {
		*memory = memory.Mended()
	}
	return memory
}

// drop forgets a Challenge that is gone.
func (r *challenges) drop(name types.NamespacedName) {
	if uid := r.memories.Drop(name); uid != "" {
		r.forget(uid)
	}
	r.mended.take(name)
}

// act carries out an action.
func (r *challenges) act(ctx context.Context, c *acmev1.Challenge, issuer acmeIssuer, m *acmeflow.ChallengeMemory, action acmeflow.ChallengeAction) error {
	if action.Status != nil {
		changed := c.DeepCopy()
		changed.Status = *action.Status
		if err := r.echoes.Write(changed, func() error { return r.WriteStatus(ctx, c, changed) }); err != nil {
			return err
		}
		c = changed
		r.learn(c, m)
	}
	r.scheduler.decided(c, action)
	if err := r.do(ctx, c, issuer, m, action.Step); err != nil {
		return err
	}
	if action.Event != nil {
		controller.Emit(r.events, c, action.Event.Warning, action.Event.Reason, action.Event.Message)
	}
	return nil
}

// namespaceTerminating asks the API server, but only where it matters: for a
// Challenge that is being deleted and whose clean-up fails.
func (r *challenges) namespaceTerminating(ctx context.Context, c *acmev1.Challenge, m acmeflow.ChallengeMemory) bool {
	if c.DeletionTimestamp == nil || m.Failed != acmeflow.ChallengeCleanUp {
		return false
	}
	namespace := &corev1.Namespace{}
	if err := r.Manager.GetAPIReader().Get(ctx, client.ObjectKey{Name: c.Namespace}, namespace); err != nil {
		return false // the clean-up's own limit holds
	}
	return namespace.DeletionTimestamp != nil
}

// do takes the step of an action.
func (r *challenges) do(ctx context.Context, c *acmev1.Challenge, issuer acmeIssuer, m *acmeflow.ChallengeMemory, step acmeflow.ChallengeStep) error {
	switch {
	case step == acmeflow.ChallengeWait:
		return nil
	case step.External():
		r.call(c, issuer, m, step)
		return nil
	case step == acmeflow.ChallengeAddFinalizer:
		return r.setFinalizers(ctx, c, true)
	case step == acmeflow.ChallengeRemoveFinalizer:
		return r.setFinalizers(ctx, c, false)
	case step == acmeflow.ChallengeDone:
		r.forget(r.memories.Drop(client.ObjectKeyFromObject(c)))
		return nil
	default:
		return fmt.Errorf("acmeflow asked for %s, which the controller does not know: please report this as a bug", step)
	}
}

// setFinalizers removes ours, whatever its name, and adds the present one if it is
// wanted. Those of others stay.
func (r *challenges) setFinalizers(ctx context.Context, c *acmev1.Challenge, wanted bool) error {
	changed := c.DeepCopy()
	controllerutil.RemoveFinalizer(changed, acmev1.ChallengeFinalizerLegacy)
	if wanted {
		controllerutil.AddFinalizer(changed, acmev1.ChallengeFinalizer)
	} else {
		controllerutil.RemoveFinalizer(changed, acmev1.ChallengeFinalizer)
	}
	return r.echoes.Write(changed, func() error {
		return r.Client.Patch(ctx, changed, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{}))
	})
}
