package route

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
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
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
)

// keptFor is how long a Service stays after the last Challenge of its namespace.
const keptFor = 10 * time.Minute

// maxEndpoints bounds the addresses of one EndpointSlice: the API server's limit.
const maxEndpoints = 1000

// ServicesOptions configure Services.
type ServicesOptions struct {
	// Client writes, and reads what the cache does not hold.
	Client client.Client
	// Cache holds the Services made here, and the EndpointSlices of them and of the
	// Responder: see CacheOptions.
	Cache cache.Cache
	// Challenges lists the Challenges of a namespace, from a cache.
	Challenges client.Reader
	// Responder is the Service whose EndpointSlices are followed.
	Responder types.NamespacedName
	// ExtraLabels are put on every Service.
	ExtraLabels map[string]string
	// Now is the clock.
	Now func() time.Time
}

// Services keeps one Service without a selector in each namespace that has HTTP-01
// Challenges (two, if its solvers ask for two types), and its EndpointSlices at the
// Responder's addresses.
type Services struct {
	o ServicesOptions

	mu sync.Mutex
	// used is when a Challenge last needed a Service.
	used map[types.NamespacedName]time.Time
	// making has one maker of a Service at a time.
	making keyedMutex
}

// NewServices makes a Services, which does nothing before Setup.
func NewServices(o ServicesOptions) *Services {
	return &Services{o: o, used: map[types.NamespacedName]time.Time{}}
}

// CacheOptions narrows a cache to what Services looks at, and no more: in the namespaces
// of base, which are those of the Challenges, and for its EndpointSlices in that of the
// Responder.
func CacheOptions(responder types.NamespacedName, base cache.Options) (cache.Options, error) {
	names := []string{serviceName(corev1.ServiceTypeNodePort), serviceName(corev1.ServiceTypeClusterIP)}
	own, err := labels.NewRequirement(discoveryv1.LabelServiceName, selection.In, names)
	if err != nil {
		return cache.Options{}, err
	}
	all, err := labels.NewRequirement(discoveryv1.LabelServiceName, selection.In, append(names, responder.Name))
	if err != nil {
		return cache.Options{}, fmt.Errorf("the Service of the HTTP-01 responder, %s: %w", responder, err)
	}
	endpoints := cache.ByObject{Label: labels.NewSelector().Add(*all)}
	if base.DefaultNamespaces != nil {
		endpoints = cache.ByObject{Namespaces: map[string]cache.Config{}}
		for namespace := range base.DefaultNamespaces {
			endpoints.Namespaces[namespace] = cache.Config{LabelSelector: labels.NewSelector().Add(*own)}
		}
		here := cache.Config{LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: responder.Name})}
		if _, both := base.DefaultNamespaces[responder.Namespace]; both {
			here.LabelSelector = labels.NewSelector().Add(*all)
		}
		endpoints.Namespaces[responder.Namespace] = here
	}
	base.ByObject = map[client.Object]cache.ByObject{
		&corev1.Service{}:            {Label: labels.SelectorFromSet(labels.Set{acmev1.HTTP01SolverLabel: acmev1.HTTP01SolverLabelValue})},
		&discoveryv1.EndpointSlice{}: endpoints,
	}
	return base, nil
}

// Setup adds the reconciler of Services to a manager.
func (s *Services) Setup(m ctrl.Manager) error {
	skip := true        // several managers run in one process in tests
	priorities := false // a queue with them may never let its workers go (controller-runtime v0.24)
	return ctrl.NewControllerManagedBy(m).Named("http01-services").
		WatchesRawSource(source.Kind(s.o.Cache, &corev1.Service{}, &handler.TypedEnqueueRequestForObject[*corev1.Service]{})).
		WatchesRawSource(source.Kind(m.GetCache(), &acmev1.Challenge{}, handler.TypedEnqueueRequestsFromMapFunc(leadsTo), onlyInFlight())).
		WatchesRawSource(source.Kind(s.o.Cache, &discoveryv1.EndpointSlice{}, handler.TypedEnqueueRequestsFromMapFunc(s.following))).
		WithOptions(controller.Options{SkipNameValidation: &skip, UsePriorityQueue: &priorities}).
		Complete(s)
}

