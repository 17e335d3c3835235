package requests

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// +kubebuilder:rbac:groups=cert-manager.io,resources=certificaterequests,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificaterequests/status,verbs=patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificaterequests/finalizers,verbs=update
// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders,verbs=get;list;watch
// +kubebuilder:rbac:groups=cert-manager.io,resources=signers,verbs=approve,resourceNames=issuers.cert-manager.io/*;clusterissuers.cert-manager.io/*

// privateKeyIndex finds the unfinished CertificateRequests that name a Secret with
// their own key, which SelfSigned waits for.
const privateKeyIndex = "chancery.dev/private-key-secret"

// certificateRequests adapts CertificateRequests.
type certificateRequests struct{ *controller.Deps }

// SetupCertificateRequests adds the controller of CertificateRequests.
func SetupCertificateRequests(ctx context.Context, d *controller.Deps) error {
	adapter := &certificateRequests{d}
	runner := (&requests{d, adapter}).run(kind{
		Name: certmanagerv1.CertificateRequestKind, Events: d.Events("cert-manager-certificaterequests-issuer"),
		New: func() client.Object { return &certmanagerv1.CertificateRequest{} },
	})
	indexer := d.Manager.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &certmanagerv1.CertificateRequest{}, controller.IssuerIndex, pendingIssuerOf); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &certmanagerv1.CertificateRequest{}, privateKeyIndex, privateKeyOf); err != nil {
		return err
	}
	if err := d.Observed(ctx, &certmanagerv1.CertificateRequest{}); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(d.Manager).Named("certificaterequests").
		For(&certmanagerv1.CertificateRequest{}).
		Watches(&acmev1.Order{}, controller.OnOwned(certmanagerv1.GroupName, certmanagerv1.CertificateRequestKind)).
		WatchesRawSource(runner).
		WatchesRawSource(d.OnSecret(adapter.withKey)).
		WatchesRawSource(d.OnIssuerSecret(d.Waiting(&certmanagerv1.CertificateRequestList{}))).
		WithOptions(d.Options(5*time.Second, 5*time.Minute))
	return d.WatchIssuers(b, &certmanagerv1.CertificateRequestList{}).Complete(runner)
}

// withKey lists the unfinished requests whose own key is in a Secret.
func (k *certificateRequests) withKey(ctx context.Context, secret client.Object) []reconcile.Request {
	return k.Indexed(ctx, &certmanagerv1.CertificateRequestList{}, privateKeyIndex, secret.GetName(), client.InNamespace(secret.GetNamespace()))
}

func pendingIssuerOf(obj client.Object) []string {
	cr, ok := obj.(*certmanagerv1.CertificateRequest)
	if !ok || finished(cr) {
		return nil
	}
	return []string{controller.IssuerKeyOf(cr.Spec.IssuerRef, cr.Namespace)}
}

func privateKeyOf(obj client.Object) []string {
	cr, ok := obj.(*certmanagerv1.CertificateRequest)
	if !ok || finished(cr) {
		return nil
	}
	if name := cr.Annotations[certmanagerv1.PrivateKeySecretNameAnnotation]; name != "" {
		return []string{name}
	}
	return nil
}

func finished(cr *certmanagerv1.CertificateRequest) bool {
	switch readyReasonOf(cr) {
	case certmanagerv1.CertificateRequestReasonIssued, certmanagerv1.CertificateRequestReasonFailed, certmanagerv1.CertificateRequestReasonDenied:
		return true
	default:
		return false
	}
}

