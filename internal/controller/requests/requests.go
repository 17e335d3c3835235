// Package requests reconciles CertificateRequests and CertificateSigningRequests with internal/engine. The package
// converts both kinds to one form, so that both kinds behave the same. Signers know the types of issuers, and this
// package does not. An ACME issuer has a signer.Orderer in place of a Signer: for such an issuer, the package makes the
// Orders that internal/machine/request asks for.
package requests

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/signer"
)

// requestKind adapts one kind of request to request.State.
type requestKind interface {
	// observe reads a request; nil if nothing is to be done for it. The issuer is left to the caller.
	observe(object client.Object) *observation
	// authorize asks whether the requester may reference the issuer.
	authorize(ctx context.Context, object client.Object, o *observation) (bool, error)
	// approve returns what stores an approval, where that is a write of its own; nil where record stores it together
	// with the verdict.
	approve(object client.Object) func(context.Context) error
	// record returns the request with what a verdict makes of its status, nil if that stays, and the events to emit.
	record(p *pass, v verdict) (client.Object, []engine.Event)
}

// observation is a request as a pass sees it.
type observation struct {
	state request.State
	// ref names the issuer, namespace where it is if it is an Issuer.
	ref       cmmeta.IssuerReference
	namespace string
	// issuer is nil if there is none, or if it is not read.
	issuer certmanagerv1.GenericIssuer
	// sign is what a Signer is given; its issuer fields are filled in by the caller.
	sign signer.Request
	// orderer makes the Order that is wanted; nil if the issuer has a Signer.
	orderer signer.Orderer
	wanted  *acmev1.Order
}

// memory is what is remembered of a request while the process lives.
type memory struct {
	// said is the wait that an event has told of last.
	said string
	// told is when the status was last given a cause, and retell when it may be given the next one that was put off;
	// zero for none.
	told, retell time.Time
	// approving names the issuer for which the last plan approves the request; empty if it does not.
	approving string
	// refusals counts how often the API server has refused the approval, and unordered the Orders that it has refused.
	refusals  int
	unordered cause.Refusals
	// wrong counts the Orders whose certificates were not for the request, orderAfter is when the next one may be made.
	wrong      int
	orderAfter time.Time
	// calling says that the outcome of the request's call has not been seen yet.
	calling bool
}

// brought is what the call for a request comes back with.
type brought struct {
	signer.Result
	// asked is what the call has asked for.
	asked string
}

// verdict is what a pass has come to.
type verdict struct {
	step request.Step
	// approve the request too.
	approve bool
	// reason and message of a wait, denial or failure; class of a failure, if it is known.
	reason, message string
	class           fault.Class
	// cause is what is in the way, for the status; nil if nothing is.
	cause *cmmeta.Cause
	// awaited says that a wait is the usual one for an issuer: nothing is wrong.
	awaited bool
	// result of a Signer; set if the request is issued.
	result *signer.Result
	// inLine is the Signer, if it needs nothing from outside of this process.
	inLine signer.InLine
}

func verdictOf(a request.Action) verdict {
	return verdict{
		step: a.Step, approve: a.Approve, reason: a.Reason, message: a.Message, class: a.Class, cause: a.Cause,
		awaited: a.Reason == request.ReasonOrderPending && (a.Cause == nil || a.Cause.Class == string(fault.ClassSelfCheck)),
	}
}

// kind is a kind of request, pass one look at a request.
type (
	kind = engine.Kind[client.Object, memory, *observation, request.Action]
	pass = engine.Pass[client.Object, memory]
)

// requests runs one kind of request.
type requests struct {
	*controller.Deps

	kind requestKind
}

// run puts a kind of request on the engine.
func (r *requests) run(k kind) *engine.Runner[client.Object, memory, *observation, request.Action] {
	k.Observe, k.Plan, k.Refused, k.Traced = r.observe, r.plan, r.refused, r.traced()
	k.Decide = func(o *observation, _ time.Time) request.Action {
		if o == nil {
			return request.Action{Step: request.StepIgnore}
		}
		return request.Decide(o.state)
	}
	return engine.Run(r.Engine, k)
}

// traced makes each request an issuance of its own.
func (r *requests) traced() *engine.Traced {
	return &engine.Traced{
		Issuance: func(_ context.Context, request client.Object) types.UID { return request.GetUID() },
		Issuer: func(request client.Object) string {
			if o := r.kind.observe(request); o != nil {
				return o.ref.Name
			}
			return ""
		},
		Over: func(request client.Object) (is bool, problem string) {
			o := r.kind.observe(request)
			if is = over(o); is && o != nil && !o.state.Issued {
				problem = "the request was refused, or has failed"
			}
			return is, problem
		},
	}
}

