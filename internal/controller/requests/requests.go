// Package requests reconciles the two kinds of request for a certificate, adapted to
// one another: CertificateRequests and CertificateSigningRequests. What works for one
// kind works for the other. It knows no type of issuer: Signers do.
package requests

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/request"
	"chancery.dev/internal/signer"
)

// requestKind adapts one kind of request to request.State.
type requestKind interface {
	// observe reads a request; nil if it is gone. The issuer is left to the caller.
	observe(ctx context.Context, key client.ObjectKey) (*observation, error)
	// authorize asks whether the requester may reference the issuer.
	authorize(ctx context.Context, o *observation) (bool, error)
	// record writes a verdict to the request.
	record(ctx context.Context, o *observation, v verdict) error
}

// observation is a request as a pass sees it.
type observation struct {
	// object is a CertificateRequest or CertificateSigningRequest.
	object client.Object
	state  request.State
	// ref names the issuer, namespace where it is if it is an Issuer.
	ref       cmmeta.IssuerReference
	namespace string
	// sign is what a Signer is given; its issuer fields are filled in by the caller.
	sign signer.Request
}

// verdict is what a pass has come to.
type verdict struct {
	step request.Step
	// approve the request first.
	approve bool
	// reason and message of a wait, denial or failure.
	reason, message string
	// result of a Signer; set if the request is issued.
	result *signer.Result
}

// requests reconciles one kind of request.
type requests struct {
	*controller.Deps

	kind requestKind
}

// Reconcile brings one request further: approval, signature, or the reason why not.
func (r *requests) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o, err := r.kind.observe(ctx, req.NamespacedName)
	if err != nil || o == nil {
		return controller.Settle(err)
	}
	issuer, err := r.resolve(ctx, o)
	if err != nil {
		return controller.Settle(err)
	}
	action := request.Decide(o.state)
	if action.Step == request.StepAuthorize {
		allowed, err := r.kind.authorize(ctx, o)
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("ask whether the requester may reference %s: %w", o.state.IssuerName, err)
		}
		o.state.MayReference = &allowed
		action = request.Decide(o.state)
	}
	v := verdict{step: action.Step, approve: action.Approve, reason: action.Reason, message: action.Message}
	var failure error
	if action.Step == request.StepSign {
		v, failure = r.sign(ctx, issuer, o, v)
	}
	if v.step == request.StepIgnore {
		return reconcile.Result{}, nil
	}
	if err := r.kind.record(ctx, o, v); err != nil {
		return controller.Settle(err)
	}
	return controller.Settle(failure)
}

// sign calls the Signer and turns what it says into a verdict.
func (r *requests) sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, o *observation, v verdict) (verdict, error) {
	o.sign.IssuerName = o.ref.Name
	o.sign.IssuerKind, o.sign.IssuerGroup = o.ref.KindOrDefault(), o.ref.GroupOrDefault()
	result, err := r.Signers[signer.TypeOf(issuer.GetSpec())].Sign(ctx, issuer, o.sign)
	if err == nil {
		v.result = &result
		return v, nil
	}
	v.step, v.reason, v.message = request.StepWait, "SigningError", err.Error()
	f := fault.Of(err)
	if f == nil {
		return v, err
	}
	v.reason = f.Reason
	if f.Kind == fault.KindTerminal {
		v.step = request.StepFail
	}
	return v, err
}

// resolve finds the issuer that a request names and notes its state.
func (r *requests) resolve(ctx context.Context, o *observation) (certmanagerv1.GenericIssuer, error) {
	o.state.IssuerName = fmt.Sprintf("%s %q", o.ref.KindOrDefault(), o.ref.Name)
	if o.ref.IsExternal() {
		o.state.Issuer = request.IssuerForeign
		return nil, nil //nolint:nilnil // an external issuer is not read
	}
	issuer, err := r.readIssuer(ctx, o)
	if apierrors.IsNotFound(err) {
		o.state.Issuer = request.IssuerMissing
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, err
	}
	o.state.Issuer, o.state.IssuerSays = r.stateOf(issuer)
	return issuer, nil
}

// readIssuer reads from the cache, and confirms with the API server that an
// issuer is missing where that would fail the request for good.
func (r *requests) readIssuer(ctx context.Context, o *observation) (certmanagerv1.GenericIssuer, error) {
	var issuer certmanagerv1.GenericIssuer
	key := client.ObjectKey{Name: o.ref.Name}
	switch o.ref.KindOrDefault() {
	case cmmeta.ClusterIssuerKind:
		issuer = &certmanagerv1.ClusterIssuer{}
	case cmmeta.DefaultIssuerKind:
		issuer, key.Namespace = &certmanagerv1.Issuer{}, o.namespace
		if key.Namespace == "" { // a signer name without a dot (spec §4.1)
			return nil, apierrors.NewNotFound(certmanagerv1.SchemeGroupVersion().WithResource("issuers").GroupResource(), o.ref.Name)
		}
	default:
		return nil, apierrors.NewNotFound(certmanagerv1.SchemeGroupVersion().WithResource(o.ref.Kind).GroupResource(), o.ref.Name)
	}
	object := issuer.(client.Object) //nolint:forcetypeassert // both kinds are
	err := r.Client.Get(ctx, key, object)
	if apierrors.IsNotFound(err) && o.state.Form != request.FormCertificateRequest {
		err = r.Manager.GetAPIReader().Get(ctx, key, object)
	}
	return issuer, err
}

func (r *requests) stateOf(issuer certmanagerv1.GenericIssuer) (request.IssuerState, string) {
	kind := signer.TypeOf(issuer.GetSpec())
	if kind == "" {
		return request.IssuerTypeless, ""
	}
	if _, managed := r.Signers[kind]; !managed {
		return request.IssuerUnmanaged, ""
	}
	ready := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	switch {
	case ready == nil, ready.ObservedGeneration < issuer.GetGeneration():
		return request.IssuerUnknown, ""
	case ready.Status != cmmeta.ConditionTrue:
		return request.IssuerNotReady, ready.Message
	default:
		return request.IssuerReady, ""
	}
}

// durationOr returns the duration asked for, or the default.
func durationOr(d time.Duration) time.Duration {
	if d <= 0 {
		return certmanagerv1.DefaultCertificateDuration
	}
	return d
}

// isNoMatch reports whether the cluster does not serve a kind.
func isNoMatch(err error) bool { return meta.IsNoMatchError(err) }

// approvalRetry is how soon an approval that the API server refused is tried again:
// a right that is granted is no event.
const approvalRetry = 5 * time.Minute

// lastSaid remembers what was last said about an object, so that it is not said
// again at every look.
type lastSaid struct {
	mu   sync.Mutex
	said map[types.NamespacedName]string
}

func newLastSaid() *lastSaid { return &lastSaid{said: map[types.NamespacedName]string{}} }

func (l *lastSaid) news(name types.NamespacedName, text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said[name] == text {
		return false
	}
	l.said[name] = text
	return true
}

func (l *lastSaid) forget(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.said, name)
}