// leadsTo names the Service of a Challenge.
func leadsTo(_ context.Context, c *acmev1.Challenge) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: serviceName(serviceType(c))}}}
}

// onlyInFlight lets Challenges through that are in flight when they are first seen,
// after a start: their Service may have been deleted before it. Later ones see to it
// themselves.
func onlyInFlight() predicate.TypedPredicate[*acmev1.Challenge] {
	return predicate.TypedFuncs[*acmev1.Challenge]{
		CreateFunc:  func(e event.TypedCreateEvent[*acmev1.Challenge]) bool { return open(e.Object) && inFlight(e.Object) },
		UpdateFunc:  func(event.TypedUpdateEvent[*acmev1.Challenge]) bool { return false },
		DeleteFunc:  func(event.TypedDeleteEvent[*acmev1.Challenge]) bool { return false },
		GenericFunc: func(event.TypedGenericEvent[*acmev1.Challenge]) bool { return false },
	}
}

// following lists the Services to look at after an EndpointSlice has changed: its own,
// or all if it is the Responder's.
func (s *Services) following(ctx context.Context, slice *discoveryv1.EndpointSlice) []reconcile.Request {
	of := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	if of != s.o.Responder {
		return []reconcile.Request{{NamespacedName: of}}
	}
	list := &corev1.ServiceList{}
	if err := s.o.Cache.List(ctx, list); err != nil {
		return nil // only before the cache has synced, and then every Service is looked at anyway
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// Reconcile keeps the EndpointSlices of one Service, or deletes it ten minutes after
// the last Challenge.
func (s *Services) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	service := &corev1.Service{}
	err := s.o.Cache.Get(ctx, req.NamespacedName, service)
	switch {
	case apierrors.IsNotFound(err):
		return s.restore(ctx, req.NamespacedName)
	case err != nil:
		return reconcile.Result{}, err
	case usable(service) != nil:
		return reconcile.Result{}, nil //nolint:nilerr // somebody else's: the Challenge that needs one says so
	}
	left, err := s.idle(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if left <= 0 {
		return reconcile.Result{}, s.remove(ctx, service)
	}
	return reconcile.Result{RequeueAfter: left}, s.lead(ctx, service)
}

// ours keeps hands off Services that are somebody else's: those of a cert-manager that
// was here before carry our label, but not one of our names.
func ours(service *corev1.Service) bool {
	return len(service.Spec.Selector) == 0 && service.Labels[acmev1.HTTP01SolverLabel] == acmev1.HTTP01SolverLabelValue &&
		service.Name == serviceName(typeOf(service.Name))
}

// needed reports whether a Challenge leads, or will lead, to a Service.
func (s *Services) needed(ctx context.Context, name types.NamespacedName) (bool, error) {
	list := &acmev1.ChallengeList{}
	if err := s.o.Challenges.List(ctx, list, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.Items, func(c acmev1.Challenge) bool {
		return open(&c) && serviceName(serviceType(&c)) == name.Name
	}), nil
}

// open reports whether a Challenge is for HTTP-01, and not over.
func open(c *acmev1.Challenge) bool {
	return c.Spec.Solver.HTTP01 != nil && !c.Status.State.IsFinal() && c.DeletionTimestamp == nil
}

func inFlight(c *acmev1.Challenge) bool { return c.Status.Processing || c.Status.Presented }

// idle returns how long a Service may still stay.
func (s *Services) idle(ctx context.Context, name types.NamespacedName) (time.Duration, error) {
	needed, err := s.needed(ctx, name)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, known := s.used[name]; needed || !known || last.After(s.o.Now()) {
		s.used[name] = s.o.Now()
	}
	return keptFor - s.o.Now().Sub(s.used[name]), nil
}

// touch notes that a Challenge is about to leave the Service of its namespace.
func (s *Services) touch(namespace string, t corev1.ServiceType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[types.NamespacedName{Namespace: namespace, Name: serviceName(t)}] = s.o.Now()
}

// ensure makes the Service of a namespace and its EndpointSlices, if they are not
// there. It returns the name of the Service.
func (s *Services) ensure(ctx context.Context, namespace string, t corev1.ServiceType) (string, error) {
	wanted := serviceOf(namespace, t, s.o.ExtraLabels)
	key := client.ObjectKeyFromObject(wanted)
	unlock, err := s.making.lock(ctx, key)
	if err != nil {
		return "", err
	}
	defer unlock()
	s.touch(namespace, t)
	known := &corev1.Service{}
	err = s.o.Cache.Get(ctx, key, known)
	if err == nil {
		return wanted.Name, usable(known)
	}
	if !apierrors.IsNotFound(err) {
		return "", err
	}
	// Created, not applied: what somebody else has by that name stays as it is.
	err = s.o.Client.Create(ctx, wanted, client.FieldOwner(fieldManager))
	if apierrors.IsAlreadyExists(err) { // the cache is behind, or holds no such Service
		if err = s.o.Client.Get(ctx, key, wanted); err == nil {
			err = usable(wanted)
		}
	}
	if err != nil {
		return "", err
	}
	return wanted.Name, s.lead(ctx, wanted)
}

// usable returns what is wrong with a Service that exists; nil if it is ours, and stays.
func usable(service *corev1.Service) error {
	switch {
	case !ours(service):
		return fault.After(takenRetry, ReasonServiceTaken,
			"the Service %q exists, and is not the one that leads to the responder (labelled %s=%s, without a selector): rename or delete it",
			service.Name, acmev1.HTTP01SolverLabel, acmev1.HTTP01SolverLabelValue)
	case service.DeletionTimestamp != nil:
		return fault.After(deletedRetry, ReasonServiceTaken, "the Service %q is being deleted, and made again when it is gone", service.Name)
	}
	return nil
}

// restore makes a Service again that somebody has deleted while Challenges need it.
func (s *Services) restore(ctx context.Context, name types.NamespacedName) (reconcile.Result, error) {
	needed, err := s.needed(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !needed {
		s.mu.Lock()
		delete(s.used, name)
		s.mu.Unlock()
		return reconcile.Result{}, nil
	}
	_, err = s.ensure(ctx, name.Namespace, typeOf(name.Name))
	if f := fault.Of(err); f != nil {
		return reconcile.Result{RequeueAfter: f.Delay}, nil //nolint:nilerr // it says itself when to come back
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}

// problem says why no answer can come through the Service of a namespace; empty if one
// can.
func (s *Services) problem(ctx context.Context, namespace string, t corev1.ServiceType) string {
	service := &corev1.Service{}
	err := s.o.Cache.Get(ctx, types.NamespacedName{Namespace: namespace, Name: serviceName(t)}, service)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("the Service %s, which leads to the responder, is missing, and is being made again", serviceName(t))
	}
	if err == nil {
		err = usable(service)
	}
	if err != nil {
		return err.Error()
	}
	from, err := s.responder(ctx)
	if err != nil {
		return ""
	}
	for _, family := range families() {
		if len(sliceOf(service, family, from).Endpoints) > 0 {
			return ""
		}
	}
	return fmt.Sprintf("the responder's Service %s has no ready endpoints: run `chancery responder` behind it, or correct --acme-http01-responder", s.o.Responder)
}

func (s *Services) remove(ctx context.Context, service *corev1.Service) error {
	unlock, err := s.making.lock(ctx, client.ObjectKeyFromObject(service))
	if err != nil {
		return err
	}
	defer unlock()
	if left, err := s.idle(ctx, client.ObjectKeyFromObject(service)); err != nil || left > 0 {
		return err // a Challenge came in between
	}
	for _, family := range families() {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: sliceName(service.Name, family)}}
		if err := client.IgnoreNotFound(s.o.Client.Delete(ctx, slice)); err != nil {
			return err
		}
	}
	same := client.Preconditions{UID: &service.UID}
	return client.IgnoreNotFound(s.o.Client.Delete(ctx, service, same))
}

// lead has the EndpointSlices of a Service say the Responder's addresses.
func (s *Services) lead(ctx context.Context, service *corev1.Service) error {
	from, err := s.responder(ctx)
	if err != nil {
		return err
	}
	for _, family := range families() {
		wanted := sliceOf(service, family, from)
		known := &discoveryv1.EndpointSlice{}
		err := s.o.Cache.Get(ctx, client.ObjectKeyFromObject(wanted), known)
		switch {
		case apierrors.IsNotFound(err) && len(wanted.Endpoints) == 0:
			continue
		case err != nil && !apierrors.IsNotFound(err):
			return err
		case err == nil && sameEndpoints(known, wanted):
			continue
		}
		if err := apply(ctx, s.o.Client, wanted); err != nil {
			return err
		}
	}
	return nil
}

// responder returns the EndpointSlices of the Responder's Service.
func (s *Services) responder(ctx context.Context) ([]discoveryv1.EndpointSlice, error) {
	list := &discoveryv1.EndpointSliceList{}
	err := s.o.Cache.List(ctx, list, client.InNamespace(s.o.Responder.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.o.Responder.Name})
	return list.Items, err
}

func families() []discoveryv1.AddressType {
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
}

func sliceName(service string, family discoveryv1.AddressType) string {
	if family == discoveryv1.AddressTypeIPv6 {
		return service + "-ipv6"
	}
	return service + "-ipv4"
}

// sliceOf is the EndpointSlice of a Service for one address family: what the Responder
// has of it and is ready.
func sliceOf(service *corev1.Service, family discoveryv1.AddressType, responder []discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	yes := true
	name, protocol := "http", corev1.ProtocolTCP
	number := int32(port)
	var addresses []netip.Addr
	for _, slice := range responder {
		if slice.AddressType != family || slice.DeletionTimestamp != nil {
			continue
		}
		number = responderPort(slice.Ports, number)
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
				continue
			}
			for _, text := range endpoint.Addresses {
				if address, err := netip.ParseAddr(text); err == nil {
					addresses = append(addresses, address)
				}
			}
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	addresses = slices.Compact(addresses)
	out := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: sliceName(service.Name, family),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "chancery.dev",
				acmev1.HTTP01SolverLabel: acmev1.HTTP01SolverLabelValue,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID, Controller: &yes,
			}},
		},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &number, Protocol: &protocol}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for _, address := range addresses[:min(len(addresses), maxEndpoints)] {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
		})
	}
	return out
}

