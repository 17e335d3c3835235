package requests

import (
	"context"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=list;watch;patch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/status,verbs=patch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,verbs=sign;approve,resourceNames=cert-manager.io/*;issuers.cert-manager.io/*;clusterissuers.cert-manager.io/*
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// SigningRequestKind names the kind for Signers.
const SigningRequestKind = "CertificateSigningRequest"

// signingRequests adapts CertificateSigningRequests.
type signingRequests struct{ *controller.Deps }

// ServesSigningRequests reports whether the cluster has certificates.k8s.io/v1.
func ServesSigningRequests(m ctrl.Manager) (bool, error) {
	_, err := m.GetRESTMapper().RESTMapping(certificatesv1.SchemeGroupVersion.WithKind(SigningRequestKind).GroupKind(), "v1")
	if isNoMatch(err) {
		return false, nil
	}
	return err == nil, err
}

// SetupCertificateSigningRequests adds the controller of CertificateSigningRequests.
func SetupCertificateSigningRequests(ctx context.Context, d *controller.Deps) error {
	adapter := &signingRequests{d}
	runner := (&requests{d, adapter}).run(kind{
		Name: SigningRequestKind, Events: d.Events("cert-manager-certificatesigningrequests-issuer"),
		New: func() client.Object { return &certificatesv1.CertificateSigningRequest{} },
	})
	csr := &certificatesv1.CertificateSigningRequest{}
	indexer := d.Manager.GetFieldIndexer()
	if err := indexer.IndexField(ctx, csr, controller.IssuerIndex, signingIssuerOf); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, csr, privateKeyIndex, signingKeyOf); err != nil {
		return err
	}
	if err := d.Observed(ctx, csr); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(d.Manager).Named("certificatesigningrequests").
		For(csr, builder.WithPredicates(predicate.NewPredicateFuncs(adapter.inScope))).
		Owns(&acmev1.Order{}).
		WatchesRawSource(runner).
		WatchesRawSource(d.OnSecret(adapter.withKey)).
		WatchesRawSource(d.OnIssuerSecret(d.Waiting(&certificatesv1.CertificateSigningRequestList{}))).
		WithOptions(d.Options(5*time.Second, 5*time.Minute))
	return d.WatchIssuers(b, &certificatesv1.CertificateSigningRequestList{}).Complete(runner)
}

// inScope keeps out foreign signers, and issuers of other scopes.
func (k *signingRequests) inScope(obj client.Object) bool {
	csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return false
	}
	s, ok := request.ParseSignerName(csr.Spec.SignerName)
	if !ok {
		return false
	}
	if s.Form == request.FormCSRIssuer && s.Namespace != "" {
		return k.Scope.Covers(s.Namespace)
	}
	return k.Scope.Holds(s.Name)
}

func (k *signingRequests) withKey(ctx context.Context, secret client.Object) []reconcile.Request {
	return k.Indexed(ctx, &certificatesv1.CertificateSigningRequestList{}, privateKeyIndex, secret.GetName())
}

func signingIssuerOf(obj client.Object) []string {
	csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
	if !ok || ended(csr) {
		return nil
	}
	return controller.OfSigner(csr.Spec.SignerName)
}

func signingKeyOf(obj client.Object) []string {
	csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
	if !ok || ended(csr) {
		return nil
	}
	if name := request.CSRAnnotationsOf(csr.Annotations).PrivateKeySecretName; name != "" {
		return []string{name}
	}
	return nil
}

func (k *signingRequests) observe(object client.Object) *observation {
	csr := object.(*certificatesv1.CertificateSigningRequest) //nolint:forcetypeassert // the kind is of that type
	named, ok := request.ParseSignerName(csr.Spec.SignerName)
	if !ok || !k.inScope(csr) {
		return nil // not ours
	}
	asked := request.CSRAnnotationsOf(csr.Annotations)
	duration, problem := asked.Duration(csr.Spec.ExpirationSeconds)
	usages := usagesOf(csr.Spec.Usages)
	o := &observation{ref: named.Reference(), namespace: named.Namespace}
	o.state = request.State{
		Form:     named.Form,
		Approver: k.Settings.Approvers[named.Form],
		Machine:  request.MachineGroup(csr.Spec.Groups, k.Settings.MachineGroups),
		Deleted:  csr.DeletionTimestamp != nil,
		Approved: hasSigningCondition(csr, certificatesv1.CertificateApproved),
		Denied:   hasSigningCondition(csr, certificatesv1.CertificateDenied),
		Failed:   hasSigningCondition(csr, certificatesv1.CertificateFailed),
		Issued:   len(csr.Status.Certificate) > 0,
		WantsCA:  asked.IsCA || slices.Contains(usages, certmanagerv1.UsageCertSign),
		Problem:  problem,
	}
	namespace := named.Namespace
	if namespace == "" {
		namespace = k.Settings.ClusterResourceNamespace
	}
	o.sign = signer.Request{
		Source: csr, SourceKind: SigningRequestKind, ResourceNamespace: namespace,
		CSR: csr.Spec.Request, Duration: durationOr(duration), IsCA: asked.IsCA, Usages: usages,
		PrivateKeySecretName: asked.PrivateKeySecretName,
	}
	return o
}

func usagesOf(in []certificatesv1.KeyUsage) []certmanagerv1.KeyUsage {
	out := make([]certmanagerv1.KeyUsage, 0, len(in))
	for _, u := range in {
		out = append(out, certmanagerv1.KeyUsage(u))
	}
	return out
}

// ended reports whether nothing can come of a request any more.
func ended(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) > 0 || hasSigningCondition(csr, certificatesv1.CertificateFailed) || hasSigningCondition(csr, certificatesv1.CertificateDenied)
}

func hasSigningCondition(csr *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == t && c.Status != corev1.ConditionFalse
	})
}

// authorize asks the API server whether the requester has the verb reference on
// the signer, by its name or by all (spec §4.2).
func (k *signingRequests) authorize(ctx context.Context, object client.Object, o *observation) (bool, error) {
	csr := object.(*certificatesv1.CertificateSigningRequest) //nolint:forcetypeassert // the kind is of that type
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range csr.Spec.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	for _, name := range []string{o.ref.Name, "*"} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: csr.Spec.Username, Groups: csr.Spec.Groups, UID: csr.Spec.UID, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certmanagerv1.GroupName, Resource: "signers", Verb: "reference", Namespace: o.namespace, Name: name, Version: "*",
			},
		}}
		if err := k.Manager.GetClient().Create(ctx, review); err != nil {
			return false, err
		}
		if review.Status.Allowed {
			return true, nil
		}
	}
	return false, nil
}

// approve stores the approval: it is a right and a write of its own on this kind.
func (k *signingRequests) approve(object client.Object) func(context.Context) error {
	return func(ctx context.Context) error {
		csr := object.(*certificatesv1.CertificateSigningRequest).DeepCopy() //nolint:forcetypeassert // the kind is of that type
		csr.Status.Conditions = append(csr.Status.Conditions, k.condition(certificatesv1.CertificateApproved,
			certmanagerv1.CertificateRequestReasonApproved, approvedMessage))
		return k.Client.UpdateSubResource(ctx, "approval", csr)
	}
}

func (k *signingRequests) record(p *pass, v verdict) (client.Object, []engine.Event) {
	csr := p.Object.(*certificatesv1.CertificateSigningRequest).DeepCopy() //nolint:forcetypeassert // the kind is of that type
	var chain []byte
	if v.result != nil {
		var err error
		if chain, _, err = pki.CleanChain(v.result.Bundle.Chain); err != nil {
			v.result, v.step, v.reason, v.message = nil, request.StepFail, certmanagerv1.CertificateRequestEventDecodeError, err.Error()
		}
	}
	switch {
	case v.result != nil:
		csr.Status.Certificate = chain
		events := []engine.Event{{Reason: certmanagerv1.CertificateRequestEventIssued, Message: "Certificate fetched from issuer successfully"}}
		if v.result.Warning != "" {
			events = append(events, engine.Event{Warning: true, Reason: v.result.WarningReason, Message: v.result.Warning})
		}
		return csr, events
	case v.step == request.StepFail:
		csr.Status.Conditions = append(csr.Status.Conditions, k.condition(certificatesv1.CertificateFailed, v.reason, v.message),
			k.condition(certificatesv1.RequestConditionType(certmanagerv1.CertificateRequestConditionStalled), v.reason, v.message))
		return csr, []engine.Event{{Warning: true, Reason: v.reason, Message: v.message}}
	case v.reason == request.ReasonWaitingForApproval && k.Settings.StepEvents && p.Memory.said != v.reason:
		p.Memory.said = v.reason
		return nil, []engine.Event{{Reason: "WaitingApproval", Message: v.message}} // spec §4.4
	case v.reason != "" && v.reason != request.ReasonWaitingForApproval && p.Memory.said != v.reason+v.message:
		// A wait has no condition on this kind: an event says it, once.
		p.Memory.said = v.reason + v.message
		return nil, []engine.Event{{Warning: !v.awaited, Reason: v.reason, Message: v.message}}
	default:
		return nil, nil
	}
}

func (k *signingRequests) condition(t certificatesv1.RequestConditionType, reason, message string) certificatesv1.CertificateSigningRequestCondition {
	now := metav1.NewTime(k.Now())
	return certificatesv1.CertificateSigningRequestCondition{
		Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now,
	}
}

// Thin is the cache.TransformFunc of CertificateSigningRequests; others has all other kinds. Of a request that is for a
// signer of somebody else, it keeps the name and the signer.
func Thin(others toolscache.TransformFunc) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
		if !ok {
			return others(obj)
		}
		if _, ours := request.ParseSignerName(csr.Spec.SignerName); ours {
			csr.ManagedFields = nil
			return csr, nil
		}
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: csr.Name, UID: csr.UID, ResourceVersion: csr.ResourceVersion, DeletionTimestamp: csr.DeletionTimestamp},
			Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: csr.Spec.SignerName},
		}, nil
	}
}
