package issuers

import (
	"context"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
)

// All lists the issuers of both kinds that are in scope, from the cache. They MUST NOT be
// changed.
func All(d *controller.Deps) func(context.Context) ([]certmanagerv1.GenericIssuer, error) {
	return func(ctx context.Context) ([]certmanagerv1.GenericIssuer, error) {
		var out []certmanagerv1.GenericIssuer
		namespaced, global := &certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{}
		if err := d.Manager.GetCache().List(ctx, namespaced); err != nil {
			return nil, err
		}
		for i := range namespaced.Items {
			out = append(out, &namespaced.Items[i])
		}
		if d.Scope.NamespacedOnly {
			return out, nil
		}
		if err := d.Manager.GetCache().List(ctx, global); err != nil {
			return nil, err
		}
		for i := range global.Items {
			if d.Scope.Holds(global.Items[i].Name) {
				out = append(out, &global.Items[i])
			}
		}
		return out, nil
	}
}

// Teller emits events about issuers beside those of their condition.
func Teller(d *controller.Deps) func(issuer certmanagerv1.GenericIssuer, warning bool, reason, message string) {
	events := d.Events("cert-manager-issuers")
	return func(issuer certmanagerv1.GenericIssuer, warning bool, reason, message string) {
		d.Engine.Tell(events, issuer, engine.Event{Warning: warning, Reason: reason, Message: message})
	}
}
