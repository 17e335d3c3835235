package route

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwapiv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/machine/listeners"
)

// lookFor is how long a parent is remembered that was read, so that Challenges that come together read it once. It is
// less than parentRetry, so that the next try sees a corrected Gateway.
const lookFor = 3 * time.Second

// attachment returns the parents that the HTTPRoute of a Challenge attaches to.
func (r *Router) attachment(ctx context.Context, c *acmev1.Challenge) (listeners.Choice, error) {
	route := listeners.Route{Namespace: c.Namespace, Host: strings.ToLower(hostOf(c))}
	var parents []listeners.Parent
	for _, ref := range c.Spec.Solver.HTTP01.GatewayHTTPRoute.ParentRefs {
		p, err := r.parents.parent(ctx, ref, c.Namespace, c.Namespace)
		if err != nil {
			return listeners.Choice{}, err
		}
		if needsLabels(p, c.Namespace) || p.Gateway != nil && needsLabels(*p.Gateway, c.Namespace) {
			namespace, hidden, err := look(ctx, r.parents, client.ObjectKey{Name: c.Namespace}, &corev1.Namespace{})
			if err != nil {
				return listeners.Choice{}, err
			}
			if hidden.why != "" {
				p = listeners.Parent{Ref: ref, AsWritten: true, Note: fmt.Sprintf("whether %s admits namespace %s is not known: %s", p, c.Namespace, hidden.why)}
			} else {
				route.Labels = namespace.Labels
			}
		}
		parents = append(parents, p)
	}
	return listeners.Choose(parents, route), nil
}

// needsLabels reports whether the labels of a route's namespace are to be read for a parent. They are read for each one
// of another namespace: whether they can be read must not tell whether it exists.
func needsLabels(p listeners.Parent, namespace string) bool {
	return !p.AsWritten && (p.Namespace != namespace || listeners.NeedsLabels(p.Listeners))
}

// parents reads the parents of HTTPRoutes: one at a time, when a Challenge needs them, and without a watch, which would
// cost something where the Gateway API is not used.
type parents struct {
	client client.Client
	now    func() time.Time

	// reading has room for one reader, which may use the rest.
	reading chan struct{}
	seen    map[client.ObjectKey]sight
	// grants are the ReferenceGrants of the responder's namespace, as they were at a time.
	grants   []gwapiv1beta1.ReferenceGrant
	grantsAt time.Time
}

// sight is an object that was read at a time, or why it cannot be read.
type sight struct {
	at     time.Time
	obj    client.Object
	unseen unseen
}

// unseen says why an object cannot be read, and what cannot be changed by a role: that it does not exist. It is empty
// if the object can be read.
type unseen struct {
	why    string
	absent bool
}

// parent reads the object that a parentRef of an object in a namespace names, for a route in a namespace. The reference
// is used as it is written if it names a section or port, is no kind of the Gateway API, or cannot be read. One of
// another namespace that does not exist has no listeners.
func (p *parents) parent(ctx context.Context, ref gwapiv1.ParentReference, namespace, routeNamespace string) (listeners.Parent, error) {
	kind, key := listeners.Target(ref, namespace)
	switch {
	case listeners.Named(ref):
		return listeners.Parent{Ref: ref, AsWritten: true}, nil
	case kind == "Gateway":
		out, found, err := lookAt(ctx, p, ref, key, routeNamespace, &gwapiv1.Gateway{})
		if err == nil && !out.AsWritten {
			out.Listeners = listeners.Of(found)
		}
		return out, err
	case kind == "ListenerSet":
		return p.listenerSet(ctx, ref, key, routeNamespace)
	default:
		return listeners.Parent{Ref: ref, AsWritten: true}, nil
	}
}

func (p *parents) listenerSet(ctx context.Context, ref gwapiv1.ParentReference, key client.ObjectKey, routeNamespace string) (listeners.Parent, error) {
	out, found, err := lookAt(ctx, p, ref, key, routeNamespace, &gwapiv1.ListenerSet{})
	if err != nil || out.AsWritten || found.Name == "" {
		return out, err
	}
	out.Listeners = listeners.OfSet(found)
	of := found.Spec.ParentRef
	by := gwapiv1.ParentReference{Group: of.Group, Kind: of.Kind, Namespace: of.Namespace, Name: of.Name}
	_, at := listeners.Target(by, found.Namespace)
	by.Namespace = new(gwapiv1.Namespace(at.Namespace)) // the route may be in another one
	gateway, err := p.parent(ctx, by, at.Namespace, routeNamespace)
	if err == nil && !gateway.AsWritten {
		out.Gateway = &gateway
	}
	return out, err
}

// lookAt is look for a parent of a route in a namespace. A reference to a parent that cannot be read is used as it is
// written.
func lookAt[T client.Object](
	ctx context.Context, p *parents, ref gwapiv1.ParentReference, key client.ObjectKey, routeNamespace string, into T,
) (listeners.Parent, T, error) {
	out := listeners.Parent{Ref: ref, Namespace: key.Namespace}
	found, hidden, err := look(ctx, p, key, into)
	if err == nil && hidden.why != "" && (!hidden.absent || key.Namespace == routeNamespace) {
		out.AsWritten, out.Note = true, fmt.Sprintf("%s %s", out, hidden.why)
	}
	return out, found, err
}

// look reads an object, or returns it as it was a moment ago. If it does not exist, its kind is not served, or it may
// not be read, there is no error, and hidden says so.
func look[T client.Object](ctx context.Context, p *parents, key client.ObjectKey, into T) (found T, hidden unseen, err error) {
	place := client.ObjectKey{Namespace: key.Namespace, Name: fmt.Sprintf("%T/%s", into, key.Name)}
	select {
	case p.reading <- struct{}{}:
	case <-ctx.Done():
		return into, unseen{}, ctx.Err()
	}
	defer func() { <-p.reading }()
	now := p.now()
	maps.DeleteFunc(p.seen, func(_ client.ObjectKey, s sight) bool { return now.Sub(s.at) >= lookFor })
	s, fresh := p.seen[place]
	if !fresh {
		if s.unseen, err = notThere(p.client.Get(ctx, key, into)); err != nil {
			return into, unseen{}, err
		}
		s.at, s.obj = now, into
		p.seen[place] = s
	}
	if before, ok := s.obj.(T); ok {
		into = before
	}
	return into, s.unseen, nil
}

// notThere separates errors that say that an object cannot be read from those that a retry may mend.
func notThere(err error) (unseen, error) {
	switch {
	case apierrors.IsNotFound(err):
		return unseen{why: "does not exist", absent: true}, nil
	case apierrors.IsForbidden(err):
		return unseen{why: "may not be read: " + err.Error()}, nil
	case meta.IsNoMatchError(err):
		return unseen{why: "is of a kind that this cluster does not serve"}, nil
	default:
		return unseen{}, err
	}
}
