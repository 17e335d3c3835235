package orders

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
)

// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=challenges,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=challenges/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// challenges walks each Challenge through challenge.Decide, by the executor's contract of internal/machine/acmeflow.
type challenges struct {
	*controller.Deps

	acmeDeps  ACMEDeps
	scheduler *scheduler
}

// challengeView is what is observed of a Challenge.
type challengeView struct {
	challenge.State

	issuer acmeIssuer
}

type challengePass = engine.Pass[*acmev1.Challenge, challenge.Memory]

// challengesComponent emits the events about Challenges.
const challengesComponent = "cert-manager-challenges"

// SetupChallenges adds the reconciler of Challenges and their scheduler. SetupOrders
// comes first.
func SetupChallenges(ctx context.Context, d *controller.Deps, acme ACMEDeps) error {
	s := newScheduler(d, acme.Settings, acme.Limits)
	if err := s.listen(ctx); err != nil {
		return err
	}
	if err := d.Manager.Add(s); err != nil {
		return err
	}
	d.Engine.List(s.waits)
	r := &challenges{Deps: d, acmeDeps: acme, scheduler: s}
	s.mayNotStart = r.mayNotStart
	runner := engine.Run(d.Engine, engine.Kind[*acmev1.Challenge, challenge.Memory, challengeView, challenge.Action]{
		Name: acmev1.ChallengeKind, New: func() *acmev1.Challenge { return &acmev1.Challenge{} }, Events: d.Events(challengesComponent),
		Observe: r.observe, Plan: r.plan,
		Decide: func(v challengeView, now time.Time) challenge.Action {
			return challenge.Decide(v.State, now)
		},
		Gone:   func(name types.NamespacedName, _ types.UID) { s.gone(ctx, name) },
		Traced: tracedChallenge(d),
	})
	if err := d.Manager.GetFieldIndexer().IndexField(ctx, &acmev1.Challenge{}, controller.IssuerIndex, pendingChallengeIssuer); err != nil {
		return err
	}
	if err := d.Manager.GetFieldIndexer().IndexField(ctx, &acmev1.Challenge{}, credentialIndex, r.credentials); err != nil {
		return err
	}
	if err := d.IndexWithin(ctx, &acmev1.Challenge{}, authorizationIndex, openAuthorization); err != nil {
		return err
	}
	followAccounts(d, acme.Accounts, &acmev1.ChallengeList{}, runner.Ring)
	b := ctrl.NewControllerManagedBy(d.Manager).Named("challenges").
		For(&acmev1.Challenge{}).
		WatchesRawSource(runner).
		WatchesRawSource(d.OnSecret(r.withCredential)).
		WithOptions(r.Options(time.Second, 5*time.Minute))
	return d.WatchIssuers(b, &acmev1.ChallengeList{}).Complete(runner)
}

func pendingChallengeIssuer(obj client.Object) []string {
	c, ok := obj.(*acmev1.Challenge)
	if !ok || c.Status.State.IsFinal() {
		return nil
	}
	return []string{controller.IssuerKeyOf(c.Spec.IssuerRef, c.Namespace)}
}

// authorizationIndex finds the Challenges that answer for an authorization, by its address.
const authorizationIndex = "chancery.dev/authorization"

// openAuthorization is what authorizationIndex has of a Challenge.
func openAuthorization(obj client.Object) []string {
	c, ok := obj.(*acmev1.Challenge)
	if !ok || c.Status.State.IsFinal() || c.DeletionTimestamp != nil || c.Spec.AuthorizationURL == "" { // a stub has none
		return nil
	}
	return []string{c.Spec.AuthorizationURL}
}

// replaced reports whether a Challenge is being deleted while another one of its namespace answers for the same
// authorization.
func (r *challenges) replaced(ctx context.Context, c *acmev1.Challenge) bool {
	if c.DeletionTimestamp == nil || c.Spec.AuthorizationURL == "" {
		return false
	}
	one := []client.ListOption{client.InNamespace(c.Namespace), client.Limit(1)}
	return len(r.Find(ctx, &acmev1.ChallengeList{}, authorizationIndex, c.Spec.AuthorizationURL, one...)) > 0
}

// observe looks at a Challenge and its issuer, and takes in what a call has come back with.
func (r *challenges) observe(ctx context.Context, p *challengePass) (challengeView, error) {
	c := p.Object
	issuer, err := observeIssuer(ctx, r.Deps, r.acmeDeps.Accounts, c.Spec.IssuerRef, c.Namespace)
	if err != nil {
		return challengeView{}, err
	}
	r.takeOutcome(ctx, p)
	if p.Memory.Running == challenge.Wait && r.scheduler.takeCredentialChanged(ctx, client.ObjectKeyFromObject(c)) {
		*p.Memory = p.Memory.CredentialChanged()
	}
	untrusted, err := r.untrusted(ctx, c, issuer.flow)
	if err != nil {
		return challengeView{}, err
	}
	return challengeView{issuer: issuer, State: challenge.State{
		Challenge: c, Untrusted: untrusted, Issuer: issuer.flow, Account: issuer.account, Memory: *p.Memory, Settings: r.acmeDeps.Settings,
		NamespaceTerminating: r.namespaceTerminating(ctx, c, *p.Memory), Replaced: r.replaced(ctx, c),
	}}, nil
}

// mayNotStart says why a Challenge must not be started now; empty if it may be. While there is no issuer, nobody can
// say whether it gives the Challenge's solver, and the solver of what was started is called with credentials to clean
// up.
func (r *challenges) mayNotStart(ctx context.Context, c *acmev1.Challenge) (string, error) {
	issuer, err := observeIssuer(ctx, r.Deps, r.acmeDeps.Accounts, c.Spec.IssuerRef, c.Namespace)
	if err != nil || issuer.flow.Readiness == acmeflow.IssuerMissing {
		return issuer.flow.Message, err
	}
	return r.untrusted(ctx, c, issuer.flow)
}

