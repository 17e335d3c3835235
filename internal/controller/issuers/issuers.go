// Package issuers reconciles Issuers and ClusterIssuers with internal/engine. It asks each issuer's Signer whether the
// issuer can be used, and writes the answer into the issuer's status. For an ACME issuer, it makes and changes the
// Secret with the key of the account. It signs nothing.
package issuers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/machine/issuer"
	"chancery.dev/internal/signer"
)

// +kubebuilder:rbac:groups=cert-manager.io,resources=issuers;clusterissuers,verbs=get;list;watch
// +kubebuilder:rbac:groups=cert-manager.io,resources=issuers/status;clusterissuers/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// kind is one of the two kinds of issuer, pass one look at an issuer.
type (
	kind = engine.Kind[certmanagerv1.GenericIssuer, memory, observation, issuer.Action]
	pass = engine.Pass[certmanagerv1.GenericIssuer, memory]
)

// memory is what is remembered of an issuer from pass to pass.
type memory struct {
	// testing is the id of the test of a solver that this process has started; empty for none.
	testing string
	account accountMemory
}

// observation is what a pass has found of an issuer.
type observation struct {
	issuer.State

	// account is what its account needs now; nil if that is nothing, or is not known yet.
	account *accountView
}

// issuers looks after the issuers of one kind.
type issuers struct{ *controller.Deps }

// Setup adds the controller of Issuers.
func Setup(ctx context.Context, d *controller.Deps) error {
	return setup(ctx, d, &certmanagerv1.IssuerList{}, kind{
		Name: cmmeta.DefaultIssuerKind, New: func() certmanagerv1.GenericIssuer { return &certmanagerv1.Issuer{} },
	})
}

// SetupCluster adds the controller of ClusterIssuers, as Setup does for Issuers.
func SetupCluster(ctx context.Context, d *controller.Deps) error {
	return setup(ctx, d, &certmanagerv1.ClusterIssuerList{}, kind{
		Name: cmmeta.ClusterIssuerKind, New: func() certmanagerv1.GenericIssuer { return &certmanagerv1.ClusterIssuer{} },
	})
}

func setup(ctx context.Context, d *controller.Deps, list client.ObjectList, k kind) error {
	r, name := &issuers{d}, strings.ToLower(k.Name)+"s"
	k.Events = d.Events("cert-manager-" + name)
	runner, object := engine.Run(d.Engine, r.kind(k)), k.New()
	if err := r.Observed(ctx, object); err != nil {
		return err
	}
	for _, by := range r.Signers {
		if holder, ok := by.(signer.AccountHolder); ok {
			holder.OnLost(ringOf(k.Name, runner.Ring))
		}
	}
	watches := ctrl.NewControllerManagedBy(r.Manager)
	if r.HTTP01 != nil {
		watches.Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.afterResponder(k.Name == cmmeta.ClusterIssuerKind)))
	}
	return watches.Named(name).
		For(object, builder.WithPredicates(r.inScope())).
		WithOptions(r.Options(time.Second, 5*time.Minute)).
		WatchesRawSource(r.OnSecret(func(ctx context.Context, s client.Object) []reconcile.Request {
			return r.naming(ctx, list, s)
		})).
		WatchesRawSource(runner).
		Complete(runner)
}

// ringOf rings the issuers of one kind.
func ringOf(kind string, ring func(types.NamespacedName)) func(types.NamespacedName) {
	return func(issuer types.NamespacedName) {
		if (issuer.Namespace == "") == (kind == cmmeta.ClusterIssuerKind) {
			ring(issuer)
		}
	}
}

// kind fills in what both kinds do alike.
func (r *issuers) kind(k kind) kind {
	k.Observe, k.Plan, k.Gone, k.TooLarge = r.observe, r.plan, r.gone, r.tooLarge
	k.Decide = func(o observation, now time.Time) issuer.Action { return issuer.Decide(o.State, now) }
	return k
}

// gone makes Signers drop what they keep of an issuer.
func (r *issuers) gone(_ types.NamespacedName, uid types.UID) { r.ForgetIssuer(uid) }

func (r *issuers) inScope() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() != "" || r.Scope.Holds(o.GetName())
	})
}

// naming lists the issuers to look at again after a Secret has changed.
func (r *issuers) naming(ctx context.Context, list client.ObjectList, s client.Object) []reconcile.Request {
	found := r.Indexed(ctx, list, controller.SecretIndex, s.GetNamespace()+"/"+s.GetName())
	return slices.DeleteFunc(found, func(q reconcile.Request) bool { return q.Namespace == "" && !r.Scope.Holds(q.Name) })
}

// afterResponder lists the issuers of one kind to look at again after an EndpointSlice of the responder has changed:
// those with a solver for HTTP-01.
func (r *issuers) afterResponder(clustered bool) handler.MapFunc {
	all := All(r.Deps)
	return func(ctx context.Context, slice client.Object) []reconcile.Request {
		if slice.GetNamespace() != r.HTTP01.Responder.Namespace || slice.GetLabels()[discoveryv1.LabelServiceName] != r.HTTP01.Responder.Name {
			return nil
		}
		found, err := all(ctx)
		if err != nil {
			return nil // only before the cache has synced, and then every issuer is looked at anyway
		}
		var out []reconcile.Request
		for _, issuer := range found {
			if (issuer.GetNamespace() == "") == clustered && len(http01Solvers(issuer)) > 0 {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(issuer)})
			}
		}
		return out
	}
}

// http01Solvers are those of an issuer.
func http01Solvers(issuer certmanagerv1.GenericIssuer) []*acmev1.HTTP01Solver {
	var out []*acmev1.HTTP01Solver
	if acme := issuer.GetSpec().ACME; acme != nil {
		for i := range acme.Solvers {
			if s := acme.Solvers[i].HTTP01; s != nil {
				out = append(out, s)
			}
		}
	}
	return out
}

