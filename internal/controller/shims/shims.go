// Package shims reconciles Ingresses, Gateways and ListenerSets with internal/engine: it makes, changes and deletes the
// Certificates that the annotations of these objects ask for. internal/machine/shim decides what to change, and when.
package shims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/machine/shim"
)

// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=gateways;listenersets,verbs=get;list;watch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=get;list;watch;create;patch;delete
// Clusters may ask for this of whoever makes an object that its owner cannot be deleted before:
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses/finalizers,verbs=update
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=gateways/finalizers;listenersets/finalizers,verbs=update

// secretIndex finds the objects of a kind that name a Secret.
const secretIndex = "chancery.dev/shim-secret"

// Options configure the controllers.
type Options struct {
	// Ingresses, Gateways and ListenerSets say which of them ask for certificates.
	Ingresses, Gateways, ListenerSets bool
	// Settings are the machine's.
	Settings shim.Settings
}

// DefaultOptions are those of spec §9.3.
func DefaultOptions() Options {
	return Options{Ingresses: true, Settings: shim.Settings{
		DefaultIssuer:   cmmeta.IssuerReference{Kind: cmmeta.DefaultIssuerKind, Group: cmmeta.DefaultIssuerGroup},
		AutoAnnotations: []string{certmanagerv1.IngressTLSACMEAnnotation},
	}}
}

// memory is what is remembered of an object.
type memory struct {
	// before are the last updates of its Certificates, by name.
	before map[string]shim.Attempt
	// said are the warnings that it has had, a few at most.
	said []string
}

// pass is one look at an object.
type pass = engine.Pass[client.Object, memory]

// shims works on the objects of one kind.
type shims struct {
	*controller.Deps

	kind   kind
	events record.EventRecorder
	o      Options
}

// kind is one of the three kinds.
type kind struct {
	name, component string
	object          client.Object
	list            client.ObjectList
	// needs are kinds that have to be served too.
	needs []client.Object
	// reduce returns the form of an object that is decided on.
	reduce func(ctx context.Context, r *shims, o client.Object) (shim.Object, error)
}

// Setup adds the controllers of the kinds that are switched on. They start late (Deps.Late): strangers choose the
// number and the size of these objects, so nobody else waits for them. The controllers of the Gateway API's kinds start
// as soon as the cluster serves their kinds.
func Setup(ctx context.Context, d *controller.Deps, o Options) error {
	on := o.kinds()
	if len(on) == 0 {
		return nil
	}
	if err := d.IndexWithin(ctx, &certmanagerv1.Certificate{}, ownwrites.OwnerIndex, ownwrites.OwnerOf); err != nil {
		return err
	}
	for _, k := range on {
		r := &shims{Deps: d, kind: k, events: d.Events(k.component), o: o}
		if err := d.Late(r.startOnceServed); err != nil {
			return fmt.Errorf("%ss: %w", k.name, err)
		}
	}
	return nil
}

// start adds the controller of the kind, which is served.
func (r *shims) start(ctx context.Context) error {
	if err := r.IndexWithin(ctx, r.kind.object, secretIndex, r.secretsOf); err != nil {
		return err
	}
	runner := engine.Run(r.Engine, engine.Kind[client.Object, memory, shim.State, shim.Action]{
		Name: r.kind.name, Events: r.events, Observe: r.observe, Decide: shim.Decide, Plan: r.plan, Refused: refused,
		New: func() client.Object { return r.kind.object.DeepCopyObject().(client.Object) }, //nolint:forcetypeassert // a copy is of the same type
	})
	b := ctrl.NewControllerManagedBy(r.Manager).Named(strings.TrimPrefix(r.kind.component, "cert-manager-")).
		For(r.kind.object, builder.WithPredicates(asks())).
		Watches(&certmanagerv1.Certificate{}, handler.EnqueueRequestsFromMapFunc(r.affectedBy), builder.WithPredicates(certificateChanges())).
		WatchesRawSource(runner).
		WithOptions(r.Options(time.Second, 5*time.Minute))
	for _, parent := range r.kind.needs {
		if err := r.Manager.GetFieldIndexer().IndexField(ctx, r.kind.object, parentIndex, parentOf); err != nil {
			return err
		}
		b = b.Watches(parent, handler.EnqueueRequestsFromMapFunc(r.children), builder.WithPredicates(asks()))
	}
	return b.Complete(runner)
}

// asks lets an object through when what it asks for may have changed; a new status is no reason.
func asks() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
}

// certificateChanges lets a Certificate through that somebody has changed or deleted; a new status is no reason.
// Those that are there at the start make no event: every object is then looked at anyway.
func certificateChanges() predicate.Predicate {
	return predicate.And(asks(), predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }})
}

