package orders

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/machine/account"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/schedule"
)

// ACMEDeps is what Orders and Challenges need beside controller.Deps.
type ACMEDeps struct {
	// Accounts are the ACME accounts that issuers have been set up with.
	Accounts *accounts.Registry
	// Limits cap the challenges in flight (mission rule 3).
	Limits schedule.Options
	// Settings are the times.
	Settings acmeflow.Settings
	// Process is what this process marks the Orders with that it makes.
	Process string
}

// acmeIssuer is what an Order or a Challenge sees of its issuer.
type acmeIssuer struct {
	flow    acmeflow.Issuer
	account acmeflow.AccountState
	// remote is nil unless the account can be used.
	remote *accounts.Account
}

// observeIssuer looks at the issuer that an object in the namespace names.
func observeIssuer(ctx context.Context, d *controller.Deps, registry *accounts.Registry, ref cmmeta.IssuerReference, namespace string) (acmeIssuer, error) {
	missing := func(format string, args ...any) (acmeIssuer, error) {
		return acmeIssuer{flow: acmeflow.Issuer{Readiness: acmeflow.IssuerMissing, Message: fmt.Sprintf(format, args...)}}, nil
	}
	switch d.Scope.Reach(ref) {
	case controller.OfOthers:
		return missing("issuers of group %q are not ours", ref.Group)
	case controller.Unreadable:
		return missing("ClusterIssuers are not read with --namespace")
	case controller.OutOfScope:
		return acmeIssuer{flow: acmeflow.Issuer{Readiness: acmeflow.IssuerStarting}}, nil // another process does what is to be done
	case controller.WithinReach:
	}
	issuer := certmanagerv1.NewIssuer(ref, namespace)
	err := d.Client.Get(ctx, client.ObjectKeyFromObject(issuer), issuer)
	switch {
	case apierrors.IsNotFound(err):
		return missing("there is no %s of that name", ref.KindOrDefault())
	case err != nil:
		return acmeIssuer{}, err
	}
	spec := issuer.GetSpec().ACME
	if spec == nil {
		return missing("the %s of that name is not an ACME issuer", ref.KindOrDefault())
	}
	return viewOf(issuer, spec, registry), nil
}

func viewOf(issuer certmanagerv1.GenericIssuer, spec *acmev1.ACMEIssuer, registry *accounts.Registry) acmeIssuer {
	view := acmeIssuer{flow: acmeflow.Issuer{Solvers: spec.Solvers, PreferredChain: spec.PreferredChain}}
	ready := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	used, bound := registry.Of(issuer.GetUID())
	if bound {
		view.account.Thumbprint, view.account.URL = used.Thumbprint(), used.URL()
		view.account.ParkedUntil, view.account.ParkedReason = used.Parked()
		view.account.Changing = used.Changing()
		if view.account.URL != "" {
			view.remote = used
		}
	}
	share, err := account.ParseShare(issuer.GetAnnotations()[acmev1.OrdersPerNamespaceAnnotation])
	view.flow.Share = share
	switch {
	case err != nil:
		view.flow.Readiness = acmeflow.IssuerNotReady
		view.flow.Message = fmt.Sprintf("its annotation %s: %s", acmev1.OrdersPerNamespaceAnnotation, err)
	case ready == nil:
		view.flow.Readiness = acmeflow.IssuerNotReady
	case ready.Status != cmmeta.ConditionTrue:
		view.flow.Readiness, view.flow.Message = acmeflow.IssuerNotReady, ready.Message
	case view.remote == nil:
		view.flow.Readiness = acmeflow.IssuerStarting
	}
	return view
}

// followAccounts queues the objects of a kind whose issuer's account has changed.
func followAccounts(d *controller.Deps, registry *accounts.Registry, list client.ObjectList, ring func(types.NamespacedName)) {
	registry.Watch(func(i accounts.Issuer, _ accounts.Change) {
		for _, req := range d.Indexed(context.Background(), list, controller.IssuerIndex, controller.IssuerKey(i.Namespace, i.Name)) {
			ring(req.NamespacedName)
		}
	})
}

// releaseAccounts makes the registry forget issuers that are deleted.
func releaseAccounts(ctx context.Context, d *controller.Deps, registry *accounts.Registry) error {
	for _, kind := range d.Scope.IssuerKinds() {
		informer, err := d.Manager.GetCache().GetInformer(ctx, kind)
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			if o, ok := informers.LastOf[client.Object](obj); ok {
				registry.Release(accounts.Issuer{UID: o.GetUID(), Namespace: o.GetNamespace(), Name: o.GetName()})
			}
		}}); err != nil {
			return err
		}
	}
	return nil
}

// solverNamespace is where the Secrets are that a Challenge's solver names.
func (r *challenges) solverNamespace(c *acmev1.Challenge) string {
	if c.Spec.IssuerRef.KindOrDefault() == cmmeta.ClusterIssuerKind {
		return r.Settings.ClusterResourceNamespace
	}
	return c.Namespace
}
