// Package controller holds what all controllers share: their dependencies and settings, their queues and indexes, and
// the events that wake them. The controllers are in the packages below this one, and run on internal/engine.
//
// A controller never imports an adapter: a controller knows signers and solvers only by their interfaces (ports), and
// internal/app connects the adapters.
package controller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/solver"
)

// Deps is what every reconciler is given.
type Deps struct {
	// Manager runs the reconcilers.
	Manager ctrl.Manager
	// Client reads from the cache, own writes included.
	Client *ownwrites.Client
	// Pods says in which versions the kinds that are for Pods are read and written by Client.
	Pods *podapi.Client
	// Engine makes the calls that leave the process, and writes each status.
	Engine *engine.Engine
	// Secrets reads Secrets.
	Secrets *secrets.Secrets
	// Requests keeps the certificates of CertificateRequests until they are stored.
	Requests *informers.Requests
	// Scope says which objects are ours.
	Scope Scope
	// Now is the clock.
	Now func() time.Time
	// Clock drives what waits; nil is the machine's.
	Clock Clock
	// Fit reports whether this process may do what it would do if it led, also while it does not; nil means always.
	Fit func() bool
	// HeadStart is how long Late waits before it sets up controllers that nobody waits for.
	HeadStart time.Duration
	// Events emits events on behalf of a component.
	Events func(component string) record.EventRecorder
	// Signers by type of issuer, and the Orderer of ACME; a type that is missing is not managed.
	Signers map[signer.Type]signer.Adapter
	// Solvers by the type of challenge that they solve.
	Solvers map[acmev1.ACMEChallengeType]solver.Solver
	// HTTP01 says whether HTTP-01 challenges are answered; nil if CAs reach the responder without routes.
	HTTP01 *HTTP01
	// Settings are the user's.
	Settings Settings

	late []<-chan struct{} // closed once each is set up that comes late
}

// HTTP01 says whether HTTP-01 challenges are answered.
type HTTP01 struct {
	// Responder is the Service whose EndpointSlices tell.
	Responder types.NamespacedName
	// Unanswered returns a fault if nobody would answer the challenges of a solver, otherwise nil. It reads the cache.
	Unanswered func(ctx context.Context, s *acmev1.HTTP01Solver) error
}

// Settings are what a user can set.
type Settings struct {
	// ClusterResourceNamespace holds the Secrets of ClusterIssuers, and the Orders of
	// CertificateSigningRequests for them.
	ClusterResourceNamespace string
	// Workers is how many objects of a kind are reconciled at once.
	Workers int
	// Backoff bounds the wait after a failed issuance.
	Backoff certificate.Backoff
	// CopiedAnnotations chooses what CertificateRequests inherit from Certificates.
	CopiedAnnotations certificate.AnnotationFilter
	// Approvers says, by form, who approves requests.
	Approvers map[request.Form]request.Approver
	// MachineGroups are the groups of nodes and bootstrap tokens whose CertificateSigningRequests are approved like
	// those of users.
	MachineGroups []string
	// ApproveSigners limits the built-in approver of CertificateRequests.
	ApproveSigners request.SignerPatterns
	// Unsigned lists, by kind of request, the types of issuers whose requests other controllers sign.
	Unsigned map[string][]signer.Type
	// StepEvents emits events about steps, too, not only about results and trouble.
	StepEvents bool
	// EnableCertificateOwnerRef makes each Certificate the owner of its target Secret.
	EnableCertificateOwnerRef bool
}

// Scope says which objects a controller cares for. With it, tests run side by side, and replicas will share the work.
type Scope struct {
	// Namespaces to watch; none means all.
	Namespaces []string
	// ClusterObject says whether a cluster-scoped issuer, by name, is ours; nil means all are.
	ClusterObject func(name string) bool
	// NamespacedOnly says that the controller reads nothing that is cluster-scoped: it has no rights to.
	NamespacedOnly bool
}

// Holds reports whether the issuer of that name, cluster-scoped, is in scope.
func (s Scope) Holds(clusterObject string) bool {
	return s.ClusterObject == nil || s.ClusterObject(clusterObject)
}

// Reach says whether this process handles the issuer that a reference names.
type Reach string

