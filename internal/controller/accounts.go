package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acmeaccount"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/solver"
)

// Bounds of the calls that leave the cluster.
const (
	// acmeCalls and acmeTimeout bound the calls of one ACME account (spec §5.2).
	acmeCalls   = 16
	acmeTimeout = 90 * time.Second
	// solverCalls and solverTimeout bound the calls with one solver configuration, and
	// the self checks of one namespace and shard.
	solverCalls   = 16
	solverTimeout = 30 * time.Second
)

// ACMEDeps is what Orders and Challenges need beside Deps.
type ACMEDeps struct {
	// Accounts are the ACME accounts that issuers have been set up with.
	Accounts *acmeaccount.Registry
	// Solvers by the type of challenge that they solve.
	Solvers map[acmev1.ACMEChallengeType]solver.Solver
	// MaxConcurrentChallenges caps the challenges in flight (mission rule 3); 0 blocks
	// all of them.
	MaxConcurrentChallenges int
	// Settings are the times.
	Settings acmeflow.Settings
	// Chance spreads retries: it returns numbers in [0,1). Nil means math/rand.
	Chance func() float64
}

func (d ACMEDeps) chance() float64 {
	if d.Chance == nil {
		return rand.Float64() //nolint:gosec // spreads load; nothing secret
	}
	return d.Chance()
}

// Doorbell queues objects from outside of any watch: it is a source of a controller.
// The zero value is ready.
type Doorbell struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	early []reconcile.Request
}

// Start implements source.Source: the controller calls it.
func (b *Doorbell) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = queue
	for _, req := range b.early {
		queue.Add(req)
	}
	b.early = nil
	return nil
}

// Ring queues an object. It never blocks, and may be called before Start.
func (b *Doorbell) Ring(name types.NamespacedName) {
	req := reconcile.Request{NamespacedName: name}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue == nil {
		b.early = append(b.early, req)
		return
	}
	b.queue.Add(req)
}

// crew makes calls for the objects of one controller and queues them again when
// the calls have come back. It lives as long as its controller.
type crew struct {
	Doorbell

	// acme, solve and check have lanes by account, by solver configuration, and by
	// namespace.
	acme, solve, check *flight.Flights
}

// Start implements source.Source.
func (c *crew) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.acme = flight.New(ctx, flight.Options{PerLane: acmeCalls, Timeout: acmeTimeout})
	c.solve = flight.New(ctx, flight.Options{PerLane: solverCalls, Timeout: solverTimeout})
	c.check = flight.New(ctx, flight.Options{PerLane: solverCalls, Timeout: solverTimeout})
	return c.Doorbell.Start(ctx, queue)
}

// forget drops all calls for an object that is gone.
func (c *crew) forget(object types.UID) {
	for _, flights := range []*flight.Flights{c.acme, c.solve, c.check} {
		flights.Forget(object)
	}
}

// memories keeps what was learned about objects, by their UID: another object by the
// same name starts anew.
type memories[M any] struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]*memory[M]
}

type memory[M any] struct {
	uid types.UID
	// known is touched by the one worker that has the object only.
	known M
}

// of returns the memory of an object, and the UID of another one by its name that
// was forgotten for it.
func (m *memories[M]) of(name types.NamespacedName, uid types.UID) (*memory[M], types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byName == nil {
		m.byName = map[types.NamespacedName]*memory[M]{}
	}
	var replaced types.UID
	if known := m.byName[name]; known != nil {
		if known.uid == uid {
			return known, ""
		}
		replaced = known.uid
	}
	fresh := &memory[M]{uid: uid}
	m.byName[name] = fresh
	return fresh, replaced
}

// drop forgets an object and returns its UID; empty if nothing was known.
func (m *memories[M]) drop(name types.NamespacedName) types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.byName[name]
	if known == nil {
		return ""
	}
	delete(m.byName, name)
	return known.uid
}

// acmeIssuer is what an Order or a Challenge sees of its issuer.
type acmeIssuer struct {
	flow    acmeflow.Issuer
	account acmeflow.Account
	// remote is nil unless the account can be used.
	remote *acmeaccount.Account
}