// secretsOf lists the Secrets that an object names.
func (r *shims) secretsOf(o client.Object) []string {
	parts := partsOf(o, r.o.Settings)
	return parts.Secrets()
}

// affectedBy lists the objects that a Certificate matters to: the one that controls it, and those that name its Secret.
func (r *shims) affectedBy(ctx context.Context, crt client.Object) []reconcile.Request {
	out := r.Indexed(ctx, r.kind.list, secretIndex, crt.GetName(), client.InNamespace(crt.GetNamespace()))
	for _, owner := range crt.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller && owner.Kind == r.kind.name {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: crt.GetNamespace(), Name: owner.Name}})
		}
	}
	return out
}

// observe looks at an object, its Certificates, and those that have the names of its Secrets.
func (r *shims) observe(ctx context.Context, p *pass) (shim.State, error) {
	object, err := r.kind.reduce(ctx, r, p.Object)
	s := shim.State{Object: object, Settings: r.o.Settings, Before: p.Memory.before}
	if err != nil || s.Idle {
		return s, err
	}
	owned := &certmanagerv1.CertificateList{}
	if err := r.Client.ListOwned(ctx, owned, s.Namespace, s.Owner.UID); err != nil {
		return s, err
	}
	there := make(map[string]bool, len(owned.Items))
	for i := range owned.Items {
		there[owned.Items[i].Name] = true
		s.Certificates = append(s.Certificates, &owned.Items[i])
	}
	for _, name := range s.Secrets() {
		if there[name] {
			continue
		}
		crt := &certmanagerv1.Certificate{}
		switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, crt); {
		case err == nil:
			s.Certificates = append(s.Certificates, crt)
		case !apierrors.IsNotFound(err):
			return s, err
		}
	}
	return s, nil
}

// plan says what an action means.
func (r *shims) plan(_ context.Context, p *pass, s shim.State, a shim.Action) (engine.Plan, error) {
	p.Memory.before = s.Kept()
	plan := engine.Plan{
		First: func(ctx context.Context) error { return r.do(ctx, p, a) }, Wake: a.Wake,
		Done: a.TooLarge == "" && len(a.Warnings)+len(a.Update)+len(p.Memory.before) == 0, // nothing is to be remembered
	}
	if !a.Wake.IsZero() {
		plan.Waits = engine.For{What: engine.WaitTime, Detail: "another writer keeps changing a Certificate"}
	}
	return plan, nil
}

// do carries out an action. A Certificate that cannot be written does not hold up the others.
func (r *shims) do(ctx context.Context, p *pass, a shim.Action) error {
	warn(p, a)
	var failures []error
	tell := func(err error, reason, format, name string) bool {
		if err != nil {
			failures = append(failures, fmt.Errorf("Certificate %q: %w", name, err))
			return false
		}
		p.Tell(engine.Event{Reason: reason, Message: fmt.Sprintf(format, name)})
		return true
	}
	for _, crt := range a.Create {
		tell(r.create(ctx, crt), shim.ReasonCreated, "Successfully created Certificate %q", crt.Name)
	}
	for _, change := range a.Update {
		patch := client.MergeFromWithOptions(change.Old, client.MergeFromWithOptimisticLock{})
		if tell(r.Client.Patch(ctx, change.New, patch), shim.ReasonUpdated, "Successfully updated Certificate %q", change.New.Name) {
			if p.Memory.before == nil {
				p.Memory.before = map[string]shim.Attempt{}
			}
			p.Memory.before[change.New.Name] = p.Memory.before[change.New.Name].Next(change, r.Now())
		}
	}
	for _, crt := range a.Delete {
		tell(r.Client.Delete(ctx, crt), shim.ReasonDeleted, "Successfully deleted unrequired Certificate %q", crt.Name)
	}
	return errors.Join(failures...)
}

// warn tells what is wrong, each time that something else is.
func warn(p *pass, a shim.Action) {
	said := a.Warnings
	if a.TooLarge != "" {
		said = append(said, a.TooLarge)
	}
	for _, warning := range said {
		reason := shim.ReasonBadConfig
		if warning == a.TooLarge {
			reason = shim.ReasonTooLarge
		}
		if !slices.Contains(p.Memory.said, warning) {
			p.Tell(engine.Event{Warning: true, Reason: reason, Message: warning})
		}
	}
	p.Memory.said = said
}

func (r *shims) create(ctx context.Context, crt *certmanagerv1.Certificate) error {
	err := r.Client.Create(ctx, crt)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fault.Pending("NamespaceTerminating", "the namespace %q is being deleted", crt.Namespace)
	}
	return err
}

// refused says that the API server does not take a Certificate.
func refused(p *pass, err error) engine.Event {
	return engine.Event{Warning: true, Reason: shim.ReasonBadConfig, Message: "the API server refuses what the annotations ask for: " + err.Error()}
}
