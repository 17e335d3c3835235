// Package route makes the route from the internet to the Responder of HTTP-01 challenges. For each Challenge, the
// package makes an Ingress, a path in an existing Ingress, or a Gateway API HTTPRoute. The package also makes the
// Service behind the route if the Service does not exist yet. Unlike in spec §5.8, no name has a random part.
// internal/controller/responderservices then maintains and deletes the Service. If the solver or the operator asks for
// pods, each Challenge gets its own pod and Service, and this pod answers instead of the Responder.
//
// The package answers no challenge and checks no answer: internal/solver/http01 answers and checks.
package route

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/service"
	"chancery.dev/internal/solver"
)

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;create;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=gateways;listenersets,verbs=get
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=referencegrants,verbs=list
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=challenges/finalizers,verbs=update

// The reasons of this package's faults.
const (
	// ReasonNoGatewayAPI: the cluster does not serve HTTPRoutes.
	ReasonNoGatewayAPI = "GatewayAPINotServed"
	// ReasonNoListener: no parent of an HTTPRoute has a listener for HTTP that admits it.
	ReasonNoListener = "NoAttachableListener"
	// ReasonIngressMissing: the Ingress to be edited does not exist.
	ReasonIngressMissing = "IngressNotFound"
	// ReasonNoResponder: nobody would answer.
	ReasonNoResponder = "NoResponder"
	// ReasonRouteTaken: somebody else has an object of the name that is needed.
	ReasonRouteTaken = "RouteTaken"
)

// Options configure a Router.
type Options struct {
	// Client reads from and writes to the API server, without a cache.
	Client client.Client
	// Services reads Services from the cache, own writes included, and makes them.
	Services *ownwrites.Client
	// Cache has the EndpointSlices of the responder.
	Cache client.Reader
	// Responder is the Service of the responder.
	Responder types.NamespacedName
	// Pods configure the pods each of which answers one Challenge.
	Pods service.Pods
	// ExtraLabels are put on everything that is made; they cannot override the labels of spec §5.8.
	ExtraLabels map[string]string
	// LoosePaths makes all Ingresses without exact paths.
	LoosePaths bool
	// Now is the time.
	Now func() time.Time
}

// Router implements http01.Router.
type Router struct {
	o       Options
	parents *parents

	mu sync.Mutex
	// edits wait while another edit of the same Ingress is being written.
	edits map[client.ObjectKey][]*edit
	// implementationSpecific are the Ingress classes whose admission refuses exact paths.
	implementationSpecific map[string]bool
}

// New makes a Router.
func New(o Options) *Router {
	return &Router{
		o: o, parents: &parents{client: o.Client, now: o.Now, reading: make(chan struct{}, 1), seen: map[client.ObjectKey]sight{}},
		edits: map[client.ObjectKey][]*edit{}, implementationSpecific: map[string]bool{},
	}
}

// Present makes the Service of the namespace, if it is not there yet, and the route of the Challenge. It is idempotent.
func (r *Router) Present(ctx context.Context, t solver.Task) error {
	c := t.Challenge
	if err := r.Unanswered(ctx, c.Spec.Solver.HTTP01); err != nil {
		return err
	}
	to, err := r.ensure(ctx, c)
	if err != nil {
		return fmt.Errorf("what answers HTTP-01 in namespace %q: %w", c.Namespace, err)
	}
	config := c.Spec.Solver.HTTP01
	switch {
	case config.GatewayHTTPRoute != nil:
		return r.applyHTTPRoute(ctx, c, to)
	case config.Ingress != nil && config.Ingress.Name != "":
		return r.addPath(ctx, c, to)
	default:
		return r.applyIngress(ctx, c, to)
	}
}

// CleanUp removes the route of the Challenge, and the Challenge's own pod and Service. The Service of the responder is
// removed later, when the namespace has had no Challenge for a while.
func (r *Router) CleanUp(ctx context.Context, t solver.Task) error {
	if err := r.removeRoute(ctx, t.Challenge); err != nil {
		return err
	}
	return r.answer(ctx, t.Challenge, true)
}

func (r *Router) removeRoute(ctx context.Context, c *acmev1.Challenge) error {
	config := c.Spec.Solver.HTTP01
	switch {
	case config.GatewayHTTPRoute != nil:
		err := r.o.Client.Delete(ctx, httpRoute(c, backend{}, nil))
		if meta.IsNoMatchError(err) {
			return nil // the Gateway API is gone, and with it every HTTPRoute
		}
		return client.IgnoreNotFound(err)
	case config.Ingress != nil && config.Ingress.Name != "":
		return r.removePath(ctx, c)
	default:
		return client.IgnoreNotFound(r.o.Client.Delete(ctx, ingress(c, backend{}, nil)))
	}
}

// Status says what is wrong with the Service, with the Responder behind it, and with the route, as its controllers
// report it. It is empty if all is well or nothing is known. It asks the API server.
func (r *Router) Status(ctx context.Context, t solver.Task) string {
	said := []string{r.serviceStatus(ctx, t.Challenge), r.routeStatus(ctx, t.Challenge)}
	return strings.Join(slices.DeleteFunc(said, func(problem string) bool { return problem == "" }), "; ")
}

