// Package podrequests signs PodCertificateRequests with internal/engine, by CA and Vault issuers that say that they
// sign for Pods. internal/machine/podrequest decides.
package podrequests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/metrics"
	"chancery.dev/internal/signer"
)

// memory is what is remembered of a request while the process lives.
type memory struct {
	// first is when a replica that does not lead could have acted for the first time, and turn when it may.
	first, turn time.Time
	// said is what an event has told of last.
	said string
	// looks counts in a row how often what no watch tells of was looked at in vain.
	looks int
	// waits is what the metrics are told.
	waits metrics.PodWait
}

type (
	podCertificateRequest = certificatesv1.PodCertificateRequest
	kind                  = engine.Kind[*podCertificateRequest, memory, *observation, podrequest.Action]
	pass                  = engine.Pass[*podCertificateRequest, memory]
)

// observation is a request as a pass sees it.
type observation struct {
	state  podrequest.State
	issuer certmanagerv1.GenericIssuer
}

// requests are the requests of Pods.
type requests struct {
	*controller.Deps

	rights  rights
	metrics *metrics.PodRequests
	seen    *expiring.LRUExpireCache
}

// Setup adds the controller, as soon as the cluster serves the requests: API servers have them since Kubernetes 1.37,
// and as v1beta1 since 1.35, where that is switched on.
func Setup(d *controller.Deps, told *metrics.PodRequests) error {
	r := newRequests(d, told)
	return d.Late(func(ctx context.Context) error {
		return d.WhenServedAs(ctx, r.add, podapi.RequestKind(), podapi.Versions()...)
	})
}

func newRequests(d *controller.Deps, told *metrics.PodRequests) *requests {
	return &requests{Deps: d, rights: newRights(d.Manager.GetClient(), d.Now), metrics: told, seen: expiring.NewLRUExpireCacheWithClock(1, clock(d.Now))}
}

func (r *requests) kind() kind {
	return kind{
		Name: controller.PodRequestKind, Events: leadersEvents{r.Events("chancery-podcertificaterequests"), r.Deps},
		New:     func() *podCertificateRequest { return &podCertificateRequest{} },
		About:   podOf,
		Observe: r.observe, Plan: r.measured, Refused: r.refused, Gone: r.gone,
		Decide: func(o *observation, now time.Time) podrequest.Action { return podrequest.Decide(o.state, now) },
	}
}

func (r *requests) add(ctx context.Context, version string) error {
	d := r.Deps
	d.Pods.Take(podapi.RequestKind(), version)
	runner := engine.Run(d.Engine, r.kind())
	object, list := podapi.In(version, &podCertificateRequest{}), podapi.RequestList(version)
	if err := d.Manager.GetFieldIndexer().IndexField(ctx, object, controller.IssuerIndex, issuerOf); err != nil {
		return err
	}
	if err := errors.Join(d.Observed(ctx, object), r.followIssuers(ctx)); err != nil {
		return err
	}
	// A replica that begins to lead looks at all requests anew: it tells what the others keep to themselves.
	leading := manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-d.Manager.Elected(): // closed a moment after this runs
			runner.Restart()
		case <-ctx.Done():
		}
		return nil
	})
	if err := d.Manager.Add(leading); err != nil {
		return err
	}
	options := d.Options(time.Second, time.Minute)
	options.NeedLeaderElection = new(false)
	b := ctrl.NewControllerManagedBy(d.Manager).Named("podcertificaterequests").
		For(object, builder.WithPredicates(predicate.NewPredicateFuncs(r.inScope))).
		WatchesRawSource(runner).
		WatchesRawSource(d.OnIssuerSecret(d.Waiting(list))).
		WithOptions(options)
	return d.WatchIssuers(b, list).Complete(runner)
}

// inScope keeps out foreign signers, and issuers and namespaces of other scopes.
func (r *requests) inScope(object client.Object) bool {
	pcr, ok := podapi.ToV1(object).(*podCertificateRequest)
	if !ok {
		return false
	}
	named, ours := request.ParseSignerName(pcr.Spec.SignerName)
	return ours && r.Scope.Covers(pcr.Namespace) && (named.Form == request.FormCSRIssuer || r.Scope.Holds(named.Name))
}