// responderPort is the port that the Responder listens on: the one called http, or
// the only one.
func responderPort(ports []discoveryv1.EndpointPort, otherwise int32) int32 {
	for _, p := range ports {
		if p.Port != nil && p.Name != nil && *p.Name == "http" {
			return *p.Port
		}
	}
	if len(ports) == 1 && ports[0].Port != nil {
		return *ports[0].Port
	}
	return otherwise
}

// sameEndpoints reports whether two EndpointSlices lead to the same places.
func sameEndpoints(a, b *discoveryv1.EndpointSlice) bool {
	return metav1.IsControlledBy(a, &metav1.ObjectMeta{UID: b.OwnerReferences[0].UID}) &&
		a.Labels[discoveryv1.LabelServiceName] == b.Labels[discoveryv1.LabelServiceName] &&
		slices.Equal(portsOf(a), portsOf(b)) && slices.Equal(addressesOf(a), addressesOf(b))
}

func portsOf(s *discoveryv1.EndpointSlice) []int32 {
	var out []int32
	for _, p := range s.Ports {
		if p.Port != nil {
			out = append(out, *p.Port)
		}
	}
	return out
}

func addressesOf(s *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, e := range s.Endpoints {
		out = append(out, e.Addresses...)
	}
	slices.SortFunc(out, cmp.Compare[string])
	return out
}
