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
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
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

// observeRevocation fills in what is known of a certificate that is to be revoked. A Certificate for which nobody has
// ever asked that costs nothing.
func (r *certificates) observeRevocation(ctx context.Context, p *pass, v *view) (err error) {
	crt := p.Object
	_, asked := crt.Annotations[revocation.Annotation]
	said := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking)
	if !asked && said == nil || crt.DeletionTimestamp != nil {
		return nil
	}
	if v.pinned, v.CannotRevoke, err = r.pinned(ctx, crt); v.pinned == nil || err != nil {
		return err
	}
	v.Pin, v.CannotRevoke = &v.pinned.Pin, v.pinned.cannot
	if v.pinned.by == nil && v.CannotRevoke == "" {
		gone := fault.Terminal(revocation.ReasonRefused, "its issuer does not exist any more: create it again")
		v.Revocation = &revocation.Answer{ID: v.Pin.ID, Reason: v.Pin.Reason, Err: gone, Refused: true}
		return nil
	}
	if last, finished := p.LastOutcome(revocationCall); finished {
		answer, _ := last.Value.(revocation.Answer)
		answer.Err = last.Err
		v.Revocation = &answer
	}
	return nil
}

// record replaces the annotation that asks for a revocation by what has come of it.
func (r *certificates) record(ctx context.Context, crt *certmanagerv1.Certificate, what revocation.Record) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": crt.ResourceVersion, // or somebody else has another wish
		"annotations":     map[string]any{revocation.Annotation: nil, revocation.RecordAnnotation: what.String()},
	}})
	if err != nil {
		return fmt.Errorf("encode the annotations of %s: %w", crt.Name, err)
	}
	return r.Client.Patch(ctx, crt.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}

// pin copies the certificate of the target Secret, with its key and the reference of its issuer, into a Secret of its
// own. From then on the revocation is about that certificate only. The Secret is deleted with the Certificate, if not
// earlier.
func (r *certificates) pin(ctx context.Context, state *certificate.State) error {
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
			OwnerReferences: []metav1.OwnerReference{facts.OwnedBy(crt)},
		},
		Type:      corev1.SecretTypeTLS,
		Immutable: new(true),
		Data:      map[string][]byte{cmmeta.TLSCertKey: pki.EncodeCertificates(leaf), cmmeta.TLSPrivateKeyKey: target.Data[cmmeta.TLSPrivateKeyKey]},
	}))
}

// pinned reads what pin has kept; nil if nothing is, with what is in the way if there is something. A certificate
// without its key is nobody's to revoke.
func (r *certificates) pinned(ctx context.Context, crt *certmanagerv1.Certificate) (p *pinned, inTheWay string, err error) {
	secret, err := r.Secrets.Secret(ctx, crt.Namespace, revocation.SecretName(crt.Name, crt.UID))
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", nil
	case err != nil:
		return nil, "", err
	}
	p = &pinned{secret: secret}
	p.leaf, err = pki.DecodeCertificate(secret.Data[cmmeta.TLSCertKey])
	if err == nil {
		p.key, err = pki.DecodePrivateKey(secret.Data[cmmeta.TLSPrivateKeyKey])
	}
	if err != nil || !metav1.IsControlledBy(secret, crt) || !pki.PublicKeysEqual(p.leaf.PublicKey, p.key.Public()) {
		return nil, fmt.Sprintf("Secret %q is in the way of what is to be revoked: delete it", secret.Name), nil //nolint:nilerr // it is said
	}
	reason, err := revocation.ParseReason(crt.Annotations[revocation.Annotation])
	if err != nil {
		reason = "" // called off: the rest of what is known does not matter then
	}
	p.Pin = revocation.Pin{
		ID: sha256.Sum256(p.leaf.Raw), Serial: hex.EncodeToString(p.leaf.SerialNumber.Bytes()), Key: pki.FactsOfKey(p.leaf.PublicKey),
		NotAfter: p.leaf.NotAfter, Since: secret.CreationTimestamp.Time, Reason: reason,
	}
	return p, "", r.findRevoker(ctx, p)
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
	if p.issuer, err = r.IssuerOf(ctx, p.secret.Namespace, ref); p.issuer == nil || err != nil {
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

// askToRevoke asks the issuer to revoke the pinned certificate, and returns when to ask again.
func (r *certificates) askToRevoke(ctx context.Context, p *pass, v *view) (time.Time, error) {
	pin, by, issuer := v.pinned, v.pinned.by, v.pinned.issuer
	if by == nil {
		return r.Now().Add(fault.Calls.With(fault.ClassPermanent).First), nil // an issuer that the spec does not name any more makes no event
	}
	what := signer.Revocation{Certificate: pin.leaf.Raw, Reason: pin.Reason}
	if pin.Reason == revocation.KeyCompromise || v.Secret != nil && !v.Secret.Key.Same(pin.Key) {
		what.Key = pin.key // nothing else is certified with it, which a CA could take for compromised then
	}
	inputs, err := r.IssuerInputs(ctx, issuer)
	if err != nil {
		return time.Time{}, err
	}
	answer := p.Ask(engine.Call{
		Name: revocationCall, Inputs: fmt.Sprintf("%s %s %x %s %t", inputs, controller.RetryKey(issuer), pin.ID, pin.Reason, what.Key != nil),
		Lane: laneOf(issuer), Urgency: 1,
		Run: func(ctx context.Context) (any, error) {
			err := by.Revoke(ctx, issuer, what)
			return revocation.Answer{ID: pin.ID, Reason: pin.Reason, Refused: fault.IsTerminal(err)}, hourly(err)
		},
	})
	return answer.Until, nil
}

// hourly asks a CA again every hour that has refused: no event tells that somebody has put right what the CA holds
// against the revocation.
func hourly(err error) error {
	if !fault.IsTerminal(err) {
		return err
	}
	return fault.ClassRefused.After(fault.Calls.With(fault.ClassPermanent).First, revocation.ReasonRefused, "%w", err)
}
