package route

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/machine/listeners"
	"chancery.dev/internal/machine/service"
)

// backend is the Service that a route leads to, and the port of that.
type backend struct {
	types.NamespacedName

	port int32
}

// Direct reports whether the route of a Challenge leads to the responder's own Service: some load balancers ignore a
// Service without a selector, which is what other routes lead to. The route of a Challenge in the responder's namespace
// can lead there, and an HTTPRoute of another namespace if a ReferenceGrant lets it.
func (r *Router) Direct(ctx context.Context, c *acmev1.Challenge) (bool, error) {
	to, err := r.own(ctx, c)
	return to.port != 0, err
}

// own is the responder's own Service, if the route of a Challenge can lead there; without a port if it cannot.
func (r *Router) own(ctx context.Context, c *acmev1.Challenge) (backend, error) {
	http, responder := c.Spec.Solver.HTTP01, r.o.Responder
	switch {
	case r.o.Pods.Answer(http):
		return backend{}, nil
	case c.Namespace == responder.Namespace:
	case http.GatewayHTTPRoute == nil:
		return backend{}, nil
	default:
		if granted, err := r.parents.granted(ctx, c.Namespace, responder); !granted {
			return backend{}, err
		}
	}
	found, hidden, err := look(ctx, r.parents, responder, &corev1.Service{})
	if err != nil || hidden.why != "" {
		return backend{}, err
	}
	return backend{responder, service.PortOf(found)}, nil
}

// granted reports whether HTTPRoutes of a namespace may lead to a Service, by what the ReferenceGrants were a moment
// ago.
func (p *parents) granted(ctx context.Context, from string, to types.NamespacedName) (bool, error) {
	select {
	case p.reading <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-p.reading }()
	if now := p.now(); now.Sub(p.grantsAt) >= lookFor {
		list := &gwapiv1beta1.ReferenceGrantList{}
		if _, err := notThere(p.client.List(ctx, list, client.InNamespace(to.Namespace))); err != nil {
			return false, err
		}
		p.grants, p.grantsAt = list.Items, now
	}
	return listeners.Granted(p.grants, from, to), nil
}