func issuerOf(object client.Object) []string {
	pcr, ok := podapi.ToV1(object).(*podCertificateRequest)
	if !ok || finished(pcr) {
		return nil
	}
	return controller.OfSigner(pcr.Spec.SignerName)
}

// finished reports whether a request has a verdict: the API server lets nobody change it.
func finished(pcr *podCertificateRequest) bool {
	return pcr.DeletionTimestamp != nil || slices.ContainsFunc(pcr.Status.Conditions, func(c metav1.Condition) bool {
		return slices.Contains([]string{
			certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed,
		}, c.Type)
	})
}

// observe reads a request and its issuer.
func (r *requests) observe(ctx context.Context, p *pass) (*observation, error) {
	pcr := p.Object
	named, ours := request.ParseSignerName(pcr.Spec.SignerName)
	if !ours || !r.inScope(pcr) || finished(pcr) {
		return &observation{}, nil
	}
	ref := named.Reference()
	o := &observation{state: podrequest.State{
		Spec: &pcr.Spec, Namespace: pcr.Namespace, Signer: named, IssuerName: ref.Kind + " " + named.Name,
	}}
	if r.Scope.Reach(ref) != controller.WithinReach {
		o.state.Issuer = request.IssuerOutOfReach
		return o, nil
	}
	if named.Form == request.FormCSRIssuer && named.Namespace != pcr.Namespace {
		return o, nil // it is denied, whatever there is
	}
	issuer, err := r.IssuerOf(ctx, named.Namespace, ref)
	if err != nil {
		return nil, err
	}
	if issuer == nil {
		o.state.Issuer = request.IssuerMissing
		return o, nil
	}
	o.issuer = issuer
	o.state.Issuer, o.state.IssuerSays = r.StateOf(issuer, controller.PodRequestKind)
	o.state.IssuerType, o.state.Annotations = string(signer.TypeOf(issuer.GetSpec())), issuer.GetAnnotations()
	// An issuer that once had a CA keeps what its status says of that.
	if ca := issuer.GetStatus().CA; issuer.GetSpec().CA != nil && ca != nil && ca.NotAfter != nil {
		o.state.CAEnds = ca.NotAfter.Time
	}
	return o, nil
}

// plan says what a decision means.
func (r *requests) plan(ctx context.Context, p *pass, o *observation, a podrequest.Action) (engine.Plan, error) {
	_, afar := r.signerOf(o).(signer.Remote)
	if plan, leaves := r.leaves(a, afar, p.Memory, p.Chance()); leaves {
		return plan, nil
	}
	switch a.Step {
	case podrequest.StepAuthorize:
		may, err := r.rights.may(ctx, p.Object, o.state.Signer)
		if err != nil {
			return engine.Plan{}, fmt.Errorf("ask whether the ServiceAccount %s may have certificates of %s: %w", o.state.Spec.ServiceAccountName, o.state.IssuerName, err)
		}
		o.state.MayRequest = &may
		return r.plan(ctx, p, o, podrequest.Decide(o.state, r.Now()))
	case podrequest.StepRead:
		if err := r.read(ctx, p.Object, &o.state, a.Services); err != nil {
			return engine.Plan{}, fmt.Errorf("read the Pod, and the Services that give it names: %w", err)
		}
		return r.plan(ctx, p, o, podrequest.Decide(o.state, r.Now()))
	case podrequest.StepReadKey:
		key, err := r.Pods.PublicKey(ctx, r.Manager.GetAPIReader(), p.Object)
		unserved := meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && !ownwrites.IsGone(err)
		switch {
		case err != nil && !unserved:
			return engine.Plan{}, fmt.Errorf("read the public key that the kubelet has sent: %w", err)
		case err == nil && len(key) == 0:
			return engine.Plan{}, engine.ErrDecideAgain
		}
		o.state.PublicKey, o.state.KeyRead = key, true
		return r.plan(ctx, p, o, podrequest.Decide(o.state, r.Now()))
	case podrequest.StepWait:
		return r.wait(p, a), nil
	case podrequest.StepDeny:
		return verdict(p.Object, certificatesv1.PodCertificateRequestConditionTypeDenied, a.Reason, a.Message, r.Now()), nil
	case podrequest.StepSign:
		return r.sign(ctx, p, o, a)
	default:
		if first := p.Memory.first; !first.IsZero() && p.Object.DeletionTimestamp == nil && finished(p.Object) {
			r.saw(p.Object, r.Now().Sub(first))
		}
		return engine.Plan{Done: true}, nil
	}
}

