package certificates

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/lifecycle"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/revocation"
	"chancery.dev/internal/signer"
)

// pinned is a certificate that is to be revoked, as its Secret keeps it.
type pinned struct {
	revocation.Pin

	secret *corev1.Secret
	leaf   *x509.Certificate
	key    crypto.Signer
	// by revokes it; nil with cannot if its issuer does not, and nil without if that issuer is gone.
	by     signer.Revoker
	issuer certmanagerv1.GenericIssuer
	cannot string
}

// revoke takes a request to revoke one step further. It reports whether something was written, and when it is to
// be called again without an event. A Certificate of which nobody has ever asked it costs nothing.
func (r *certificates) revoke(ctx context.Context, m *memo, state *lifecycle.State) (written bool, wake time.Time, err error) {
	crt := state.Certificate
	s := revocation.State{
		SecretName: crt.Spec.SecretName, Record: crt.Annotations[revocation.RecordAnnotation], Answer: m.revoked,
		Condition: certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking),
	}
	s.Wanted, s.Asked = crt.Annotations[revocation.Annotation]
	if !s.Asked && s.Condition == nil || crt.DeletionTimestamp != nil {
		return false, time.Time{}, nil
	}
	if state.SecretOwner != crt.Name {
		s.Owner = state.SecretOwner
	}
	s.Held = heldBy(state.Secret)
	p, err := r.pinned(ctx, crt)
	if err != nil {
		return false, time.Time{}, err
	}
	if p != nil {
		s.Pin, s.Cannot = &p.Pin, p.cannot
	}
	a := revocation.Decide(s, r.Now())
	if s.Asked {
		state.Revoking = s.Pin
	}
	if written, err := r.sayOfRevocation(ctx, state, s.Condition, a); written || err != nil {
		return true, time.Time{}, err
	}
	written, err = r.revokeStep(ctx, m, state, p, a)
	if refuses(err) {
		controller.Emit(r.events, crt, true, revocation.ReasonRetrying, fmt.Sprintf("The API server refuses what a revocation needs: %v", err))
	}
	return written, a.Wake, err
}

// heldBy returns what the target Secret holds; nil if that is no certificate.
func heldBy(f *lifecycle.SecretFacts) *revocation.Held {
	if f == nil || f.Leaf == nil {
		return nil
	}
	return &revocation.Held{
		ID: f.Leaf.ID, Key: f.Leaf.Key, NotAfter: f.Leaf.NotAfter, Temporary: f.Leaf.Temporary,
		Proven: f.HasKey && f.KeyError == nil && f.Key.Same(f.Leaf.Key),
	}
}

// sayOfRevocation has the condition say what it should, and reports whether that took a write.
func (r *certificates) sayOfRevocation(ctx context.Context, state *lifecycle.State, is *certmanagerv1.CertificateCondition, a revocation.Action) (bool, error) {
	crt, changed := state.Certificate, state.Certificate.DeepCopy()
	switch {
	case a.Clear:
		certmanagerv1.RemoveCertificateCondition(changed, certmanagerv1.CertificateConditionRevoking)
	case a.Say == nil || is != nil && is.Status == a.Say.Status && is.Reason == a.Say.Reason && is.Message == a.Say.Message:
		return false, nil
	default:
		certmanagerv1.SetCertificateCondition(changed, *a.Say, r.Now())
	}
	if a.Issue && !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing, cmmeta.ConditionTrue) {
		certmanagerv1.SetCertificateCondition(changed, certmanagerv1.CertificateCondition{
			Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue,
			Reason: certmanagerv1.CertificateReasonRevoking, Message: a.Say.Message,
		}, r.Now())
	}
	if err := r.echoes.Write(changed, func() error { return r.WriteStatus(ctx, crt, changed) }); err != nil {
		return false, err
	}
	if a.Warn || a.Tell {
		controller.Emit(r.events, crt, a.Warn, a.Say.Reason, a.Say.Message)
	}
	return true, nil
}

// revokeStep carries out a step, and reports whether something is different now.
func (r *certificates) revokeStep(ctx context.Context, m *memo, state *lifecycle.State, p *pinned, a revocation.Action) (bool, error) {
	crt := state.Certificate
	switch a.Step {
	case revocation.StepPin:
		return true, r.pin(ctx, state)
	case revocation.StepAsk:
		return r.askToRevoke(m, state, p), nil
	case revocation.StepRecord:
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": crt.ResourceVersion, // or somebody else has another wish
			"annotations":     map[string]any{revocation.Annotation: nil, revocation.RecordAnnotation: a.Record.String()},
		}})
		if err != nil {
			return false, fmt.Errorf("encode the annotations of %s: %w", crt.Name, err)
		}
		return true, r.Client.Patch(ctx, crt.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	case revocation.StepUnpin:
		m.revoked = nil
		return true, r.Client.Delete(ctx, p.secret)
	default:
		return false, nil
	}
}

