// Package responderservices reconciles, with internal/engine, the Services that lead to the HTTP-01 responder. The
// package writes the responder's addresses into the EndpointSlices of these Services. If somebody deletes a Service
// that a Challenge needs, the package makes the Service again. The package deletes a Service that no Challenge needs
// any more. internal/machine/service decides which of these steps to take, and when.
package responderservices

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/machine/service"
)

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete
// OpenShift asks for this of whoever names addresses of pods in an EndpointSlice:
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices/restricted,verbs=create

// needIndex finds the Challenges that need a Service, by its name.
const needIndex = "chancery.dev/http01-service"

// pass is one look at a Service. Since when no Challenge needs the Service is remembered.
type pass = engine.Pass[*corev1.Service, time.Time]

// Options configure the controller of Services.
type Options struct {
	// Responder is the Service whose EndpointSlices are followed.
	Responder types.NamespacedName
	// Pods say which Challenges a pod of its own answers.
	Pods service.Pods
	// Direct says whether the route of a Challenge leads to the responder's own Service.
	Direct func(context.Context, *acmev1.Challenge) (bool, error)
	// ExtraLabels are put on every Service.
	ExtraLabels map[string]string
}

type services struct {
	*controller.Deps

	o Options
	// users knows which Service each Challenge needs, as far as the watch has told.
	users *informers.Following
}

// Narrow narrows a cache to those Services and EndpointSlices that the controller looks at: in the namespaces of the
// cache, and for the responder's EndpointSlices in the responder's namespace.
func Narrow(o *cache.Options, responder types.NamespacedName) error {
	own, err := labels.NewRequirement(discoveryv1.LabelServiceName, selection.In, service.Names())
	if err != nil {
		return err
	}
	all, err := labels.NewRequirement(discoveryv1.LabelServiceName, selection.In, append(service.Names(), responder.Name))
	if err != nil {
		return fmt.Errorf("the Service of the HTTP-01 responder, %s: %w", responder, err)
	}
	endpoints := cache.ByObject{Label: labels.NewSelector().Add(*all)}
	if o.DefaultNamespaces != nil {
		endpoints = cache.ByObject{Namespaces: map[string]cache.Config{}}
		for namespace := range o.DefaultNamespaces {
			endpoints.Namespaces[namespace] = cache.Config{LabelSelector: labels.NewSelector().Add(*own)}
		}
		here := cache.Config{LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: responder.Name})}
		if _, both := o.DefaultNamespaces[responder.Namespace]; both {
			here.LabelSelector = labels.NewSelector().Add(*all)
		}
		endpoints.Namespaces[responder.Namespace] = here
	}
	if o.ByObject == nil {
		o.ByObject = map[client.Object]cache.ByObject{}
	}
	o.ByObject[&discoveryv1.EndpointSlice{}] = endpoints
	o.ByObject[&corev1.Service{}] = cache.ByObject{
		Label: labels.SelectorFromSet(labels.Set{acmev1.HTTP01SolverLabel: acmev1.HTTP01SolverLabelValue}),
	}
	return nil
}

// Setup adds the controller of Services. The manager's cache has been narrowed.
func Setup(ctx context.Context, d *controller.Deps, o Options) error {
	r := &services{Deps: d, o: o, users: informers.NewFollowing()}
	runner := engine.Run(d.Engine, engine.Kind[*corev1.Service, time.Time, service.State, service.Action]{
		Name: "Service", New: func() *corev1.Service { return &corev1.Service{} }, Absent: true,
		Observe: r.observe, Decide: service.Decide, Plan: r.plan,
	})
	if err := d.Manager.GetFieldIndexer().IndexField(ctx, &acmev1.Challenge{}, needIndex, r.needs); err != nil {
		return err
	}
	if err := d.Observed(ctx, &corev1.Service{}, &discoveryv1.EndpointSlice{}); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(d.Manager).Named("http01-services").
		For(&corev1.Service{}).
		Watches(&acmev1.Challenge{}, &opensAndEnds{handler.EnqueueRequestsFromMapFunc(r.leadsTo), r}).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.following)).
		WatchesRawSource(runner).
		WithOptions(r.Options(time.Second, 5*time.Minute)).
		Complete(runner)
}