// observeIssuer looks at the issuer that an object in the namespace names.
func (d *Deps) observeIssuer(ctx context.Context, accounts *acmeaccount.Registry, ref cmmeta.IssuerReference, namespace string) (acmeIssuer, error) {
	missing := func(format string, args ...any) (acmeIssuer, error) {
		return acmeIssuer{flow: acmeflow.Issuer{Readiness: acmeflow.IssuerMissing, Message: fmt.Sprintf(format, args...)}}, nil
	}
	if ref.IsExternal() {
		return missing("issuers of group %q are not ours", ref.Group)
	}
	var issuer certmanagerv1.GenericIssuer
	key := client.ObjectKey{Name: ref.Name}
	if ref.KindOrDefault() == cmmeta.ClusterIssuerKind {
		issuer = &certmanagerv1.ClusterIssuer{}
	} else {
		issuer, key.Namespace = &certmanagerv1.Issuer{}, namespace
	}
	err := d.Client.Get(ctx, key, issuer.(client.Object)) //nolint:forcetypeassert // both kinds are
	switch {
	case apierrors.IsNotFound(err):
		return missing("there is no %s of that name", ref.KindOrDefault())
	case err != nil:
		return acmeIssuer{}, err
	}
	spec := issuer.GetSpec().ACME
	if spec == nil {
		return missing("the %s of that name is not an ACME issuer", ref.KindOrDefault())
	}
	return viewOf(issuer, spec, accounts), nil
}

func viewOf(issuer certmanagerv1.GenericIssuer, spec *acmev1.ACMEIssuer, accounts *acmeaccount.Registry) acmeIssuer {
	view := acmeIssuer{flow: acmeflow.Issuer{Solvers: spec.Solvers, PreferredChain: spec.PreferredChain}}
	ready := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	account, bound := accounts.Of(issuer.GetUID())
	if bound {
		view.account.Thumbprint = account.Thumbprint()
		view.account.ParkedUntil, view.account.ParkedReason = account.Parked()
		if account.URL() != "" {
			view.remote = account
		}
	}
	switch {
	case ready == nil:
		view.flow.Readiness = acmeflow.IssuerNotReady
	case ready.Status != cmmeta.ConditionTrue:
		view.flow.Readiness, view.flow.Message = acmeflow.IssuerNotReady, ready.Message
	case view.remote == nil:
		view.flow.Readiness = acmeflow.IssuerStarting
	}
	return view
}

// followAccounts rings for the objects of a kind whose issuer's account has changed.
func (d *Deps) followAccounts(accounts *acmeaccount.Registry, list func() client.ObjectList, bell *Doorbell) {
	accounts.Watch(func(i acmeaccount.Issuer, _ acmeaccount.Change) {
		for _, req := range d.unfinished(context.Background(), list(), i.Namespace, i.Name) {
			bell.Ring(req.NamespacedName)
		}
	})
}

// releaseAccounts has the registry forget issuers that are deleted.
func (d *Deps) releaseAccounts(ctx context.Context, accounts *acmeaccount.Registry) error {
	for _, kind := range []client.Object{&certmanagerv1.Issuer{}, &certmanagerv1.ClusterIssuer{}} {
		informer, err := d.Manager.GetCache().GetInformer(ctx, kind)
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if o, ok := obj.(client.Object); ok {
				accounts.Release(acmeaccount.Issuer{UID: o.GetUID(), Namespace: o.GetNamespace(), Name: o.GetName()})
			}
		}}); err != nil {
			return err
		}
	}
	return nil
}

// unfinished lists the objects that wait for an issuer.
func (d *Deps) unfinished(ctx context.Context, list client.ObjectList, issuerNamespace, issuerName string) []reconcile.Request {
	found := client.MatchingFields{issuerIndex: issuerKey(issuerNamespace, issuerName)}
	if err := d.Manager.GetCache().List(ctx, list, found, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only before the caches have synced, and then every object is looked at anyway
	}
	return requestsOf(list)
}

// solverNamespace is where the Secrets are that a Challenge's solver names.
func (d *Deps) solverNamespace(c *acmev1.Challenge) string {
	if c.Spec.IssuerRef.KindOrDefault() == cmmeta.ClusterIssuerKind {
		return d.Settings.ClusterResourceNamespace
	}
	return c.Namespace
}

// settleWrite is settle for a pass that writes: what somebody else has written
// meanwhile is looked at soon, and an object that is gone is let go.
func settleWrite(err error) (reconcile.Result, error) {
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	return settle(err)
}