// pin keeps the certificate of the target Secret, with its key and who has issued it, in a Secret of its own, which
// goes with the Certificate at the latest. From then on only that certificate is meant.
func (r *certificates) pin(ctx context.Context, state *lifecycle.State) error {
	crt := state.Certificate
	target, err := r.Secrets.Secret(ctx, crt.Namespace, crt.Spec.SecretName)
	if err != nil {
		return err
	}
	leaf, err := pki.DecodeCertificate(target.Data[cmmeta.TLSCertKey])
	if err != nil {
		return err
	}
	if sha256.Sum256(leaf.Raw) != state.Secret.Leaf.ID {
		return fault.After(time.Second, "SecretChanged", "Secret %q has just changed", target.Name)
	}
	ref := crt.Spec.IssuerRef
	if state.Secret.IssuerSaid {
		ref = state.Secret.Issuer
	}
	return client.IgnoreAlreadyExists(r.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: crt.Namespace, Name: revocation.SecretName(crt.Name, crt.UID),
			Labels: map[string]string{certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue},
			Annotations: map[string]string{
				certmanagerv1.IssuerNameAnnotation: ref.Name, certmanagerv1.IssuerKindAnnotation: ref.Kind, certmanagerv1.IssuerGroupAnnotation: ref.Group,
			},
			OwnerReferences: []metav1.OwnerReference{lifecycle.OwnedBy(crt)},
		},
		Type:      corev1.SecretTypeTLS,
		Immutable: new(true),
		Data:      map[string][]byte{cmmeta.TLSCertKey: pki.EncodeCertificates(leaf), cmmeta.TLSPrivateKeyKey: target.Data[cmmeta.TLSPrivateKeyKey]},
	}))
}

// pinned reads what pin has kept; nil if nothing is. A certificate without its key is nobody's to revoke.
func (r *certificates) pinned(ctx context.Context, crt *certmanagerv1.Certificate) (*pinned, error) {
	secret, err := r.Secrets.Secret(ctx, crt.Namespace, revocation.SecretName(crt.Name, crt.UID))
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // as it says
	case err != nil:
		return nil, err
	}
	p := &pinned{secret: secret}
	p.leaf, err = pki.DecodeCertificate(secret.Data[cmmeta.TLSCertKey])
	if err == nil {
		p.key, err = pki.DecodePrivateKey(secret.Data[cmmeta.TLSPrivateKeyKey])
	}
	if err != nil || !metav1.IsControlledBy(secret, crt) || !pki.PublicKeysEqual(p.leaf.PublicKey, p.key.Public()) {
		message := fmt.Sprintf("Secret %q is in the way of what is to be revoked: delete it", secret.Name)
		controller.Emit(r.events, crt, true, revocation.ReasonRetrying, message)
		return nil, fault.After(inTheWayRetry, "SecretInTheWay", "%s", message)
	}
	reason, err := revocation.ParseReason(crt.Annotations[revocation.Annotation])
	if err != nil {
		reason = "" // called off: the rest of what is known does not matter then
	}
	p.Pin = revocation.Pin{
		ID: sha256.Sum256(p.leaf.Raw), Serial: hex.EncodeToString(p.leaf.SerialNumber.Bytes()), Key: pki.FactsOfKey(p.leaf.PublicKey),
		NotAfter: p.leaf.NotAfter, Since: secret.CreationTimestamp.Time, Reason: reason,
	}
	return p, r.findRevoker(ctx, p)
}

// findRevoker fills in who revokes a pinned certificate.
func (r *certificates) findRevoker(ctx context.Context, p *pinned) (err error) {
	says := p.secret.Annotations
	ref := cmmeta.IssuerReference{
		Name: says[certmanagerv1.IssuerNameAnnotation], Kind: says[certmanagerv1.IssuerKindAnnotation], Group: says[certmanagerv1.IssuerGroupAnnotation],
	}
	if group := ref.GroupOrDefault(); group != certmanagerv1.GroupName {
		p.cannot = fmt.Sprintf("its issuer is of the group %s, which cannot be asked", group)
		return nil
	}
	if p.issuer, err = r.issuerOf(ctx, p.secret.Namespace, ref); p.issuer == nil || err != nil {
		return err
	}
	kind := signer.TypeOf(p.issuer.GetSpec())
	by, ok := r.Signers[kind].(signer.Revoker)
	if !ok {
		p.cannot = fmt.Sprintf("issuers of the type %s cannot revoke certificates", kind)
		return nil
	}
	p.by = by
	return nil
}

// askToRevoke has the issuer revoke the pinned certificate, off the worker: the answer queues the Certificate. It
// returns false until the answer is there.
func (r *certificates) askToRevoke(m *memo, state *lifecycle.State, p *pinned) bool {
	crt := state.Certificate
	if p.by == nil {
		err := fault.Terminal(revocation.ReasonRefused, "its issuer does not exist any more: create it again")
		m.revoked = revocation.AnswerOf(m.revoked, &p.Pin, err, r.Now())
		return true
	}
	what := signer.Revocation{Certificate: p.leaf.Raw, Reason: p.Reason}
	if p.Reason == revocation.KeyCompromise || state.Secret != nil && !state.Secret.Key.Same(p.Key) {
		what.Key = p.key // nothing else is certified with it, which a CA could take for compromised then
	}
	by, issuer, name := p.by, p.issuer, client.ObjectKeyFromObject(crt)
	outcome, landed := r.flights.Ask(flight.Call{
		Key:    flight.Key{Object: crt.UID, Call: "revocation of " + hex.EncodeToString(p.ID[:]) + " " + string(p.Reason)},
		Lane:   string(issuer.GetUID()),
		Run:    func(ctx context.Context) (any, error) { return nil, by.Revoke(ctx, issuer, what) },
		Landed: func() { r.bell.Ring(name) },
	})
	if !landed {
		return false
	}
	m.revoked = revocation.AnswerOf(m.revoked, &p.Pin, outcome.Err, r.Now())
	return true
}