// needs names the Service that a Challenge needs.
func (r *services) needs(obj client.Object) []string {
	if c, ok := obj.(*acmev1.Challenge); ok && service.Open(c) {
		return []string{r.o.Pods.Of(c).Name}
	}
	return nil
}

// opensAndEnds notes which Challenges need a Service, and queues what one leads to when it is first seen, and when it
// ends.
type opensAndEnds struct {
	handler.EventHandler

	of *services
}

func (h *opensAndEnds) open(o client.Object) bool { return len(h.of.needs(o)) > 0 }

// note returns whether a Challenge needs a Service.
func (h *opensAndEnds) note(o client.Object) bool {
	key, names := client.ObjectKeyFromObject(o), h.of.needs(o)
	if len(names) == 0 {
		h.of.users.Leave(key)
		return false
	}
	h.of.users.Follow(key, types.NamespacedName{Namespace: key.Namespace, Name: names[0]})
	return true
}

// Create implements handler.EventHandler.
func (h *opensAndEnds) Create(ctx context.Context, e event.CreateEvent, queue controller.Queue) {
	switch c, is := e.Object.(*acmev1.Challenge); {
	case !is || !h.note(c):
	case c.Status.Processing || c.Status.Presented:
		// It is in flight when it is first seen, after a start: its Service may have been deleted before.
		queue.Add(reconcile.Request{NamespacedName: h.of.o.Pods.Of(c)})
	default:
		h.EventHandler.Create(ctx, e, queue)
	}
}

// Update implements handler.EventHandler.
func (h *opensAndEnds) Update(ctx context.Context, e event.UpdateEvent, queue controller.Queue) {
	if !h.note(e.ObjectNew) && h.open(e.ObjectOld) {
		h.EventHandler.Update(ctx, e, queue)
	}
}

// Delete implements handler.EventHandler.
func (h *opensAndEnds) Delete(ctx context.Context, e event.DeleteEvent, queue controller.Queue) {
	h.of.users.Leave(client.ObjectKeyFromObject(e.Object))
	if h.open(e.Object) {
		h.EventHandler.Delete(ctx, e, queue)
	}
}