// doesNotCome is where the events about a Pod begin.
const doesNotCome = "The certificate for a volume of the Pod does not come: "

// news is what is told of a wait once. What a server says, also to an issuer, counts without its digits: servers say
// what time it is, and that is nothing new to tell of. In our own words, a number may be the name of a Service.
func news(a podrequest.Action) string {
	if a.Reason != podrequest.ReasonSigningError && a.Reason != podrequest.ReasonIssuerNotReady {
		return a.Reason + a.Message
	}
	return a.Reason + strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, a.Message)
}

// wait writes nothing to the request: an event about the Pod says once what it waits for.
func (r *requests) wait(p *pass, a podrequest.Action) engine.Plan {
	plan := engine.Plan{Waits: engine.For{What: engine.WaitEvent, Detail: a.Message}}
	if said := news(a); p.Memory.said != said && a.Reason != "" {
		plan.Events = []engine.Event{{Warning: true, Reason: a.Reason, Message: doesNotCome + a.Message}}
		p.Memory.said = said
	}
	p.Memory.waits.Reason, p.Memory.first = a.Reason, time.Time{}
	if a.Unwatched {
		p.Memory.looks++
		wait := fault.Rights.With("").Step(p.Memory.looks)
		plan.Wake = r.Now().Add(wait - time.Duration(p.Chance()*float64(wait)/4)) // not all Pods in one moment
		plan.Waits.What = engine.WaitTime
	}
	return plan
}

func podOf(pcr *podCertificateRequest) *corev1.ObjectReference {
	path := podrequest.FieldPath(pcr.Spec.SignerName)
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pcr.Namespace, Name: pcr.Spec.PodName, UID: pcr.Spec.PodUID, FieldPath: path}
}

// verdict is a plan that finishes a request. The kubelet tells of a denial in an event about the Pod.
func verdict(pcr *podCertificateRequest, condition, reason, message string, now time.Time) engine.Plan {
	changed := pcr.DeepCopy()
	changed.Status.Conditions = append(changed.Status.Conditions, metav1.Condition{
		Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now),
	})
	return engine.Plan{Status: changed, Done: true}
}

// refused says what the API server does not let us read or write.
func (r *requests) refused(p *pass, err error) engine.Event {
	p.Memory.waits.Reason = podrequest.ReasonSigningError
	r.metrics.Waits(p.Object.UID, p.Memory.waits)
	return engine.Event{Warning: true, Reason: podrequest.ReasonSigningError, Message: doesNotCome + err.Error()}
}

// Thin is the cache.TransformFunc of PodCertificateRequests; others has all other kinds. Of a request that is finished,
// or for a signer of somebody else, it keeps what says so: the cluster keeps requests for a quarter of an hour.
func Thin(others toolscache.TransformFunc) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		pcr, ok := podapi.ToV1(obj).(*podCertificateRequest)
		if !ok {
			return others(obj)
		}
		if _, ours := request.ParseSignerName(pcr.Spec.SignerName); ours && !finished(pcr) {
			return cache.TransformStripManagedFields()(obj)
		}
		thin := &podCertificateRequest{ObjectMeta: metav1.ObjectMeta{
			Namespace: pcr.Namespace, Name: pcr.Name, UID: pcr.UID, ResourceVersion: pcr.ResourceVersion, DeletionTimestamp: pcr.DeletionTimestamp,
		}}
		thin.Spec.SignerName, thin.Status.Conditions = pcr.Spec.SignerName, pcr.Status.Conditions
		return podapi.In(podapi.VersionOf(obj), thin), nil
	}
}
