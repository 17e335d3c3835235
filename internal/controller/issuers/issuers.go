// Package issuers reconciles Issuers and ClusterIssuers: it has their Signer make
// them ready, and says so in their status. It signs nothing.
package issuers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/signer"
)

// +kubebuilder:rbac:groups=cert-manager.io,resources=issuers;clusterissuers,verbs=get;list;watch
// +kubebuilder:rbac:groups=cert-manager.io,resources=issuers/status;clusterissuers/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// secretIndex finds the issuers that name a Secret.
const secretIndex = "chancery.dev/issuer-secrets"

// Reasons of an issuer that cannot be set up at all.
const (
	reasonTypeMissing   = "IssuerTypeMissing"
	reasonTypeUnmanaged = "IssuerTypeNotManaged"
)

// issuers makes the issuers of one kind ready.
type issuers struct {
	*controller.Deps

	fresh  func() certmanagerv1.GenericIssuer
	events record.EventRecorder
}

// Setup adds the reconciler of Issuers. Again queues those whose Signer asked to be
// called again.
func Setup(ctx context.Context, d *controller.Deps, again *controller.Doorbell) error {
	r := &issuers{Deps: d, events: d.Events("cert-manager-issuers"), fresh: func() certmanagerv1.GenericIssuer { return &certmanagerv1.Issuer{} }}
	return r.setup(ctx, "issuers", &certmanagerv1.Issuer{}, &certmanagerv1.IssuerList{}, again)
}

// SetupCluster adds the reconciler of ClusterIssuers, as Setup does for Issuers.
func SetupCluster(ctx context.Context, d *controller.Deps, again *controller.Doorbell) error {
	r := &issuers{Deps: d, events: d.Events("cert-manager-clusterissuers"), fresh: func() certmanagerv1.GenericIssuer { return &certmanagerv1.ClusterIssuer{} }}
	return r.setup(ctx, "clusterissuers", &certmanagerv1.ClusterIssuer{}, &certmanagerv1.ClusterIssuerList{}, again)
}

func (r *issuers) setup(ctx context.Context, name string, kind client.Object, list client.ObjectList, again *controller.Doorbell) error {
	if err := r.Manager.GetFieldIndexer().IndexField(ctx, kind, secretIndex, r.secretsOf); err != nil {
		return err
	}
	if err := r.Observed(ctx, kind); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(r.Manager).Named(name).
		For(kind, builder.WithPredicates(r.inScope())).
		WithOptions(r.Options(time.Second, 5*time.Minute)).
		WatchesRawSource(r.OnSecret(func(ctx context.Context, s client.Object) []reconcile.Request {
			return r.naming(ctx, list, s)
		})).
		WatchesRawSource(again).
		Complete(r)
}

func (r *issuers) inScope() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() != "" || r.Scope.Holds(o.GetName())
	})
}

// secretsOf lists the Secrets that an issuer names, as namespace/name.
func (r *issuers) secretsOf(obj client.Object) []string {
	issuer, ok := obj.(certmanagerv1.GenericIssuer)
	if !ok {
		return nil
	}
	ns := signer.ResourceNamespace(issuer, r.Settings.ClusterResourceNamespace)
	var out []string
	for _, name := range signer.SecretNames(issuer.GetSpec()) {
		out = append(out, ns+"/"+name)
	}
	return out
}

// naming lists the issuers to look at again after a Secret has changed.
func (r *issuers) naming(ctx context.Context, list client.ObjectList, s client.Object) []reconcile.Request {
	found := list.DeepCopyObject().(client.ObjectList) //nolint:forcetypeassert // a copy is of the same type
	if err := r.Manager.GetCache().List(ctx, found, client.MatchingFields{secretIndex: s.GetNamespace() + "/" + s.GetName()}); err != nil {
		return nil // only before the caches have synced, and then every issuer is looked at anyway
	}
	var out []reconcile.Request
	add := func(name types.NamespacedName) { out = append(out, reconcile.Request{NamespacedName: name}) }
	switch found := found.(type) {
	case *certmanagerv1.IssuerList:
		for i := range found.Items {
			add(client.ObjectKeyFromObject(&found.Items[i]))
		}
	case *certmanagerv1.ClusterIssuerList:
		for i := range found.Items {
			if r.Scope.Holds(found.Items[i].Name) {
				add(client.ObjectKeyFromObject(&found.Items[i]))
			}
		}
	}
	return out
}

// Reconcile sets one issuer up and says so in its status.
func (r *issuers) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	issuer := r.fresh()
	if err := r.Client.Get(ctx, req.NamespacedName, issuer.(client.Object)); err != nil { //nolint:forcetypeassert // both kinds are
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if issuer.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	status, failure := r.setUp(ctx, issuer)
	if err := r.apply(ctx, issuer, status); err != nil {
		return controller.Settle(err)
	}
	return controller.Settle(failure)
}

func (r *issuers) setUp(ctx context.Context, issuer certmanagerv1.GenericIssuer) (certmanagerv1.IssuerStatus, error) {
	kind := signer.TypeOf(issuer.GetSpec())
	s, managed := r.Signers[kind]
	switch {
	case kind == "":
		return signer.ReadyStatus(issuer, r.Now(), false, reasonTypeMissing,
			"spec names no issuer type: set one of acme, ca, selfSigned, vault, venafi"), nil
	case !managed:
		return signer.ReadyStatus(issuer, r.Now(), false, reasonTypeUnmanaged,
			"this controller does not manage issuers of the type "+string(kind)), nil
	}
	setupper, ok := s.(signer.Setupper)
	if !ok {
		return signer.ReadyStatus(issuer, r.Now(), true, "IsReady", ""), nil
	}
	return setupper.Setup(ctx, issuer)
}

// apply writes the status if it has changed, with a Warning for an issuer that
// is newly not ready.
func (r *issuers) apply(ctx context.Context, issuer certmanagerv1.GenericIssuer, status certmanagerv1.IssuerStatus) error {
	if equality.Semantic.DeepEqual(status, *issuer.GetStatus()) {
		return nil
	}
	changed := issuer.DeepCopyObject().(certmanagerv1.GenericIssuer) //nolint:forcetypeassert // a copy is of the same type
	*changed.GetStatus() = status
	//nolint:forcetypeassert // both kinds of issuer are API objects
	if err := r.WriteStatus(ctx, issuer.(client.Object), changed.(client.Object)); err != nil {
		return err
	}
	now := certmanagerv1.FindIssuerCondition(status.Conditions, certmanagerv1.IssuerConditionReady)
	was := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	if now != nil && now.Status == cmmeta.ConditionFalse && (was == nil || was.Reason != now.Reason || was.Message != now.Message) {
		controller.Emit(r.events, changed, true, now.Reason, now.Message)
	}
	return nil
}