const (
	// WithinReach: this process reads the issuer, and handles the objects that name it.
	WithinReach Reach = ""
	// OfOthers: the issuer is of another API group, and has a controller of its own.
	OfOthers Reach = "OfOthers"
	// Unreadable: the issuer is a ClusterIssuer, and this process reads nothing that is cluster-scoped.
	Unreadable Reach = "Unreadable"
	// OutOfScope: the issuer is a ClusterIssuer that another process cares for.
	OutOfScope Reach = "OutOfScope"
)

// Reach says whose an issuer is. Certificates, requests, Orders and Challenges all ask it.
func (s Scope) Reach(ref cmmeta.IssuerReference) Reach {
	switch cluster := ref.KindOrDefault() == cmmeta.ClusterIssuerKind; {
	case ref.IsExternal():
		return OfOthers
	case cluster && s.NamespacedOnly:
		return Unreadable
	case cluster && !s.Holds(ref.Name):
		return OutOfScope
	default:
		return WithinReach
	}
}

// Covers reports whether a namespace is within the scope.
func (s Scope) Covers(namespace string) bool {
	return len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, namespace)
}

// IssuerKinds returns a new object of each kind of issuer that is read.
func (s Scope) IssuerKinds() []client.Object {
	kinds := []client.Object{&certmanagerv1.Issuer{}}
	if !s.NamespacedOnly {
		kinds = append(kinds, &certmanagerv1.ClusterIssuer{})
	}
	return kinds
}

// CacheNamespaces returns the scope in the form that a cache is configured with.
func (s Scope) CacheNamespaces() map[string]cache.Config {
	if len(s.Namespaces) == 0 {
		return nil
	}
	out := map[string]cache.Config{}
	for _, ns := range s.Namespaces {
		out[ns] = cache.Config{}
	}
	return out
}

// Make creates an object of an owner. If an object of that name exists already, Make reads it from the API server into
// found, and ours says whether it is the owner's: an earlier pass that was cut short may have made it.
func (d *Deps) Make(ctx context.Context, object, found client.Object, owner metav1.Object) (ours bool, err error) {
	err = d.Client.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return true, err
	}
	err = d.Client.Live(ctx, d.Manager.GetAPIReader(), client.ObjectKeyFromObject(object), found)
	return metav1.IsControlledBy(found, owner), err
}

// SecondName is the name of an owner's object if another object has the first name, for example one that was restored
// from a backup without its owner. SecondName is always the same: a pass that was cut short finds its object again.
func SecondName(name string, owner types.UID) string {
	sum := sha256.Sum256([]byte(owner))
	return fmt.Sprintf("%s-%x", name, sum[:4])
}

// IsPassing reports whether found, which has the first name of an owner's object, belongs to an earlier owner of the
// same name: the owner was deleted and made again a moment ago. Then the garbage collector soon deletes found.
func IsPassing(found, owner metav1.Object, now time.Time) bool {
	const moment = time.Minute
	was := metav1.GetControllerOfNoCopy(found)
	return was != nil && was.Name == owner.GetName() && was.UID != owner.GetUID() && now.Sub(owner.GetCreationTimestamp().Time) < moment
}

// Options are the options of every controller. The back-off is between first and most.
func (d *Deps) Options(first, most time.Duration) controller.Options {
	skip := true // several managers run in one process in tests
	o := controller.Options{
		MaxConcurrentReconciles: max(d.Settings.Workers, 1),
		SkipNameValidation:      &skip,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, most),
		NewQueue:                NewQueue,
	}
	if d.Clock != nil {
		o.NewQueue = func(name string, limiter Limiter) Queue {
			return engine.Forgetting(d.Clock.Queue(name, limiter), d.Clock.AfterFunc)
		}
	}
	return o
}

// Observed connects the client, which keeps own writes, with the watches of the kinds: each event tells the client what
// the cache knows now.
func (d *Deps) Observed(ctx context.Context, kinds ...client.Object) error {
	for _, kind := range kinds {
		informer, err := d.Manager.GetCache().GetInformer(ctx, kind)
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(observer{d.Client}); err != nil {
			return err
		}
	}
	return nil
}