// signCall names the call of the engine that asks for a signature.
const signCall = "sign"

// observe reads a request and its issuer.
func (r *requests) observe(ctx context.Context, p *pass) (*observation, error) {
	o := r.kind.observe(p.Object)
	if o == nil {
		return nil, nil //nolint:nilnil // nothing is to be done for it
	}
	var err error
	o.issuer, err = r.resolve(ctx, o)
	return o, err
}

// plan says what a decision means: approval, signature, or the reason why not.
func (r *requests) plan(ctx context.Context, p *pass, o *observation, a request.Action) (engine.Plan, error) {
	p.Memory.approving = ""
	if plan := r.keep(p, o); plan != nil {
		return *plan, nil
	}
	if a.Step == request.StepAuthorize {
		allowed, err := r.kind.authorize(ctx, p.Object, o)
		if err != nil {
			return engine.Plan{}, fmt.Errorf("ask whether the requester may reference %s: %w", o.state.IssuerName, err)
		}
		o.state.MayReference = &allowed
		a = request.Decide(o.state)
	}
	if a.Step == request.StepSign {
		o.state.Problem = disagreement(o)
		if err := r.observeOrder(ctx, p, o); err != nil {
			return engine.Plan{}, err
		}
		a = request.Decide(o.state)
	}
	switch {
	case p.Memory.calling && !over(o) && (a.Step == request.StepFail || a.Step == request.StepIgnore):
		return engine.Plan{}, nil // what the call brings would be lost; it is in the list of waits
	case a.Step == request.StepIgnore:
		return engine.Plan{Done: true}, nil
	}
	if a.Approve {
		p.Memory.approving = o.state.IssuerName
	}
	if store := r.kind.approve(p.Object); a.Approve && store != nil {
		return engine.Plan{First: store, Again: true}, nil
	}
	v := verdictOf(a)
	switch a.Step {
	case request.StepSign:
		return r.sign(ctx, p, o, v)
	case request.StepOrder, request.StepDeleteOrder, request.StepIssue:
		return r.byOrder(ctx, p, o, v)
	default:
	}
	plan := engine.Plan{Wake: a.Wake, Waits: engine.For{What: engine.WaitEvent, Detail: v.message}}
	if !a.Wake.IsZero() {
		plan.Waits.What = engine.WaitTime
	}
	if a.Retry {
		plan.Failure = errors.New(a.Message)
	}
	return r.record(p, v, plan), nil
}

// keep stores what the call for a request has brought, whatever else is decided: the issuer may have changed since, or
// not be ready any more, and what the call has brought may be known to nobody else. It returns nil if nothing is to be
// stored. The answer to a call that has asked for something else counts for nothing.
func (r *requests) keep(p *pass, o *observation) *engine.Plan {
	last, finished := p.LastOutcome(signCall)
	if !finished {
		return nil
	}
	p.Memory.calling = false
	got, ok := last.Value.(brought)
	switch {
	case !ok || over(o) || got.asked != asked(o):
		return nil
	case !has(p.Object, got.Annotations):
		return &engine.Plan{First: r.persist(p.Object, got.Annotations), Again: true}
	case last.Err != nil || !o.state.Approved:
		return nil
	default:
		plan := r.record(p, verdict{step: request.StepSign, result: &got.Result}, engine.Plan{})
		return &plan
	}
}

// over reports whether nothing may come of a request any more.
func over(o *observation) bool {
	return o == nil || o.state.Deleted || o.state.Failed || o.state.Issued || o.state.Denied || o.state.Invalid
}

// asked says what a request asks for, as far as that may change: annotations say it on a CertificateSigningRequest.
func asked(o *observation) string {
	return fmt.Sprintf("%s %t %q", o.sign.Duration, o.sign.IsCA, o.sign.Usages)
}

// disagreement is request.Disagreement in the words of the issuer's type.
func disagreement(o *observation) error {
	asked := request.Asked{
		CSR: o.sign.CSR, IsCA: o.sign.IsCA, Usages: o.sign.Usages, CertSign: o.sign.SourceKind == certmanagerv1.CertificateRequestKind,
	}
	switch t := signer.TypeOf(o.issuer.GetSpec()); t {
	case signer.TypeSelfSigned:
		return request.Disagreement(asked, "ErrorGenerating")
	case signer.TypeCA:
	default:
		asked.Server = string(t)
	}
	return request.Disagreement(asked, request.ReasonSigningError)
}

