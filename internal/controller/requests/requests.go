// Package requests reconciles the two kinds of request for a certificate, adapted to
// one another: CertificateRequests and CertificateSigningRequests. What works for one
// kind works for the other. It knows no type of issuer: Signers do.
package requests

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/record"
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
	// approve stores an approval before anything is signed, where that is a write of its
	// own; false where record stores it together with the verdict.
	approve(ctx context.Context, o *observation) (bool, error)
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
	// approve the request too.
	approve bool
	// reason and message of a wait, denial or failure; class of a failure, if it is known.
	reason, message string
	class           fault.Class
	// result of a Signer; set if the request is issued.
	result *signer.Result
	// inLine is the Signer, if it needs nothing from outside of this process.
	inLine signer.InLine
}

// requests reconciles one kind of request.
type requests struct {
	*controller.Deps

	kind    requestKind
	said    *lastSaid
	unsaved *unsaved
	events  record.EventRecorder
}

func newRequests(d *controller.Deps, kind requestKind, events record.EventRecorder, said *lastSaid) *requests {
	return &requests{Deps: d, kind: kind, events: events, said: said, unsaved: newUnsaved()}
}

// Reconcile brings one request further: approval, signature, or the reason why not.
func (r *requests) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o, err := r.kind.observe(ctx, req.NamespacedName)
	if err != nil {
		return controller.Settle(err)
	}
	if o == nil {
		r.said.forget(req.NamespacedName)
		r.unsaved.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	issuer, err := r.resolve(ctx, o)
	if err != nil {
		return controller.Settle(err)
	}
	v, err := r.decide(ctx, o, issuer)
	if err != nil {
		return controller.Settle(err)
	}
	var failure error
	if v.step == request.StepSign {
		v, failure = r.sign(ctx, issuer, o, v)
	}
	if v.step == request.StepIgnore {
		return controller.Settle(failure)
	}
	if err := r.kind.record(ctx, o, v); err != nil {
		return controller.Settle(r.refused(o, v, err))
	}
	if v.approve && v.result == nil { // the Signer may have waited until that is stored
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	return controller.Settle(failure)
}

// decide asks for what the decision needs, and stores an approval that has to be there
// before the signature.
func (r *requests) decide(ctx context.Context, o *observation, issuer certmanagerv1.GenericIssuer) (verdict, error) {
	action := request.Decide(o.state)
	if action.Step == request.StepAuthorize {
		allowed, err := r.kind.authorize(ctx, o)
		if err != nil {
			err = fmt.Errorf("ask whether the requester may reference %s: %w", o.state.IssuerName, err)
			return verdict{}, r.refused(o, verdict{}, err)
		}
		o.state.MayReference = &allowed
		action = request.Decide(o.state)
	}
	if action.Step == request.StepSign {
		o.state.Problem = disagreement(o.sign, issuer)
		action = request.Decide(o.state)
	}
	v := verdict{step: action.Step, approve: action.Approve, reason: action.Reason, message: action.Message}
	if v.step == request.StepFail && o.state.Problem != nil {
		if f := fault.Of(o.state.Problem); f != nil && f.Reason == v.reason {
			v.class = f.Class
		}
	}
	o.sign.Approved = o.state.Approved
	if v.step == request.StepSign && v.approve {
		stored, err := r.kind.approve(ctx, o)
		if err != nil {
			return v, r.refused(o, v, err)
		}
		v.approve, o.sign.Approved = !stored, stored
	}
	return v, nil
}

// disagreement is request.Disagreement in the words of the issuer's type.
func disagreement(r signer.Request, issuer certmanagerv1.GenericIssuer) error {
	reason := reasonSigningError
	if signer.TypeOf(issuer.GetSpec()) == signer.TypeSelfSigned {
		reason = "ErrorGenerating"
	}
	return request.Disagreement(request.Asked{
		CSR: r.CSR, IsCA: r.IsCA, Usages: r.Usages, CertSign: r.SourceKind == certmanagerv1.CertificateRequestKind,
	}, reason)
}

// refused says, once, what the API server did not let us write. A right that is
// granted is no event, so the write is tried again after a while.
func (r *requests) refused(o *observation, v verdict, cause error) error {
	if !apierrors.IsForbidden(cause) && !apierrors.IsInvalid(cause) {
		return cause
	}
	reason, message := reasonErrorUpdate, fmt.Sprintf("The API server refuses what this request needs: %v", cause)
	if v.approve {
		reason = reasonApprovalForbidden
		message = fmt.Sprintf("This request needs an approver with the verb approve on the signers of %s: grant it to the controller's service account, or approve the request. %v",
			o.state.IssuerName, cause)
	}
	if r.said.news(client.ObjectKeyFromObject(o.object), message) {
		controller.Emit(r.events, o.object, true, reason, message)
	}
	return fault.After(refusedRetry, reason, "%s", message)
}

// sign calls the Signer and turns what it says into a verdict.
func (r *requests) sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, o *observation, v verdict) (verdict, error) {
	o.sign.IssuerName = o.ref.Name
	o.sign.IssuerKind, o.sign.IssuerGroup = o.ref.KindOrDefault(), o.ref.GroupOrDefault()
	if err := r.persist(ctx, o, nil); err != nil {
		return verdict{step: request.StepIgnore}, err
	}
	by := r.Signers[signer.TypeOf(issuer.GetSpec())]
	v.inLine, _ = by.(signer.InLine)
	result, err := by.Sign(ctx, issuer, o.sign)
	if saved := r.persist(ctx, o, result.Annotations); saved != nil {
		return verdict{step: request.StepIgnore}, saved
	}
	if err == nil {
		v.result = &result
		return v, nil
	}
	v.step, v.reason, v.message = request.StepWait, reasonSigningError, err.Error()
	f := fault.Of(err)
	if f == nil {
		return v, err
	}
	v.reason = f.Reason
	if f.Kind == fault.KindTerminal {
		v.step, v.class = request.StepFail, f.Class
	}
	return v, err
}