// untrusted says why a Challenge must not be solved; empty if it may be. What is cached of its Order may lag behind the
// Challenge: before that ends a Challenge, the API server is asked.
func (r *challenges) untrusted(ctx context.Context, c *acmev1.Challenge, issuer acmeflow.Issuer) (string, error) {
	owner := metav1.GetControllerOf(c)
	if owner == nil || owner.Kind != acmev1.OrderKind || owner.APIVersion != acmev1.SchemeGroupVersion().String() {
		return acmeflow.Untrusted(nil, issuer, c), nil
	}
	key := client.ObjectKey{Namespace: c.Namespace, Name: owner.Name}
	judge := func(read func(*acmev1.Order) error) (string, error) {
		order := &acmev1.Order{}
		err := read(order)
		if apierrors.IsNotFound(err) || order.UID != owner.UID {
			order = nil
		}
		return acmeflow.Untrusted(order, issuer, c), client.IgnoreNotFound(err)
	}
	why, err := judge(func(o *acmev1.Order) error { return r.Client.Get(ctx, key, o) })
	if err != nil || why == "" || c.Status.State.IsFinal() || c.DeletionTimestamp != nil {
		return why, err
	}
	return judge(func(o *acmev1.Order) error { return r.Client.Live(ctx, r.Manager.GetAPIReader(), key, o) })
}

// plan says what an action means.
func (r *challenges) plan(_ context.Context, p *challengePass, v challengeView, action challenge.Action) (engine.Plan, error) {
	plan := engine.Plan{Wake: action.Wake, Done: action.Step == challenge.Done}
	if action.Step.External() && action.Wake.IsZero() {
		// A call that never comes back is no event: look whether it has lost its slot.
		plan.Wake = r.Now().Add(r.acmeDeps.Settings.YieldAfter)
	}
	c := p.Object
	if action.Status != nil {
		c = c.DeepCopy()
		c.Status = *action.Status
		plan.Status = c
	}
	plan.Then = func(ctx context.Context) error {
		if action.Status != nil && !p.Object.Status.State.IsFinal() {
			r.learn(ctx, c, p.Memory)
		}
		r.scheduler.decided(ctx, c, action)
		return r.do(ctx, p, v.issuer, c, action.Step)
	}
	if r.Settings.StepEvents && action.Status != nil && !p.Object.Status.Presented && action.Status.Presented {
		plan.Events = append(plan.Events, engine.Event{Reason: acmev1.ChallengeReasonPresented, Message: fmt.Sprintf(
			"Presented challenge using %s challenge mechanism", c.Spec.Type)})
	}
	if action.Event != nil {
		plan.Events = append(plan.Events, engine.Event(*action.Event))
	}
	wrote := action.Status != nil || action.Step == challenge.AddFinalizer || action.Step == challenge.RemoveFinalizer
	plan.Again = wrote && !action.Step.External()
	queued := !c.Status.Processing && !c.Status.Presented && c.Status.Reason == "" // the scheduler says what for
	if !plan.Done && !queued {
		plan.Waits = waitFor(action.Wake, c.Status.Reason)
	}
	return plan, nil
}

// namespaceTerminating asks the API server, but only where it matters: for a
// Challenge that is being deleted and whose clean-up fails.
func (r *challenges) namespaceTerminating(ctx context.Context, c *acmev1.Challenge, m challenge.Memory) bool {
	if c.DeletionTimestamp == nil || m.Failed != challenge.CleanUp {
		return false
	}
	namespace := &corev1.Namespace{}
	if err := r.Manager.GetAPIReader().Get(ctx, client.ObjectKey{Name: c.Namespace}, namespace); err != nil {
		return false // the clean-up's own limit holds
	}
	return namespace.DeletionTimestamp != nil
}

// do takes the step of an action.
func (r *challenges) do(ctx context.Context, p *challengePass, issuer acmeIssuer, c *acmev1.Challenge, step challenge.Step) error {
	switch {
	case step == challenge.Wait, step == challenge.Done:
		return nil
	case step.External():
		*p.Memory = p.Memory.Started(step, r.Now())
		p.Start(r.call(c, issuer.remote, step, p.Memory.Checks > 0))
		return nil
	case step == challenge.AddFinalizer:
		return r.setFinalizers(ctx, c, true)
	case step == challenge.RemoveFinalizer:
		return r.setFinalizers(ctx, c, false)
	default:
		return fmt.Errorf("challenge.Decide asked for %s, which the controller does not know: please report this as a bug", step)
	}
}

// setFinalizers removes ours, whatever its name, and adds the present one if it is
// wanted. Those of others stay: of a stub not all are known, so the API server is asked.
func (r *challenges) setFinalizers(ctx context.Context, c *acmev1.Challenge, wanted bool) error {
	if stub.Is(c) {
		live := &acmev1.Challenge{}
		if err := r.Manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(c), live); err != nil {
			return client.IgnoreNotFound(err)
		}
		if live.UID != c.UID { // ours is gone, and another one has its name
			return nil
		}
		c = live
	}
	changed := c.DeepCopy()
	controllerutil.RemoveFinalizer(changed, acmev1.ChallengeFinalizerLegacy)
	if wanted {
		controllerutil.AddFinalizer(changed, acmev1.ChallengeFinalizer)
	} else {
		controllerutil.RemoveFinalizer(changed, acmev1.ChallengeFinalizer)
	}
	return r.Client.Patch(ctx, changed, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{}))
}