func readyReasonOf(cr *certmanagerv1.CertificateRequest) string {
	if c := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

func (k *certificateRequests) observe(object client.Object) *observation {
	cr := object.(*certmanagerv1.CertificateRequest) //nolint:forcetypeassert // the kind is of that type
	if informers.IsStripped(cr) {
		return nil // issued for good, and not to be written again
	}
	has := func(t certmanagerv1.CertificateRequestConditionType) bool {
		return certmanagerv1.HasCertificateRequestCondition(cr.Status.Conditions, t, cmmeta.ConditionTrue)
	}
	ready := readyReasonOf(cr)
	o := &observation{ref: cr.Spec.IssuerRef, namespace: cr.Namespace}
	o.state = request.State{
		Form:       request.FormCertificateRequest,
		Approver:   k.Approver(cr.Spec.IssuerRef, cr.Namespace),
		Deleted:    cr.DeletionTimestamp != nil,
		Approved:   has(certmanagerv1.CertificateRequestConditionApproved),
		Denied:     has(certmanagerv1.CertificateRequestConditionDenied),
		DeniedSaid: ready == certmanagerv1.CertificateRequestReasonDenied,
		Invalid:    has(certmanagerv1.CertificateRequestConditionInvalidRequest),
		Failed:     ready == certmanagerv1.CertificateRequestReasonFailed,
		Issued:     ready == certmanagerv1.CertificateRequestReasonIssued || len(cr.Status.Certificate) > 0,
		WantsCA:    cr.Spec.IsCA,
	}
	var asked time.Duration
	if cr.Spec.Duration != nil {
		asked = cr.Spec.Duration.Duration
	}
	o.sign = signer.Request{
		Source: cr, SourceKind: certmanagerv1.CertificateRequestKind, ResourceNamespace: cr.Namespace,
		CSR: cr.Spec.Request, Duration: durationOr(asked), IsCA: cr.Spec.IsCA, Usages: cr.Spec.Usages,
		PrivateKeySecretName: cr.Annotations[certmanagerv1.PrivateKeySecretNameAnnotation],
	}
	return o
}

// approve is left to record: the approval and the certificate are one write.
func (k *certificateRequests) approve(client.Object) func(context.Context) error { return nil }

// authorize is not asked for: who may create a CertificateRequest may get it signed.
func (k *certificateRequests) authorize(context.Context, client.Object, *observation) (bool, error) {
	return true, nil
}

func (k *certificateRequests) record(p *pass, v verdict) (client.Object, []engine.Event) {
	old := p.Object.(*certmanagerv1.CertificateRequest) //nolint:forcetypeassert // the kind is of that type
	cr := old.DeepCopy()
	now := k.Now()
	if v.approve {
		certmanagerv1.SetCertificateRequestCondition(cr, certmanagerv1.CertificateRequestCondition{
			Type: certmanagerv1.CertificateRequestConditionApproved, Status: cmmeta.ConditionTrue,
			Reason: certmanagerv1.CertificateRequestReasonApproved, Message: approvedMessage,
		}, now)
	}
	event := describeVerdict(cr, k.paced(p.Memory, old, v), now)
	var events []engine.Event
	if k.Settings.StepEvents {
		events = stepEvents(p.Memory, v)
	}
	if c, was := cr.Status.Cause, old.Status.Cause; v.step == request.StepWait && (!c.SameAs(was) || c != nil && !c.NextTry.Equal(was.NextTry)) {
		p.Memory.told = now
	}
	switch {
	case cmmeta.Equal(old.Status, cr.Status):
		return nil, events
	case event == nil, !event.Warning && onShortWay(old, v) && !k.Settings.StepEvents:
		return cr, events
	default:
		return cr, append(events, *event)
	}
}

// paced is a verdict as it is to be written. To wait for the same cause in other words, or for nothing any more, is no
// write, unless the next try has passed, and another cause comes a while after the last one.
func (k *certificateRequests) paced(m *memory, cr *certmanagerv1.CertificateRequest, v verdict) verdict {
	m.retell = time.Time{}
	was := cr.Status.Cause
	ready := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
	if v.step != request.StepWait || was == nil || ready == nil {
		return v
	}
	next := m.told.Add(cause.Pause)
	moved := v.cause != nil && was.NextTry != nil && !k.Now().Before(was.NextTry.Time) && !v.cause.NextTry.Equal(was.NextTry)
	switch {
	case v.cause == nil, v.cause.SameAs(was) && !moved:
	case k.Now().Before(next):
		m.retell = next
	default:
		return v
	}
	v.cause, v.message = was, ready.Message
	return v
}

// stepEvents are the events about steps that cert-manager emits (spec §3.2, §3.3), each once in a row: the request is
// approved, or it waits.
func stepEvents(m *memory, v verdict) (events []engine.Event) {
	if v.approve {
		events = append(events, engine.Event{Reason: certmanagerv1.CertificateRequestReasonApproved, Message: approvedMessage})
	}
	if v.step == request.StepWait && v.reason != "" && v.reason != m.said {
		m.said = v.reason
		events = append(events, engine.Event{Reason: v.reason, Message: v.message})
	}
	return events
}

// approvedMessage is what the built-in approver says.
const approvedMessage = "Certificate request has been approved by cert-manager.io"

// onShortWay reports whether a Certificate takes the short way by a request (internal/machine/certificate): the event
// of the Certificate says what there is to say.
func onShortWay(cr *certmanagerv1.CertificateRequest, v verdict) bool {
	owner := metav1.GetControllerOfNoCopy(cr)
	if v.inLine == nil || !v.approve || owner == nil || owner.Kind != certmanagerv1.CertificateKind {
		return false
	}
	_, namesKey := cr.Annotations[certmanagerv1.PrivateKeySecretNameAnnotation]
	return namesKey == v.inLine.NeedsKey()
}

// describeVerdict sets the condition Ready and what belongs to it (spec §3.3), and
// returns the event to emit, if any.
func describeVerdict(cr *certmanagerv1.CertificateRequest, v verdict, now time.Time) *engine.Event {
	ready := certmanagerv1.CertificateRequestCondition{Type: certmanagerv1.CertificateRequestConditionReady, Status: cmmeta.ConditionFalse, Message: v.message}
	var event *engine.Event
	switch {
	case v.result != nil:
		chain, _, err := pki.CleanChain(v.result.Bundle.Chain)
		if err != nil {
			v.result, v.step, v.reason, v.message = nil, request.StepFail, certmanagerv1.CertificateRequestEventDecodeError, err.Error()
			return describeVerdict(cr, v, now)
		}
		cr.Status.Certificate, cr.Status.CA, cr.Status.Cause = chain, v.result.Bundle.CA, nil
		ready.Status, ready.Reason = cmmeta.ConditionTrue, certmanagerv1.CertificateRequestReasonIssued
		ready.Message = "Certificate fetched from issuer successfully"
		event = &engine.Event{Reason: certmanagerv1.CertificateRequestEventIssued, Message: ready.Message}
		if v.result.Warning != "" {
			event = &engine.Event{Warning: true, Reason: v.result.WarningReason, Message: v.result.Warning}
		}
	case v.step == request.StepFail:
		ready.Reason = certmanagerv1.CertificateRequestReasonFailed
		event = &engine.Event{Warning: true, Reason: v.reason, Message: v.message}
		cr.Status.Cause = v.cause
		if v.class != "" {
			certmanagerv1.SetCertificateRequestCondition(cr, certmanagerv1.CertificateRequestCondition{
				Type: certmanagerv1.CertificateRequestConditionFailureClass, Status: cmmeta.ConditionTrue, Reason: string(v.class), Message: v.message,
			}, now)
		}
	case v.step == request.StepDeny:
		ready.Reason = certmanagerv1.CertificateRequestReasonDenied
	case v.step == request.StepWait && v.reason != "" && v.reason != request.ReasonWaitingForApproval:
		ready.Reason, cr.Status.Cause = certmanagerv1.CertificateRequestReasonPending, v.cause
	default:
		return nil
	}
	if v.result == nil && v.step != request.StepWait {
		if cr.Status.FailureTime == nil {
			cr.Status.FailureTime = &metav1.Time{Time: now}
		}
		certmanagerv1.SetCertificateRequestCondition(cr, certmanagerv1.CertificateRequestCondition{
			Type: certmanagerv1.CertificateRequestConditionStalled, Status: cmmeta.ConditionTrue, Reason: ready.Reason, Message: v.message,
		}, now)
	}
	certmanagerv1.SetCertificateRequestCondition(cr, ready, now)
	return event
}
