// Package service decides about the Services that lead to the HTTP-01 responder, in the namespaces of the Challenges:
// when to make such a Service again, which addresses its EndpointSlices hold, and when to delete the Service.
//
// A namespace has one such Service, or two if its solvers ask for two Service types. The Service has no selector: its
// EndpointSlices hold the addresses from the EndpointSlices of the responder. The solver that presents a Challenge
// makes the Service if the Service does not exist yet. If somebody deletes the Service later,
// internal/controller/responderservices makes the Service again. The package is pure.
//
// Some Challenges get their own pod and Service. The package decides about these pods and Services, too.
package service

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
)

// KeptFor is how long a Service stays after the last Challenge that needed it.
const KeptFor = 10 * time.Minute

// ReasonTaken is the reason of a fault: somebody else has an object of the name that is needed, or the object is being
// deleted.
const ReasonTaken = "ServiceTaken"

// How soon a name is looked at again that is taken, and one that is about to be free.
const (
	takenRetry   = 10 * time.Second
	deletedRetry = time.Second
)

// State is what can be observed of a Service by its name.
type State struct {
	// Service as it is. Without a UID it does not exist, and has nothing but a namespace and a name.
	Service *corev1.Service
	// Needed says that a Challenge that is not over leads, or will lead, to the Service.
	Needed bool
	// Idle is since when no Challenge needs the Service, as the last decision has said; zero if one did then, or if
	// nothing is known.
	Idle time.Time
	// Slices are the EndpointSlices that have the names of the Service's own.
	Slices []*discoveryv1.EndpointSlice
	// Responder are the EndpointSlices of the responder.
	Responder []discoveryv1.EndpointSlice
	// ExtraLabels are put on a Service that is made.
	ExtraLabels map[string]string
}

// Action is what to do for a Service, in the order of the fields.
type Action struct {
	// Create is the Service to make; nil if none is.
	Create *corev1.Service
	// Apply are EndpointSlices to make, or to put right.
	Apply []*discoveryv1.EndpointSlice
	// Remove are EndpointSlices to delete.
	Remove []*discoveryv1.EndpointSlice
	// Pod says to delete the pod that has the name and the owner of the Service.
	Pod bool
	// Delete says to delete the Service.
	Delete bool
	// Idle is to be remembered for the next decision.
	Idle time.Time
	// Wake is when to decide again without an event; zero for never.
	Wake time.Time
	// Done says that nothing need be remembered.
	Done bool
}

// Decide returns what to do for a Service now.
func Decide(s State, now time.Time) Action {
	switch {
	case s.Service.UID == "" && s.Needed && slices.Contains(Names(), s.Service.Name):
		return Action{Create: New(s.Service.Namespace, typeOf(s.Service.Name), s.ExtraLabels)}
	case s.Service.UID == "", Usable(s.Service) != nil:
		return Action{Done: true} // the solver of a Challenge that needs a name that is taken says so
	case s.Needed:
		return Action{Apply: s.wrong()}
	}
	idle := s.Idle
	if idle.IsZero() || idle.After(now) { // the clock may have been put back
		idle = now
	}
	if end := idle.Add(KeptFor); now.Before(end) {
		return Action{Apply: s.wrong(), Idle: idle, Wake: end}
	}
	return Action{Remove: s.own(), Pod: ofOne(s.Service), Delete: true, Done: true}
}

// wrong returns the EndpointSlices of the Service that are missing, or do not lead where they have to.
func (s *State) wrong() []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	if ofOne(s.Service) {
		return nil // Kubernetes makes those of a Service with a selector
	}
	for _, family := range families() {
		wanted := sliceOf(s.Service, family, s.Responder)
		known := s.slice(wanted.Name)
		if known == nil && len(wanted.Endpoints) == 0 || known != nil && sameEndpoints(known, wanted) {
			continue
		}
		out = append(out, wanted)
	}
	return out
}

// own returns the EndpointSlices that are the Service's, and that Kubernetes does not make.
func (s *State) own() []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, slice := range s.Slices {
		if Owns(s.Service.UID, slice) && !ofOne(s.Service) {
			out = append(out, slice)
		}
	}
	return out
}

func (s *State) slice(name string) *discoveryv1.EndpointSlice {
	for _, slice := range s.Slices {
		if slice.Name == name {
			return slice
		}
	}
	return nil
}

// Usable returns what is wrong with a Service that exists; nil if it is ours, and stays.
func Usable(service *corev1.Service) error {
	switch {
	case !ours(service):
		return fault.After(takenRetry, ReasonTaken,
			"the Service %q exists, and is not the one that leads to the responder (labelled %s=%s, without a selector): rename or delete it",
			service.Name, acmev1.HTTP01SolverLabel, acmev1.HTTP01SolverLabelValue)
	case service.DeletionTimestamp != nil:
		return beingDeleted("Service", service.Name)
	}
	return nil
}

func beingDeleted(kind, name string) error {
	return fault.After(deletedRetry, ReasonTaken, "the %s %q is being deleted, and made again when it is gone", kind, name)
}

// Taken is the fault of an object that was to be made or changed, and is somebody else's.
func Taken(kind, name string) error {
	return fault.After(takenRetry, ReasonTaken, "the %s %q exists, and is somebody else's: rename or delete it", kind, name)
}

// ours reports whether a Service is one that this controller has made. Those that a cert-manager has left have our
// label, but none of our names.
func ours(service *corev1.Service) bool {
	return ofOne(service) || len(service.Spec.Selector) == 0 && service.Labels[acmev1.HTTP01SolverLabel] == acmev1.HTTP01SolverLabelValue &&
		service.Name == Name(typeOf(service.Name))
}

// ofOne reports whether a Service is that of the pod of one Challenge.
func ofOne(service *corev1.Service) bool {
	owner := metav1.GetControllerOf(service)
	return owner != nil && owner.Kind == "Challenge" && service.Name == ObjectName(owner.UID)
}

// Open reports whether a Challenge is for HTTP-01, and not over: it needs its Service, or will need it.
func Open(c *acmev1.Challenge) bool {
	return c.Spec.Solver.HTTP01 != nil && !c.Status.State.IsFinal() && c.DeletionTimestamp == nil
}
