package requests

import (
	"bytes"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/request"
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
type certificateRequests struct {
	*controller.Deps

	events record.EventRecorder
	echoes *controller.Echoes
}

// SetupCertificateRequests adds the reconciler of CertificateRequests. Again queues
// those whose Signer has news: a call of its has landed.
func SetupCertificateRequests(ctx context.Context, d *controller.Deps, again *controller.Doorbell) error {
	events, said := d.Events("cert-manager-certificaterequests-issuer"), newLastSaid()
	kind := &certificateRequests{Deps: d, events: events, echoes: controller.NewEchoes(again)}
	r := newRequests(d, kind, events, said)
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
		For(&certmanagerv1.CertificateRequest{}, builder.WithPredicates(kind.echoes.Predicate())).
		Watches(&acmev1.Order{}, controller.OnOwned(certmanagerv1.GroupName, certmanagerv1.CertificateRequestKind)).
		WatchesRawSource(again).
		WatchesRawSource(d.OnSecret(func(ctx context.Context, secret client.Object) []reconcile.Request {
			return kind.withKey(ctx, secret)
		})).
		WithOptions(r.Options(5*time.Second, 5*time.Minute))
	return d.WatchIssuers(b, &certmanagerv1.CertificateRequestList{}).Complete(r)
}

// withKey lists the unfinished requests whose own key is in a Secret.
func (k *certificateRequests) withKey(ctx context.Context, secret client.Object) []reconcile.Request {
	list := &certmanagerv1.CertificateRequestList{}
	err := k.Manager.GetCache().List(ctx, list, client.InNamespace(secret.GetNamespace()),
		client.MatchingFields{privateKeyIndex: secret.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // only before the caches have synced, and then every request is looked at anyway
	}
	return controller.RequestsOf(list)
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

func (k *certificateRequests) observe(ctx context.Context, key client.ObjectKey) (*observation, error) {
	cr := &certmanagerv1.CertificateRequest{}
	if err := k.Client.Get(ctx, key, cr); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if controller.Away(cr) {
		return nil, nil //nolint:nilnil // issued for good, and not to be written again
	}
	has := func(t certmanagerv1.CertificateRequestConditionType) bool {
		return certmanagerv1.HasCertificateRequestCondition(cr.Status.Conditions, t, cmmeta.ConditionTrue)
	}
	ready := readyReasonOf(cr)
	o := &observation{object: cr, ref: cr.Spec.IssuerRef, namespace: cr.Namespace}
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
	if len(o.sign.Usages) == 0 {
		o.sign.Usages = certmanagerv1.DefaultKeyUsages()
	}
	return o, nil
}

// approve is left to record: the approval and the certificate are one write.
func (k *certificateRequests) approve(context.Context, *observation) (bool, error) {
	return false, nil
}

// authorize is not asked for: who may create a CertificateRequest may have it signed.
func (k *certificateRequests) authorize(context.Context, *observation) (bool, error) {
	return true, nil
}

func (k *certificateRequests) record(ctx context.Context, o *observation, v verdict) error {
	old := o.object.(*certmanagerv1.CertificateRequest) //nolint:forcetypeassert // observe made it
	cr := old.DeepCopy()
	now := k.Now()
	if v.approve {
		certmanagerv1.SetCertificateRequestCondition(cr, certmanagerv1.CertificateRequestCondition{
			Type: certmanagerv1.CertificateRequestConditionApproved, Status: cmmeta.ConditionTrue,
			Reason: certmanagerv1.CertificateRequestReasonApproved, Message: "Certificate request has been approved by cert-manager.io",
		}, now)
	}
	event := describeVerdict(cr, v, now)
	if equality.Semantic.DeepEqual(old.Status, cr.Status) {
		return nil
	}
	if err := k.echoes.Write(cr, func() error { return k.WriteStatus(ctx, old, cr) }); err != nil {
		return err
	}
	if event != nil && (event.warning || !onShortWay(old, v)) {
		controller.Emit(k.events, cr, event.warning, event.reason, event.message)
	}
	return nil
}

// onShortWay reports whether a Certificate takes the short way by a request (internal/lifecycle): the event of the
// Certificate says what there is to say.
func onShortWay(cr *certmanagerv1.CertificateRequest, v verdict) bool {
	owner := metav1.GetControllerOfNoCopy(cr)
	if v.inLine == nil || !v.approve || owner == nil || owner.Kind != certmanagerv1.CertificateKind {
		return false
	}
	_, namesKey := cr.Annotations[certmanagerv1.PrivateKeySecretNameAnnotation]
	return namesKey == v.inLine.NeedsKey()
}

type requestEvent struct {
	warning         bool
	reason, message string
}

// describeVerdict sets the condition Ready and what belongs to it (spec §3.3), and
// returns the event to controller.Emit, if any.
func describeVerdict(cr *certmanagerv1.CertificateRequest, v verdict, now time.Time) *requestEvent {
	ready := certmanagerv1.CertificateRequestCondition{Type: certmanagerv1.CertificateRequestConditionReady, Status: cmmeta.ConditionFalse, Message: v.message}
	var event *requestEvent
	switch {
	case v.result != nil:
		if err := checkIssued(v.result.Bundle); err != nil {
			v.result, v.step, v.reason, v.message = nil, request.StepFail, certmanagerv1.CertificateRequestEventDecodeError, err.Error()
			return describeVerdict(cr, v, now)
		}
		cr.Status.Certificate, cr.Status.CA = v.result.Bundle.Chain, v.result.Bundle.CA
		ready.Status, ready.Reason = cmmeta.ConditionTrue, certmanagerv1.CertificateRequestReasonIssued
		ready.Message = "Certificate fetched from issuer successfully"
		event = &requestEvent{false, certmanagerv1.CertificateRequestEventIssued, ready.Message}
		if v.result.Warning != "" {
			event = &requestEvent{true, v.result.WarningReason, v.result.Warning}
		}
	case v.step == request.StepFail:
		ready.Reason = certmanagerv1.CertificateRequestReasonFailed
		event = &requestEvent{true, v.reason, v.message}
		if v.class != "" {
			certmanagerv1.SetCertificateRequestCondition(cr, certmanagerv1.CertificateRequestCondition{
				Type: certmanagerv1.CertificateRequestConditionFailureClass, Status: cmmeta.ConditionTrue, Reason: string(v.class), Message: v.message,
			}, now)
		}
	case v.step == request.StepDeny:
		ready.Reason = certmanagerv1.CertificateRequestReasonDenied
	case v.step == request.StepWait && v.reason != "" && v.reason != request.ReasonWaitingForApproval:
		ready.Reason = certmanagerv1.CertificateRequestReasonPending
	default:
		return nil
	}
	if v.result == nil && v.step != request.StepWait && cr.Status.FailureTime == nil {
		cr.Status.FailureTime = &metav1.Time{Time: now}
	}
	certmanagerv1.SetCertificateRequestCondition(cr, ready, now)
	return event
}

// checkIssued refuses what is no certificate at all.
func checkIssued(b signer.Bundle) error {
	_, err := pki.DecodeChain(bytes.TrimSpace(b.Chain))
	return err
}