// unanswered is the fault of the first solver of an issuer for whose challenges nobody would answer.
func (r *issuers) unanswered(ctx context.Context, issuer certmanagerv1.GenericIssuer) *fault.Fault {
	if r.HTTP01 == nil {
		return nil
	}
	for _, s := range http01Solvers(issuer) {
		if f := fault.Of(r.HTTP01.Unanswered(ctx, s)); f != nil {
			return f
		}
	}
	return nil
}

// tooLarge returns an issuer that is not ready since it is too large; nil if it says so.
func (r *issuers) tooLarge(i certmanagerv1.GenericIssuer, said string) client.Object {
	s := issuer.State{Issuer: i, Managed: true, Failure: fault.Pending(stub.Reason, "%s", said)}
	if status := issuer.Decide(s, r.Now()).Status; status != nil {
		return withStatus(i, *status)
	}
	return nil
}

func withStatus(i certmanagerv1.GenericIssuer, status certmanagerv1.IssuerStatus) client.Object {
	changed := i.DeepCopyObject().(certmanagerv1.GenericIssuer) //nolint:forcetypeassert // a copy is of the same type
	*changed.GetStatus() = status
	return changed
}

// observe looks at an issuer by its Signer: on the worker, or by calls of the engine.
func (r *issuers) observe(ctx context.Context, p *pass) (observation, error) {
	by, managed := r.Signers[signer.TypeOf(p.Object.GetSpec())]
	o := observation{State: issuer.State{Issuer: p.Object, Managed: managed, Unanswered: r.unanswered(ctx, p.Object)}}
	observeTest(p, &o.State)
	holder, holds := by.(signer.AccountHolder)
	prober, probes := by.(signer.Prober)
	remote, leaves := by.(signer.Remote)
	switch {
	case !managed || p.Object.GetDeletionTimestamp() != nil:
		return o, nil
	case holds:
		err := r.observeAccount(ctx, p, holder, &o)
		return o, err
	case !probes:
		o.Facts = &signer.Facts{Ready: true, Reason: certmanagerv1.IssuerReasonIsReady}
		return o, nil
	case leaves:
		err := r.ask(ctx, p, &o.State, engine.Call{
			Name: controller.ProbeCall, Lane: remote.Lane(p.Object),
			Run: func(ctx context.Context) (any, error) { return prober.Probe(ctx, p.Object) },
		})
		return o, err
	}
	facts, err := prober.Probe(ctx, p.Object)
	if err == nil {
		o.Facts = &facts
	}
	return o, o.fail(err, r.Now())
}

// fail notes how a look has failed that was made on the worker. An error that is no fault says nothing about the
// issuer: fail returns it.
func (o *observation) fail(err error, now time.Time) error {
	f := fault.Of(err)
	if f == nil {
		return err
	}
	if o.Failure = err; f.Kind == fault.KindAfter {
		o.Again = now.Add(max(f.Delay, time.Millisecond))
	}
	return nil
}

// ask notes how the call stands that looks at an issuer. What it has found is asked for again when it ends.
func (r *issuers) ask(ctx context.Context, p *pass, s *issuer.State, call engine.Call) error {
	var err error
	if call.Inputs, err = r.IssuerInputs(ctx, p.Object); err != nil {
		return err
	}
	answer := p.Ask(call)
	if facts, ok := answer.Value.(signer.Facts); ok && (facts.Until.IsZero() || r.Now().Before(facts.Until)) {
		s.Facts = &facts
	} else if ok {
		p.Forget(call.Name)
		answer = p.Ask(call)
	}
	s.Failure, s.Again = answer.Err, answer.Until
	return nil
}

// plan says what a decision means.
func (r *issuers) plan(_ context.Context, p *pass, s observation, a issuer.Action) (engine.Plan, error) {
	plan := engine.Plan{Wake: a.Wake, Then: r.followTest(p, s.State, a.Test)}
	if a.Status != nil {
		plan.Status = withStatus(p.Object, *a.Status)
	}
	if r.Settings.StepEvents && a.Status != nil {
		before := certmanagerv1.FindIssuerCondition(p.Object.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
		now := certmanagerv1.FindIssuerCondition(a.Status.Conditions, certmanagerv1.IssuerConditionReady)
		if now != nil && now.Status == cmmeta.ConditionTrue && (before == nil || before.Status != now.Status) {
			plan.Events = []engine.Event{{Reason: now.Reason, Message: now.Message}}
		}
	}
	if a.Warn != nil {
		plan.Events = []engine.Event{{Warning: true, Reason: a.Warn.Reason, Message: a.Warn.Message}}
	}
	if t := a.Ended; t != nil {
		plan.Events = append(plan.Events, engine.Event{
			Warning: t.Outcome == acmev1.SolverTestFailed, Reason: "SolverTest" + string(t.Outcome),
			Message: fmt.Sprintf("Test %s of the solver for %q: %s", t.ID, t.DNSName, t.Message),
		})
	}
	r.planAccount(p, s.account, &plan)
	switch {
	case s.Failure != nil:
		plan.Waits = engine.For{What: engine.WaitTime, Detail: s.Failure.Error()}
		if s.Again.IsZero() {
			plan.Waits.What = engine.WaitEvent
		}
		if s.Facts != nil {
			plan.Waits.Detail = s.Facts.Message
		}
	case a.Warn != nil:
		plan.Waits = engine.For{What: engine.WaitEvent, Detail: a.Warn.Message}
	}
	return plan, nil
}