// record completes a plan with the write of a verdict.
func (r *requests) record(p *pass, v verdict, plan engine.Plan) engine.Plan {
	plan.Status, plan.Events = r.kind.record(p, v)
	if again := p.Memory.retell; !again.IsZero() && (plan.Wake.IsZero() || again.Before(plan.Wake)) {
		plan.Wake = again
	}
	plan.Done = v.result != nil || v.step == request.StepFail || v.step == request.StepDeny
	plan.Again = plan.Again || v.approve // the Signer may wait until that is stored
	return plan
}

// sign signs the request: on the worker, or by a call of the engine where that leaves the process.
func (r *requests) sign(ctx context.Context, p *pass, o *observation, v verdict) (engine.Plan, error) {
	by, ok := r.Signers[signer.TypeOf(o.issuer.GetSpec())].(signer.Signer)
	if !ok {
		return engine.Plan{}, fmt.Errorf("%s has no Signer: please report this as a bug", o.state.IssuerName)
	}
	if remote, leaves := by.(signer.Remote); leaves {
		return r.call(ctx, p, o, v, engine.Call{
			Name: signCall, Lane: remote.Lane(o.issuer), Tenant: o.issuer.GetNamespace(), Finish: true,
			Run: func(ctx context.Context) (any, error) {
				result, err := r.Sign(ctx, by, o.issuer, o.sign)
				return brought{result, asked(o)}, err
			},
		})
	}
	v.inLine, _ = by.(signer.InLine)
	result, err := by.Sign(ctx, o.issuer, o.sign)
	if err == nil {
		v.result = &result
	}
	return r.conclude(p, v, engine.Plan{Failure: err}, err), nil
}

// call starts a call for a request once its approval is stored, and says what has come of it so far.
func (r *requests) call(ctx context.Context, p *pass, o *observation, v verdict, call engine.Call) (engine.Plan, error) {
	if v.approve {
		v.step = request.StepWait
		return r.record(p, v, engine.Plan{}), nil
	}
	var err error
	if call.Inputs, err = r.inputs(ctx, o); err != nil {
		return engine.Plan{}, err
	}
	answer := p.Ask(call)
	_, finished := p.LastOutcome(signCall)
	p.Memory.calling = !finished
	if answer.Err == nil {
		return engine.Plan{}, nil // it is in the list of waits as a call
	}
	plan := engine.Plan{Wake: answer.Until, Waits: engine.For{What: engine.WaitEvent, Detail: answer.Err.Error()}}
	if !answer.Until.IsZero() {
		plan.Waits.What = engine.WaitTime
	}
	return r.conclude(p, v, plan, answer.Err), nil
}

// conclude turns what a Signer has come to into a verdict, and records it.
func (r *requests) conclude(p *pass, v verdict, plan engine.Plan, err error) engine.Plan {
	if err != nil {
		v.step, v.reason, v.message, v.cause = request.StepWait, request.ReasonSigningError, err.Error(), cause.OfError(err)
		v.awaited = false
	}
	if f := fault.Of(err); f != nil {
		v.reason, v.awaited = f.Reason, f.Reason == signer.ReasonPending && f.Class == ""
		if f.Kind == fault.KindTerminal {
			v.step, v.class = request.StepFail, f.Class
		}
	}
	return r.record(p, v, plan)
}

// inputs says what the call for a request is made with: what the issuer's calls are made with, what is asked for, of
// which annotations of a CertificateSigningRequest are a part, the annotations that Signers read, and how the issuer
// stands, so that the recovery of an issuer ends the back-off of its requests.
func (r *requests) inputs(ctx context.Context, o *observation) (string, error) {
	issuer, err := r.IssuerInputs(ctx, o.issuer)
	request := fmt.Sprintf("%s %q %s", asked(o), signer.Annotations(o.sign.Source), controller.RetryKey(o.issuer))
	return fmt.Sprintf("%s %x", issuer, sha256.Sum256([]byte(request))), err
}

// has reports whether an object has annotations.
func has(object client.Object, annotations map[string]string) bool {
	for key, value := range annotations {
		if stored, ok := object.GetAnnotations()[key]; !ok || stored != value {
			return false
		}
	}
	return true
}

