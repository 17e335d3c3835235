package certificates

import (
	"context"
	"crypto"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/lifecycle"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/revocation"
)

// act carries out one Action, in the order that Action promises.
func (r *certificates) act(ctx context.Context, m *memo, state *lifecycle.State, a lifecycle.Action) error {
	crt := state.Certificate
	if err := r.step(ctx, m, state, a); err != nil {
		if a.Step == lifecycle.StepStore && a.Held && (refuses(err) || fault.IsTerminal(err)) {
			m.held.Refused = true // so that the key gets a Secret before anything is waited for
			return nil
		}
		return r.explain(ctx, crt, a, err)
	}
	if a.Status != nil {
		changed := crt.DeepCopy()
		changed.Status = *a.Status
		if err := r.echoes.Write(changed, func() error { return r.WriteStatus(ctx, crt, changed) }); err != nil {
			return err
		}
	}
	if a.Step == lifecycle.StepStore {
		if err := r.deleteSecrets(ctx, crt, a.Names); err != nil {
			return err
		}
	}
	if !a.Keep {
		m.held = nil
	}
	for _, e := range a.Events {
		controller.Emit(r.events, crt, e.Warning, e.Reason, e.Message)
	}
	return nil
}

func (r *certificates) step(ctx context.Context, m *memo, state *lifecycle.State, a lifecycle.Action) error {
	crt := state.Certificate
	switch a.Step {
	case lifecycle.StepRest, lifecycle.StepAskRenewalInfo:
		return nil
	case lifecycle.StepDeleteKeys:
		return r.deleteSecrets(ctx, crt, a.Names)
	case lifecycle.StepCreateKey:
		return r.createKey(ctx, m, crt, a)
	case lifecycle.StepDeleteRequests:
		return r.deleteRequests(ctx, state.Requests, a.Names)
	case lifecycle.StepCreateRequest:
		return r.createRequest(ctx, m, crt, a)
	case lifecycle.StepStore:
		return r.store(ctx, m, state, a)
	case lifecycle.StepStoreTemporary:
		return r.storeTemporary(ctx, state, a)
	case lifecycle.StepRepair:
		return r.repair(ctx, m, state)
	default:
		return fmt.Errorf("lifecycle asked for %s, which the controller does not know: please report this as a bug", a.Step)
	}
}

// createKey makes the next-private-key Secret (spec §2.2). One that is there
// already was made by a pass that was cut short.
func (r *certificates) createKey(ctx context.Context, m *memo, crt *certmanagerv1.Certificate, a lifecycle.Action) error {
	key, err := r.keyFor(ctx, m, crt, a)
	if err != nil {
		return err
	}
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: crt.Namespace, Name: a.Name,
			Labels:          map[string]string{certmanagerv1.NextPrivateKeyLabel: certmanagerv1.LabelTrue, certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue},
			OwnerReferences: []metav1.OwnerReference{lifecycle.OwnedBy(crt)},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{cmmeta.TLSPrivateKeyKey: text},
	}
	err = r.Client.Create(ctx, secret)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	found := &corev1.Secret{}
	if err := r.Client.Live(ctx, r.Manager.GetAPIReader(), client.ObjectKeyFromObject(secret), found); err != nil {
		return err
	}
	if !metav1.IsControlledBy(found, crt) || found.Labels[certmanagerv1.NextPrivateKeyLabel] != certmanagerv1.LabelTrue {
		message := fmt.Sprintf("Secret %q is in the way of the next private key: delete it", found.Name)
		if err := r.refuse(ctx, crt, a, message); err != nil {
			return err
		}
		return fault.After(inTheWayRetry, "SecretInTheWay", "%s", message)
	}
	return nil
}

// inTheWayRetry is how soon a name that somebody else's Secret has taken is tried
// again: that Secret is not watched.
const inTheWayRetry = 30 * time.Second

// keyFor returns the private key that an Action means: one that there is, or a new one.
func (r *certificates) keyFor(ctx context.Context, m *memo, crt *certmanagerv1.Certificate, a lifecycle.Action) (crypto.Signer, error) {
	switch {
	case a.Held:
		return m.held.key, nil
	case a.Key != "":
		return r.readKey(ctx, crt.Namespace, a.Key)
	case a.ReuseKey:
		return r.readKey(ctx, crt.Namespace, crt.Spec.SecretName)
	}
	key, err := pki.GenerateKey(lifecycle.KeySpecOf(&crt.Spec))
	if err != nil {
		return nil, r.cannotRequest(ctx, crt, a, err)
	}
	return key, nil
}

