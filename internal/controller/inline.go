package controller

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/signer"
)

// Approver returns who approves the CertificateRequests of a namespace for an issuer. If the built-in approver is
// limited to some signers, it approves only for an issuer among these.
func (d *Deps) Approver(ref cmmeta.IssuerReference, namespace string) request.Approver {
	approver := d.Settings.Approvers[request.FormCertificateRequest]
	if approver != request.ApproveAuto || d.Settings.ApproveSigners.All() {
		return approver
	}
	kind := schema.GroupKind{Group: ref.GroupOrDefault(), Kind: ref.KindOrDefault()}
	resource, namespaced := request.SignerResource(kind.Group, kind.Kind)
	if ref.IsExternal() {
		// The API server knows how an external kind is called; the guess is for one that it does not serve.
		if m, err := d.Manager.GetRESTMapper().RESTMapping(kind); err == nil {
			resource, namespaced = m.Resource.GroupResource().String(), m.Scope.Name() == meta.RESTScopeNameNamespace
		}
	}
	name := ref.Name
	if namespaced {
		name = namespace + "." + name
	}
	if d.Settings.ApproveSigners.Cover(resource, name) {
		return approver
	}
	return request.ApproveExternal
}

// PodRequestKind is the kind of the requests that kubelets make for Pods.
const PodRequestKind = "PodCertificateRequest"

// StateOf returns the state of an issuer for a kind of request, and the message of the issuer's condition Ready if that
// condition is not True.
func (d *Deps) StateOf(issuer certmanagerv1.GenericIssuer, requestKind string) (request.IssuerState, string) {
	if said := stub.TooLarge(issuer); said != "" {
		return request.IssuerNotReady, said
	}
	kind := signer.TypeOf(issuer.GetSpec())
	if kind == "" {
		return request.IssuerTypeless, ""
	}
	if _, managed := d.Signers[kind]; !managed || slices.Contains(d.Settings.Unsigned[requestKind], kind) {
		return request.IssuerUnmanaged, ""
	}
	if requestKind != PodRequestKind && certmanagerv1.ForPodsOnly(issuer) {
		return request.IssuerNotReady, cause.ForPodsOnly
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

// Sign makes a Signer sign. After a failure that is the issuer's, the issuer is checked again.
func (d *Deps) Sign(ctx context.Context, by signer.Signer, issuer certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	result, err := by.Sign(ctx, issuer, r)
	if f := fault.Of(err); f != nil && (f.Class == fault.ClassCredential || f.Class == fault.ClassNotFound) {
		d.Engine.Repeat(issuer.GetUID(), ProbeCall)
	}
	return result, err
}

// ForgetIssuer makes Signers drop what they keep of an issuer that does not exist any more.
func (d *Deps) ForgetIssuer(uid types.UID) {
	for _, by := range d.Signers {
		if keeper, ok := by.(signer.Forgetter); ok {
			keeper.Forget(uid)
		}
	}
}

// InLine returns the Signer of an issuer if a CertificateRequest that a Certificate of the namespace makes now would be
// approved and signed in the same pass. It returns nil if that may take longer, or needs somebody else.
func (d *Deps) InLine(issuer certmanagerv1.GenericIssuer, ref cmmeta.IssuerReference, namespace string) signer.InLine {
	by, ok := d.Signers[signer.TypeOf(issuer.GetSpec())].(signer.InLine)
	if state, _ := d.StateOf(issuer, certmanagerv1.CertificateRequestKind); !ok || state != request.IssuerReady || d.Approver(ref, namespace) != request.ApproveAuto {
		return nil
	}
	return by
}
