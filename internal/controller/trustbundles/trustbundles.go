// Package trustbundles writes, with internal/engine, the roots of CA issuers that ask for it into ClusterTrustBundles,
// from which kubelets put them into volumes of Pods. internal/machine/trustbundle decides.
package trustbundles

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/machine/trustbundle"
	"chancery.dev/internal/signer"
)

type (
	bundle = certificatesv1.ClusterTrustBundle
	// memory is what an event has told of last.
	memory string
	pass   = engine.Pass[*bundle, memory]
)

// observation is a bundle as a pass sees it.
type observation struct {
	trustbundle.State

	// retry is the error for which the roots are read again; nil for none.
	retry error
}

type bundles struct {
	*controller.Deps

	of Issuers
}

// Setup adds the controller, as soon as the cluster serves the bundles: API servers have them since Kubernetes 1.37,
// and as v1beta1 since 1.33, where that is switched on.
func Setup(d *controller.Deps, of Issuers) error {
	r := &bundles{d, of}
	return d.Late(func(ctx context.Context) error {
		return d.WhenServedAs(ctx, r.add, podapi.BundleKind(), podapi.Versions()...)
	})
}

func (r *bundles) add(ctx context.Context, version string) error {
	d := r.Deps
	d.Pods.Take(podapi.BundleKind(), version)
	runner := engine.Run(d.Engine, engine.Kind[*bundle, memory, observation, trustbundle.Action]{
		Name: "ClusterTrustBundle", New: func() *bundle { return &bundle{} }, Absent: true,
		Events: d.Events("chancery-clustertrustbundles"), About: r.issuerRef,
		Observe: r.observe, Plan: r.plan, Refused: refused,
		Decide: func(o observation, now time.Time) trustbundle.Action { return trustbundle.Decide(o.State, now) },
	})
	if err := d.Observed(ctx, podapi.In(version, &bundle{})); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(d.Manager).Named("clustertrustbundles").
		For(podapi.In(version, &bundle{}), builder.WithPredicates(predicate.NewPredicateFuncs(isOurs))).
		WatchesRawSource(runner).
		WatchesRawSource(d.OnIssuerSecret(r.bundlesOf)).
		WithOptions(d.Options(time.Second, time.Minute))
	for _, kind := range d.Scope.IssuerKinds() {
		b = b.Watches(kind, handler.EnqueueRequestsFromMapFunc(r.bundlesOf))
	}
	return b.Complete(runner)
}

func isOurs(object client.Object) bool {
	_, _, ours := trustbundle.SignerOf(object.GetName())
	return ours
}

// bundlesOf lists the bundles of an issuer that asks for them, or has them.
func (r *bundles) bundlesOf(ctx context.Context, issuer client.Object) (out []reconcile.Request) {
	for _, name := range trustbundle.Names(issuer) {
		key := types.NamespacedName{Name: name}
		if certmanagerv1.WantsTrustBundle(issuer) || r.Client.Get(ctx, key, &bundle{}) == nil {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out
}

// issuerRef is what events are about.
func (r *bundles) issuerRef(b *bundle) *corev1.ObjectReference {
	_, of, _ := trustbundle.SignerOf(b.Name)
	ref := &corev1.ObjectReference{
		APIVersion: certmanagerv1.SchemeGroupVersion().String(), Kind: of.Reference().Kind, Namespace: of.Namespace, Name: of.Name,
	}
	if issuer, err := r.IssuerOf(context.Background(), of.Namespace, of.Reference()); err == nil && issuer != nil { // it is in the cache
		ref.UID = issuer.GetUID()
	}
	return ref
}

// observe reads a bundle, its issuer, and the roots of the issuer.
func (r *bundles) observe(ctx context.Context, p *pass) (observation, error) {
	o := observation{State: trustbundle.State{Bundle: p.Object}}
	_, of, ours := trustbundle.SignerOf(p.Object.Name)
	elsewhere := of.Namespace != "" && !r.Scope.Covers(of.Namespace)
	if o.OutOfScope = !ours || elsewhere || r.Scope.Reach(of.Reference()) != controller.WithinReach; o.OutOfScope {
		return o, nil
	}
	issuer, err := r.IssuerOf(ctx, of.Namespace, of.Reference())
	if err != nil || issuer == nil {
		return o, err
	}
	if o.OutOfScope = engine.IsIgnored(issuer); o.OutOfScope || !certmanagerv1.WantsTrustBundle(issuer) {
		return o, nil
	}
	teller, tells := r.Signers[signer.TypeOf(issuer.GetSpec())].(signer.RootTeller)
	switch {
	case !tells:
		o.Problem = "only CA issuers have one"
		return o, nil
	case of.Namespace != "" && r.of != All:
		o.Problem = "the controller makes them for ClusterIssuers only, unless it runs with --trust-bundles=all"
		return o, nil
	}
	o.Wanted = true
	if o.Roots, err = teller.Roots(ctx, issuer); err == nil {
		return o, nil
	}
	f := fault.Of(err)
	if f == nil {
		return o, err
	}
	if o.Problem = err.Error(); f.Kind == fault.KindAfter {
		o.retry = err
	}
	return o, nil
}

// plan says what a decision means.
func (r *bundles) plan(_ context.Context, p *pass, o observation, a trustbundle.Action) (engine.Plan, error) {
	plan := engine.Plan{Wake: a.Wake, Done: a.Done, Failure: o.retry}
	said := memory(a.Message)
	if o.retry != nil { // the words of an error may be others each time
		said = memory(a.Reason)
	}
	if a.Message != "" {
		plan.Waits = engine.For{What: engine.WaitEvent, Detail: a.Message}
		if *p.Memory != said {
			plan.Events = []engine.Event{{Warning: true, Reason: a.Reason, Message: a.Message}}
		}
	}
	*p.Memory = said
	plan.First = func(ctx context.Context) error {
		switch {
		case a.Delete:
			return r.Client.Delete(ctx, p.Object)
		case a.Write == nil:
			return nil
		case p.Object.UID == "":
			return r.Client.Create(ctx, a.Write)
		default:
			return r.Client.Patch(ctx, a.Write, client.MergeFromWithOptions(p.Object, client.MergeFromWithOptimisticLock{}))
		}
	}
	return plan, nil
}

// refused says what the API server does not let us write.
func refused(p *pass, err error) engine.Event {
	message := fmt.Sprintf("The API server does not let the controller write or delete the ClusterTrustBundle %s: %v", p.Object.Name, err)
	if apierrors.IsForbidden(err) {
		message += "; the rights come with chancery install --trust-bundles, or chancery.trustBundles of the chart"
	}
	return engine.Event{Warning: true, Reason: trustbundle.ReasonNotWritten, Message: message}
}

// Thin is the cache.TransformFunc of ClusterTrustBundles; others has all other kinds. Of a bundle of somebody else, it
// keeps who it is.
func Thin(others toolscache.TransformFunc) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		b, is := podapi.ToV1(obj).(*bundle)
		if !is {
			return others(obj)
		}
		if b.Labels[certmanagerv1.TrustBundleLabel] == certmanagerv1.LabelTrue && isOurs(b) {
			return cache.TransformStripManagedFields()(obj)
		}
		thin := &bundle{}
		thin.Name, thin.UID, thin.ResourceVersion, thin.DeletionTimestamp = b.Name, b.UID, b.ResourceVersion, b.DeletionTimestamp
		return podapi.In(podapi.VersionOf(obj), thin), nil
	}
}