func (r *certificates) readKey(ctx context.Context, namespace, name string) (crypto.Signer, error) {
	secret, err := r.Secrets.Secret(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return pki.DecodePrivateKey(secret.Data[cmmeta.TLSPrivateKeyKey])
}

// createRequest makes a CertificateRequest. In the short way its private key is kept in memory first: whatever becomes
// of the answer, the request is known by its key.
func (r *certificates) createRequest(ctx context.Context, m *memo, crt *certmanagerv1.Certificate, a lifecycle.Action) error {
	key, err := r.keyFor(ctx, m, crt, a)
	if err != nil {
		return err
	}
	if a.Keep {
		m.hold(key, a)
	}
	request, err := lifecycle.NewRequest(crt, a, key, r.Settings.CopiedAnnotations)
	if err != nil {
		return r.cannotRequest(ctx, crt, a, err)
	}
	delete(request.Annotations, revocation.Annotation) // they are the Certificate's own
	delete(request.Annotations, revocation.RecordAnnotation)
	err = r.Client.Create(ctx, request)
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		// Ours, made by a pass that was cut short, or somebody else's: look, and decide anew.
		found := &certmanagerv1.CertificateRequest{}
		if err := r.Client.Live(ctx, r.Manager.GetAPIReader(), client.ObjectKeyFromObject(request), found); err != nil {
			return err
		}
		if metav1.IsControlledBy(found, crt) {
			return nil
		}
		err = fmt.Errorf("CertificateRequest %q exists and belongs to somebody else: delete it", request.Name)
	}
	controller.Emit(r.events, crt, true, certmanagerv1.CertificateEventRequestFailed, "Failed to create CertificateRequest: "+err.Error())
	return err
}

// cannotRequest says that no request can be made for this spec. Only a change of
// the spec helps, which is an event; the reason stands on the condition.
func (r *certificates) cannotRequest(ctx context.Context, crt *certmanagerv1.Certificate, a lifecycle.Action, cause error) error {
	if err := r.refuse(ctx, crt, a, "No certificate request can be made for this spec: "+cause.Error()); err != nil {
		return err
	}
	return fault.Terminal(certmanagerv1.CertificateEventRequestFailed, "%w", cause)
}

// refuse says on the condition Issuing, and in one event, why the issuance does not
// go on.
func (r *certificates) refuse(ctx context.Context, crt *certmanagerv1.Certificate, a lifecycle.Action, message string) error {
	status := lifecycle.Refuse(crt, a.Unsaid, message, r.Now())
	if status == nil {
		return nil
	}
	changed := crt.DeepCopy()
	changed.Status = *status
	if err := r.WriteStatus(ctx, crt, changed); err != nil {
		return err
	}
	controller.Emit(r.events, crt, true, certmanagerv1.CertificateEventRequestFailed, message)
	return nil
}

// refusedRetry is how soon what the API server refuses as invalid is tried again:
// mostly something that is watched has to change first.
const refusedRetry = 5 * time.Minute

// explain says on a Certificate that is being issued what of it the API server
// refuses: an immutable Secret, a quota, a policy.
func (r *certificates) explain(ctx context.Context, crt *certmanagerv1.Certificate, a lifecycle.Action, cause error) error {
	switch a.Step {
	case lifecycle.StepCreateKey, lifecycle.StepCreateRequest, lifecycle.StepStoreTemporary, lifecycle.StepStore:
	default:
		return cause
	}
	if !refuses(cause) {
		return cause
	}
	if err := r.refuse(ctx, crt, a, fmt.Sprintf("The API server refuses to %s: %v", a.Step, cause)); err != nil {
		return err
	}
	if !apierrors.IsForbidden(cause) {
		return fault.After(refusedRetry, certmanagerv1.CertificateEventRequestFailed, "%w", cause)
	}
	return cause
}

// refuses reports whether the API server says no to what it was asked, and not because
// the namespace is going away.
func refuses(err error) bool {
	invalid := apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err)
	return invalid || apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func (r *certificates) deleteSecrets(ctx context.Context, crt *certmanagerv1.Certificate, names []string) error {
	for _, name := range names {
		secret, err := r.Secrets.Metadata(ctx, crt.Namespace, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := r.Client.Delete(ctx, secret); err != nil {
			return err
		}
	}
	return nil
}

func (r *certificates) deleteRequests(ctx context.Context, requests []lifecycle.RequestFacts, names []string) error {
	for _, request := range requests {
		for _, name := range names {
			if request.Name != name {
				continue
			}
			if err := r.Client.Delete(ctx, request.CertificateRequest); err != nil {
				return err
			}
		}
	}
	return nil
}
