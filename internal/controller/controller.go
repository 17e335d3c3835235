// Package controller is what all controllers share: what they are given, their queues and indexes, and what they are
// woken by. The controllers themselves are in the packages below this one, and run on internal/engine.
//
// A controller never imports an adapter: signers and solvers come in through their ports, and internal/app wires them.
package controller

import (
	"context"
	"crypto/sha256"
	"fmt"
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
	"chancery.dev/internal/kubecache"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/overlay"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/solver"
)

// Deps is what every reconciler is given.
type Deps struct {
	// Manager runs the reconcilers.
	Manager ctrl.Manager
	// Client reads from the cache, own writes included.
	Client *overlay.Client
	// Engine makes the calls that leave the process, and writes each status.
	Engine *engine.Engine
	// Secrets reads Secrets.
	Secrets *kubecache.Secrets
	// Requests keeps the certificates of CertificateRequests until they are stored.
	Requests *kubecache.Requests
	// Scope says which objects are ours.
	Scope Scope
	// Now is the clock.
	Now func() time.Time
	// Clock drives what waits; nil is the machine's.
	Clock Clock
	// HeadStart is for what everybody waits for, before what Late sets up.
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
	// Unanswered is the fault of a solver for whose challenges nobody would answer; nil if somebody would. It reads
	// the cache.
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
	// MachineGroups are the groups of machines whose CertificateSigningRequests are approved as others' are.
	MachineGroups []string
	// ApproveSigners limits the built-in approver of CertificateRequests.
	ApproveSigners request.SignerPatterns
	// Unsigned are the types of issuers, by kind of request, whose requests others sign.
	Unsigned map[string][]signer.Type
	// StepEvents has events emitted about steps too, not only about results and trouble.
	StepEvents bool
	// EnableCertificateOwnerRef has target Secrets owned by their Certificate.
	EnableCertificateOwnerRef bool
}

// Scope says which objects a controller cares for: tests run side by side with
// it, and replicas will share the work by it.
type Scope struct {
	// Namespaces to watch; none means all.
	Namespaces []string
	// ClusterObject says whether a cluster-scoped issuer, by name, is ours; nil means all are.
	ClusterObject func(name string) bool
	// NamespacedOnly has nothing that is cluster-scoped read at all: there are no rights to.
	NamespacedOnly bool
}

// Holds reports whether the issuer of that name, cluster-scoped, is in scope.
func (s Scope) Holds(clusterObject string) bool {
	return s.ClusterObject == nil || s.ClusterObject(clusterObject)
}

// Reach says whether this process has to do with the issuer that a reference names.
type Reach string

const (
	// WithinReach: the issuer is read, and what names it is decided about.
	WithinReach Reach = ""
	// OfOthers: the issuer has a group of its own, and a controller of its own.
	OfOthers Reach = "OfOthers"
	// Unreadable: the issuer is a ClusterIssuer, and nothing that is cluster-scoped is read.
	Unreadable Reach = "Unreadable"
	// OutOfScope: the issuer is a ClusterIssuer that another process cares for.
	OutOfScope Reach = "OutOfScope"
)

// Reach is the one answer to whose an issuer is, for Certificates, requests, Orders and Challenges.
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

// Make creates an object of an owner. One that is there already by that name is read from the API server into found,
// and ours says whether it is the owner's: a pass that was cut short may have made it.
func (d *Deps) Make(ctx context.Context, object, found client.Object, owner metav1.Object) (ours bool, err error) {
	err = d.Client.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return true, err
	}
	err = d.Client.Live(ctx, d.Manager.GetAPIReader(), client.ObjectKeyFromObject(object), found)
	return metav1.IsControlledBy(found, owner), err
}

// SecondName is the name of an object of an owner where somebody else's has the first one, such as an object that a
// backup has brought back without its owner. It is always the same, so that a pass that was cut short finds its object.
func SecondName(name string, owner types.UID) string {
	sum := sha256.Sum256([]byte(owner))
	return fmt.Sprintf("%s-%x", name, sum[:4])
}

// IsPassing reports whether the object that has an owner's first name is that of an earlier owner of the same name, as
// where the owner was deleted and made again: the garbage collector deletes it in a moment.
func IsPassing(found, owner metav1.Object, now time.Time) bool {
	const moment = time.Minute
	was := metav1.GetControllerOfNoCopy(found)
	return was != nil && was.Name == owner.GetName() && was.UID != owner.GetUID() && now.Sub(owner.GetCreationTimestamp().Time) < moment
}

// Options are those of every controller: back-off between first and most.
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

// Observed is a pass that one watch sees before everybody else: it tells the
// overlay what the cache knows now.
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