func (r *Router) routeStatus(ctx context.Context, c *acmev1.Challenge) string {
	config, key := c.Spec.Solver.HTTP01, client.ObjectKey{Namespace: c.Namespace, Name: service.ObjectName(c.UID)}
	if config.GatewayHTTPRoute != nil {
		found := &gwapiv1.HTTPRoute{}
		if err := r.o.Client.Get(ctx, key, found); err != nil {
			return unread("HTTPRoute", key.Name, err)
		}
		return r.httpRouteStatus(ctx, c, found)
	}
	found := &networkingv1.Ingress{}
	if config.Ingress != nil && config.Ingress.Name != "" {
		key.Name = config.Ingress.Name
	}
	if err := r.o.Client.Get(ctx, key, found); err != nil {
		return unread("Ingress", key.Name, err)
	}
	if len(found.Status.LoadBalancer.Ingress) == 0 {
		return fmt.Sprintf("the Ingress %s has no load balancer address yet: is a controller running for its class?", key.Name)
	}
	return ""
}

func unread(kind, name string, err error) string {
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("somebody has deleted the %s %s; what is missing is made again every few minutes", kind, name)
	}
	return fmt.Sprintf("the %s %s cannot be read: %s", kind, name, err)
}

// httpRouteStatus reports the conditions Accepted and ResolvedRefs that are not True, and
// which parents lack a listener for it.
func (r *Router) httpRouteStatus(ctx context.Context, c *acmev1.Challenge, route *gwapiv1.HTTPRoute) string {
	var said []string
	if len(route.Status.Parents) == 0 {
		said = append(said, fmt.Sprintf("no Gateway has taken up the HTTPRoute %s yet: do its parentRefs name a Gateway that serves its host?", route.Name))
	}
	for _, parent := range route.Status.Parents {
		at := string(parent.ParentRef.Name)
		if section := parent.ParentRef.SectionName; section != nil {
			at += "/" + string(*section)
		}
		for _, condition := range parent.Conditions {
			if condition.Status == "True" || condition.Type != string(gwapiv1.RouteConditionAccepted) && condition.Type != string(gwapiv1.RouteConditionResolvedRefs) {
				continue
			}
			said = append(said, fmt.Sprintf("%s of the HTTPRoute %s at %s is %s: %s: %s",
				condition.Type, route.Name, at, condition.Status, condition.Reason, condition.Message))
		}
	}
	if choice, err := r.attachment(ctx, c); err == nil {
		said = append(said, choice.Lacking...)
	}
	return strings.Join(said, "; ")
}

func (r *Router) applyHTTPRoute(ctx context.Context, c *acmev1.Challenge, to backend) error {
	choice, err := r.attachment(ctx, c)
	if err != nil {
		return fmt.Errorf("reading the parents of the HTTPRoute: %w", err)
	}
	if len(choice.Refs) == 0 {
		return fault.After(parentRetry, ReasonNoListener, "no listener takes the HTTPRoute: %s", strings.Join(choice.Lacking, "; "))
	}
	route := httpRoute(c, to, r.o.ExtraLabels)
	route.Spec.ParentRefs = choice.Refs
	err = apply(ctx, r.o.Client, route)
	if meta.IsNoMatchError(err) {
		return fault.After(noGatewayRetry, ReasonNoGatewayAPI,
			"the solver asks for a Gateway API HTTPRoute, which this cluster does not serve: install the Gateway API, or use an ingress solver")
	}
	return err
}

// The waits before a missing object that is not watched is looked for again.
const (
	noGatewayRetry = time.Minute
	parentRetry    = 5 * time.Second
	ingressRetry   = 10 * time.Second
	takenRetry     = 10 * time.Second
	responderRetry = 5 * time.Second
)

// applyIngress makes the Ingress of a Challenge, with an exact path unless the
// admission of its controller refuses that.
func (r *Router) applyIngress(ctx context.Context, c *acmev1.Challenge, to backend) error {
	in := ingress(c, to, r.o.ExtraLabels)
	class := classOf(in)
	path := &in.Spec.Rules[0].HTTP.Paths[0]
	exact, loose := networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific
	path.PathType = &exact
	r.mu.Lock()
	refused := r.o.LoosePaths || r.implementationSpecific[class]
	r.mu.Unlock()
	if refused {
		path.PathType = &loose
		return apply(ctx, r.o.Client, in)
	}
	err := apply(ctx, r.o.Client, in)
	if !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
		return err
	}
	path.PathType = &loose
	if again := apply(ctx, r.o.Client, in); again != nil {
		return err // the path type was not the reason
	}
	r.learn(class)
	return nil
}

// learn remembers that the controller of a class refuses exact paths. A tenant names classes: beyond the bound, the
// first of two requests is in vain each time.
func (r *Router) learn(class string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.implementationSpecific) < limits.IngressClasses {
		r.implementationSpecific[class] = true
	}
}

// apply applies an object server-side. Changes that others have made to it are undone. An object of another owner stays
// as it is.
func apply(ctx context.Context, to client.Client, obj client.Object) error {
	patch := func(how ...client.PatchOption) error {
		//nolint:staticcheck // an apply configuration says the same in three times the code
		return to.Patch(ctx, obj, client.Apply, append(how, client.FieldOwner(service.FieldManager))...)
	}
	err := patch()
	if !apierrors.IsConflict(err) {
		return err
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	if err := to.Get(ctx, client.ObjectKeyFromObject(obj), found); err != nil {
		return err
	}
	if !metav1.IsControlledBy(found, &metav1.ObjectMeta{UID: metav1.GetControllerOf(obj).UID}) {
		return fault.After(takenRetry, ReasonRouteTaken, "the %s %q exists, and is somebody else's: rename or delete it", found.Kind, found.Name)
	}
	return patch(client.ForceOwnership)
}

// merged returns the union of maps; later ones win.
func merged(in ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range in {
		maps.Copy(out, m)
	}
	return out
}
