package orders

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
)

// tracedOrder makes an Order belong to the issuance of the request that owns the Order.
func tracedOrder() *engine.Traced {
	return &engine.Traced{
		Issuance: func(_ context.Context, order client.Object) types.UID { return ownerOf(order) },
		Issuer:   func(o client.Object) string { return o.(*acmev1.Order).Spec.IssuerRef.Name }, //nolint:forcetypeassert // of that kind
		Over: func(o client.Object) (bool, string) {
			s := o.(*acmev1.Order).Status //nolint:forcetypeassert // of that kind
			return s.State.IsFinal(), problem(s.State, s.Reason)
		},
	}
}

// tracedChallenge makes a Challenge belong to the issuance of its Order.
func tracedChallenge(d *controller.Deps) *engine.Traced {
	return &engine.Traced{
		Issuance: func(ctx context.Context, c client.Object) types.UID { return issuanceOfChallenge(ctx, d, c) },
		Issuer:   func(c client.Object) string { return c.(*acmev1.Challenge).Spec.IssuerRef.Name }, //nolint:forcetypeassert // of that kind
		Over: func(c client.Object) (bool, string) {
			s := c.(*acmev1.Challenge).Status //nolint:forcetypeassert // of that kind
			return s.State.IsFinal(), problem(s.State, s.Reason)
		},
	}
}

// problem is the reason of a state, if that is a failure.
func problem(state acmev1.State, reason string) string {
	if !state.IsFinal() || state == acmev1.Valid {
		return ""
	}
	return string(state) + ": " + reason
}

// issuanceOfChallenge returns the UID of the request that a Challenge is for; empty if its Order is not there any more.
func issuanceOfChallenge(ctx context.Context, d *controller.Deps, c client.Object) types.UID {
	owner, order := metav1.GetControllerOf(c), &acmev1.Order{}
	if owner == nil || d.Client.Get(ctx, client.ObjectKey{Namespace: c.GetNamespace(), Name: owner.Name}, order) != nil || order.UID != owner.UID {
		return ""
	}
	return ownerOf(order)
}

// ownerOf returns the UID of the controller of an object; empty if there is none.
func ownerOf(object client.Object) types.UID {
	if owner := metav1.GetControllerOf(object); owner != nil {
		return owner.UID
	}
	return ""
}