// leadsTo names the Service of a Challenge, if the Service exists. If not, the solver makes it for a Challenge that
// comes, and nothing is left to do for one that ends.
func (r *services) leadsTo(ctx context.Context, obj client.Object) []reconcile.Request {
	c, ok := obj.(*acmev1.Challenge)
	if !ok {
		return nil
	}
	name := r.o.Pods.Of(c)
	if r.Client.Get(ctx, name, &corev1.Service{}) != nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

// following lists the Services to look at after an EndpointSlice has changed: its own, or all if it is the responder's.
func (r *services) following(ctx context.Context, slice client.Object) []reconcile.Request {
	of := types.NamespacedName{Namespace: slice.GetNamespace(), Name: slice.GetLabels()[discoveryv1.LabelServiceName]}
	if of != r.o.Responder {
		return []reconcile.Request{{NamespacedName: of}}
	}
	list := &corev1.ServiceList{}
	if err := r.Manager.GetCache().List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only before the cache has synced, and then every Service is looked at anyway
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// observe looks at a Service, whether a Challenge needs it, and at the EndpointSlices.
func (r *services) observe(ctx context.Context, p *pass) (service.State, error) {
	s := service.State{Service: p.Object, Idle: *p.Memory, ExtraLabels: r.o.ExtraLabels}
	known, namespace := r.Manager.GetCache(), p.Object.Namespace
	exists, challenges := p.Object.UID != "", &acmev1.ChallengeList{}
	// The watch tells a little later of a Challenge than the cache has it: where nobody seems to need the Service, few
	// are listed.
	if s.Needed = exists && r.users.Followed(client.ObjectKeyFromObject(p.Object)); !s.Needed {
		err := known.List(ctx, challenges, client.InNamespace(namespace), client.MatchingFields{needIndex: p.Object.Name}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return s, err
		}
		s.Needed = len(challenges.Items) > 0
	}
	if !exists {
		var err error
		s.Needed, err = r.indirect(ctx, challenges.Items) // one of them may need it, and others not
		return s, err
	}
	for _, name := range service.SliceNames(p.Object.Name) {
		slice := &discoveryv1.EndpointSlice{}
		switch err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, slice); {
		case err == nil:
			s.Slices = append(s.Slices, slice)
		case !apierrors.IsNotFound(err):
			return s, err
		}
	}
	responder := &discoveryv1.EndpointSliceList{}
	err := known.List(ctx, responder, client.InNamespace(r.o.Responder.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: r.o.Responder.Name}, client.UnsafeDisableDeepCopy)
	s.Responder = responder.Items
	return s, err
}

// indirect reports whether one of the Challenges needs a Service of its namespace.
func (r *services) indirect(ctx context.Context, challenges []acmev1.Challenge) (bool, error) {
	for i := range challenges {
		if direct, err := r.o.Direct(ctx, &challenges[i]); err != nil || !direct {
			return err == nil, err
		}
	}
	return false, nil
}

// plan says what an action means.
func (r *services) plan(_ context.Context, p *pass, _ service.State, action service.Action) (engine.Plan, error) {
	*p.Memory = action.Idle
	plan := engine.Plan{Wake: action.Wake, Done: action.Done, Again: action.Create != nil}
	plan.First = func(ctx context.Context) error { return r.do(ctx, p.Object, action) }
	if !action.Wake.IsZero() {
		plan.Waits = engine.For{What: engine.WaitTime, Detail: "no Challenge needs the Service any more"}
	}
	return plan, nil
}

// do carries out an action.
func (r *services) do(ctx context.Context, s *corev1.Service, action service.Action) error {
	if action.Create != nil {
		return r.create(ctx, action.Create)
	}
	for _, slice := range action.Apply {
		if err := r.apply(ctx, s, slice); err != nil {
			return err
		}
	}
	for _, slice := range action.Remove {
		if err := r.Client.Delete(ctx, slice); err != nil {
			return err
		}
	}
	if action.Pod {
		if err := r.deletePod(ctx, s); err != nil {
			return err
		}
	}
	if action.Delete {
		return r.Client.Delete(ctx, s)
	}
	return nil
}

// deletePod deletes the pod that a Service was made for. Pods are in no cache.
func (r *services) deletePod(ctx context.Context, of *corev1.Service) error {
	pod, owner := &corev1.Pod{}, metav1.GetControllerOf(of)
	err := r.Manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(of), pod)
	if err == nil && metav1.IsControlledBy(pod, &metav1.ObjectMeta{UID: owner.UID}) {
		err = r.Manager.GetClient().Delete(ctx, pod)
	}
	return client.IgnoreNotFound(err)
}

func (r *services) create(ctx context.Context, s *corev1.Service) error {
	// Created, not applied: what somebody else has by that name stays as it is.
	err := r.Client.Create(ctx, s, client.FieldOwner(service.FieldManager))
	switch {
	case apierrors.IsAlreadyExists(err): // the watch does not show it, because it is somebody else's, or not yet
		return service.Taken("Service", s.Name)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fault.Pending("NamespaceTerminating", "the namespace %q is being deleted", s.Namespace)
	}
	return err
}

// apply applies an EndpointSlice of a Service. Where others have changed it, it is put right again; where it is not
// the Service's, it stays as it is.
func (r *services) apply(ctx context.Context, of *corev1.Service, slice *discoveryv1.EndpointSlice) error {
	patch := func(how ...client.PatchOption) error {
		//nolint:staticcheck // an apply configuration says the same in three times the code
		return r.Client.Patch(ctx, slice, client.Apply, append(how, client.FieldOwner(service.FieldManager))...)
	}
	err := patch()
	if !apierrors.IsConflict(err) {
		return err
	}
	found := &discoveryv1.EndpointSlice{}
	if err := r.Manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(slice), found); err != nil {
		return err
	}
	if !service.Owns(of.UID, found) {
		return service.Taken("EndpointSlice", slice.Name)
	}
	return patch(client.ForceOwnership)
}