// persist stores annotations that a Signer has given.
func (r *requests) persist(object client.Object, annotations map[string]string) func(context.Context) error {
	return func(ctx context.Context) error {
		changed := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
		merged := maps.Clone(changed.GetAnnotations())
		if merged == nil {
			merged = map[string]string{}
		}
		maps.Copy(merged, annotations)
		changed.SetAnnotations(merged)
		if err := r.Client.Patch(ctx, changed, client.MergeFrom(object)); err != nil {
			return fmt.Errorf("store the annotations of %s: %w", object.GetName(), err)
		}
		return nil
	}
}

// refused says what the API server did not let us write.
func (r *requests) refused(p *pass, problem error) engine.Event {
	if p.Memory.approving != "" {
		// The kind of the issuer, or the right to approve, may have been made a moment ago.
		p.Memory.refusals++
		p.Retry = fault.Approvals.With("").Step(p.Memory.refusals)
		return engine.Event{Warning: true, Reason: reasonApprovalForbidden, Message: fmt.Sprintf(
			"This request needs an approver with the verb approve on the signers of %s: grant it to the controller's service account, or approve the request. %v",
			p.Memory.approving, problem)}
	}
	return engine.Event{Warning: true, Reason: reasonErrorUpdate,
		Message: fmt.Sprintf("The API server refuses what this request needs: %v", problem)}
}

// resolve finds the issuer that a request names and notes its state.
func (r *requests) resolve(ctx context.Context, o *observation) (certmanagerv1.GenericIssuer, error) {
	o.state.IssuerName, o.state.IssuerAt = fmt.Sprintf("%s %q", o.ref.KindOrDefault(), o.ref.Name), issuerAt(o)
	o.sign.IssuerName, o.sign.IssuerKind, o.sign.IssuerGroup = o.ref.Name, o.ref.KindOrDefault(), o.ref.GroupOrDefault()
	switch r.Scope.Reach(o.ref) {
	case controller.OfOthers, controller.OutOfScope:
		o.state.Issuer = request.IssuerForeign
		return nil, nil //nolint:nilnil // the issuer of another controller is not read
	case controller.Unreadable:
		o.state.Issuer = request.IssuerOutOfReach
		return nil, nil //nolint:nilnil // it cannot be read
	case controller.WithinReach:
	}
	issuer, err := r.readIssuer(ctx, o)
	if apierrors.IsNotFound(err) {
		o.state.Issuer, o.state.OtherKind = request.IssuerMissing, r.otherKind(ctx, o)
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, err
	}
	o.state.Issuer, o.state.IssuerSays = r.StateOf(issuer, o.sign.SourceKind)
	return issuer, nil
}

// issuerAt names the issuer as causes do.
func issuerAt(o *observation) string {
	name := o.ref.Name
	if o.ref.KindOrDefault() == cmmeta.DefaultIssuerKind && o.namespace != "" {
		name = o.namespace + "/" + name
	}
	return o.ref.KindOrDefault() + " " + name
}

// otherKind is the kind of the issuer that has the name of one that does not exist; empty for none. Who leaves the kind
// out gets an Issuer.
func (r *requests) otherKind(ctx context.Context, o *observation) string {
	other := client.Object(&certmanagerv1.ClusterIssuer{})
	key, kind := client.ObjectKey{Name: o.ref.Name}, cmmeta.ClusterIssuerKind
	switch {
	case o.ref.KindOrDefault() == cmmeta.ClusterIssuerKind:
		other, kind, key.Namespace = &certmanagerv1.Issuer{}, cmmeta.DefaultIssuerKind, o.sign.ResourceNamespace
	case r.Scope.Reach(cmmeta.IssuerReference{Kind: kind, Name: o.ref.Name}) != controller.WithinReach:
		return ""
	}
	if r.Client.Get(ctx, key, other) != nil { // without it, there is a hint less
		return ""
	}
	return kind
}

// readIssuer reads from the cache. Where an issuer that is missing or not ready would fail the request for good,
// readIssuer asks the API server: the watch of the issuers may be behind the watch of the requests.
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
	fails := apierrors.IsNotFound(err)
	if err == nil {
		state, _ := r.StateOf(issuer, o.sign.SourceKind)
		fails = state == request.IssuerNotReady
	}
	if fails && o.state.Form == request.FormCSR && !over(o) {
		err = r.Client.Live(ctx, r.Manager.GetAPIReader(), key, object)
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

// Reasons of what the API server refused.
const (
	reasonApprovalForbidden = "ApprovalForbidden"
	reasonErrorUpdate       = "ErrorUpdate"
)