// persist stores annotations that a Signer has given, and those that could not be
// stored before: what they name (a pickup id) may be known to nobody else.
func (r *requests) persist(ctx context.Context, o *observation, annotations map[string]string) error {
	key := client.ObjectKeyFromObject(o.object)
	wanted := r.unsaved.add(o.object, annotations)
	if len(wanted) == 0 {
		return nil
	}
	changed := o.object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
	merged := maps.Clone(changed.GetAnnotations())
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, wanted)
	changed.SetAnnotations(merged)
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(o.object)); err != nil {
		return r.refused(o, verdict{}, fmt.Errorf("store the annotations of %s: %w", o.object.GetName(), err))
	}
	r.unsaved.forget(key)
	o.object, o.sign.Source = changed, changed
	return nil
}

// resolve finds the issuer that a request names and notes its state.
func (r *requests) resolve(ctx context.Context, o *observation) (certmanagerv1.GenericIssuer, error) {
	o.state.IssuerName = fmt.Sprintf("%s %q", o.ref.KindOrDefault(), o.ref.Name)
	if o.ref.IsExternal() {
		o.state.Issuer = request.IssuerForeign
		return nil, nil //nolint:nilnil // an external issuer is not read
	}
	if r.Scope.NamespacedOnly && o.ref.KindOrDefault() == cmmeta.ClusterIssuerKind {
		o.state.Issuer = request.IssuerOutOfReach
		return nil, nil //nolint:nilnil // it cannot be read
	}
	issuer, err := r.readIssuer(ctx, o)
	if apierrors.IsNotFound(err) {
		o.state.Issuer = request.IssuerMissing
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, err
	}
	o.state.Issuer, o.state.IssuerSays = r.StateOf(issuer)
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

// durationOr returns the duration asked for, or the default.
func durationOr(d time.Duration) time.Duration {
	if d <= 0 {
		return certmanagerv1.DefaultCertificateDuration
	}
	return d
}

// isNoMatch reports whether the cluster does not serve a kind.
func isNoMatch(err error) bool { return meta.IsNoMatchError(err) }

// refusedRetry is how soon a write that the API server refused is tried again: a right
// that is granted is no event.
const refusedRetry = 5 * time.Minute

// Reasons of what the API server refused.
const (
	reasonApprovalForbidden = "ApprovalForbidden"
	reasonErrorUpdate       = "ErrorUpdate"
	reasonSigningError      = "SigningError"
)
