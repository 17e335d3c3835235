package issuers

import (
	"context"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
)

// All lists the issuers of both kinds that are in scope, from the cache. They MUST NOT be
// changed.
func All(d *controller.Deps) func(context.Context) ([]certmanagerv1.GenericIssuer, error) {
	return func(ctx context.Context) (out []certmanagerv1.GenericIssuer, err error) {
		namespaced, global := &certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{}
		if err = d.Manager.GetCache().List(ctx, namespaced); err == nil && !d.Scope.NamespacedOnly {
			err = d.Manager.GetCache().List(ctx, global)
		}
		for i := range namespaced.Items {
			out = append(out, &namespaced.Items[i])
		}
		for i := range global.Items {
			if d.Scope.Holds(global.Items[i].Name) {
				out = append(out, &global.Items[i])
			}
		}
		return out, err
	}
}
