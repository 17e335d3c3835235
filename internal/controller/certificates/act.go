package certificates

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/when"
)

// plan says what an Action means, in the order that Action promises.
func (r *certificates) plan(ctx context.Context, p *pass, v *view, a certificate.Action) (engine.Plan, error) {
	crt := p.Object
	if !awaitKey(p, a) {
		return engine.Plan{}, nil // the call wakes the Certificate
	}
	plan := engine.Plan{
		Wake: a.Wake, Failure: a.Failure, Again: a.Failure == nil && (!a.Rests() || a.Status != nil),
		First: func(ctx context.Context) error {
			err := r.step(ctx, p, v, a)
			if err != nil && r.refused(p, a, err) {
				return engine.ErrDecideAgain
			}
			return err
		},
		Then: func(ctx context.Context) error { return r.taken(ctx, p, v, a) },
	}
	if a.Status != nil {
		changed := crt.DeepCopy()
		changed.Status = *a.Status
		plan.Status = changed
	}
	if r.Settings.StepEvents {
		plan.Events = stepEvents(crt, a)
	}
	warning, err := r.succeed(ctx, v, a)
	if err != nil {
		return engine.Plan{}, err
	}
	plan.Events = append(plan.Events, warning...)
	for _, e := range a.Events {
		plan.Events = append(plan.Events, engine.Event(e))
	}
	if !plan.Again {
		plan.Waits = waitFor(crt, a)
	}
	// The issuer is asked beside the step, whether the step can be taken or not, and the step is taken whether the
	// issuer can be asked or not.
	var ask, revoke time.Time
	var noAsk, noRevoke error
	if a.Step == certificate.StepAskRenewalInfo {
		ask, noAsk = r.inquire(ctx, p, v, a.Certificate)
	}
	if a.Revoke {
		revoke, noRevoke = r.askToRevoke(ctx, p, v)
	}
	plan.Wake = when.Earliest(plan.Wake, when.Earliest(ask, revoke))
	if err := errors.Join(noAsk, noRevoke); err != nil {
		plan.Failure = err
	}
	return plan, nil
}

// taken takes in that an Action was taken, and its status written.
func (r *certificates) taken(ctx context.Context, p *pass, v *view, a certificate.Action) error {
	if a.Step == certificate.StepStore {
		if err := r.deleteSecrets(ctx, p.Object, a.Names); err != nil {
			return err
		}
	}
	r.trace(p.Object, v, a)
	p.Memory.stepTaken(a.Step)
	if s, was := a.Status, &p.Object.Status; s != nil && (!s.Cause.SameAs(was.Cause) || !s.NextTry.Equal(was.NextTry)) {
		p.Memory.told = r.Now()
	}
	if !a.Keep {
		p.Memory.held = nil
	}
	return nil
}

// waitFor says what a Certificate waits for that rests and is not in order.
func waitFor(crt *certmanagerv1.Certificate, a certificate.Action) engine.For {
	conditions := crt.Status.Conditions
	if a.Status != nil {
		conditions = a.Status.Conditions
	}
	for _, kind := range []certmanagerv1.CertificateConditionType{
		certmanagerv1.CertificateConditionIssuing, certmanagerv1.CertificateConditionRevoking,
	} {
		if c := certmanagerv1.FindCertificateCondition(conditions, kind); c != nil && c.Status == cmmeta.ConditionTrue {
			return engine.For{What: engine.WaitEvent, Detail: c.Message}
		}
	}
	ready := certmanagerv1.FindCertificateCondition(conditions, certmanagerv1.CertificateConditionReady)
	switch {
	case ready == nil, ready.Status == cmmeta.ConditionTrue:
		return engine.For{}
	case a.Wake.IsZero():
		return engine.For{What: engine.WaitEvent, Detail: ready.Message}
	default:
		return engine.For{What: engine.WaitTime, Detail: ready.Message}
	}
}

func (r *certificates) step(ctx context.Context, p *pass, v *view, a certificate.Action) error {
	crt, m, state := p.Object, p.Memory, &v.State
	switch a.Step {
	case certificate.StepRest, certificate.StepAskRenewalInfo:
		return nil
	case certificate.StepDeleteKeys:
		return r.deleteSecrets(ctx, crt, a.Names)
	case certificate.StepCreateKey:
		return r.createKey(ctx, m, crt, a)
	case certificate.StepDeleteRequests, certificate.StepDropSurplus:
		return r.deleteRequests(ctx, state.Requests, a.Names)
	case certificate.StepCreateRequest:
		return r.createRequest(ctx, m, crt, a)
	case certificate.StepStore:
		return r.store(ctx, m, v, a)
	case certificate.StepStoreTemporary:
		return r.storeTemporary(ctx, state, a)
	case certificate.StepRepair:
		return r.repair(ctx, m, state)
	case certificate.StepPin:
		return r.pin(ctx, state)
	case certificate.StepRecord:
		return r.record(ctx, crt, a.Record)
	case certificate.StepUnpin:
		p.Forget(revocationCall)
		return r.Client.Delete(ctx, v.pinned.secret)
	default:
		return fmt.Errorf("the decision asks for %s, which the controller does not know: please report this as a bug", a.Step)
	}
}

// refused remembers why a step has failed, if the Certificate has to show that before the next try, and reports
// whether it did so. Such failures are a spec for which there is no request, and a refusal of the API server (an
// immutable Secret, a quota, a policy).
func (r *certificates) refused(p *pass, a certificate.Action, err error) bool {
	no := refuses(err)
	switch a.Step {
	case certificate.StepStore:
		if a.Held && (no || fault.IsTerminal(err)) {
			p.Memory.held.Refused = true // so that the key gets a Secret before anything is waited for
			return true
		}
	case certificate.StepCreateKey, certificate.StepCreateRequest, certificate.StepStoreTemporary:
	case certificate.StepPin, certificate.StepRecord, certificate.StepUnpin, certificate.StepDropSurplus:
		return p.Memory.postpone(a.Step, err, r.Now(), p.Chance())
	default:
		return false
	}
	refusal := &certificate.Refusal{Step: a.Step, Message: err.Error(), Err: err}
	object := objectOf(p.Object, a)
	switch f := fault.Of(err); {
	case f != nil:
		refusal.Cause = cause.New(cause.Class(f.Class), "", "", err.Error())
		if f.Class == fault.Class(cause.InTheWay) {
			refusal.Cause.Subject = object
		}
		if f.Kind == fault.KindAfter {
			refusal.Cause.NextTry = &metav1.Time{Time: r.Now().Add(f.Delay).Truncate(time.Second)}
		}
	default:
		// An internal error is what a webhook says that is out of order.
		if refusal.Cause = cause.OfWrite(err, object); refusal.Cause == nil {
			return false
		}
		refusal.Message = fmt.Sprintf("The API server refuses to %s: %v", a.Step, err)
		wait := p.Memory.refusals.After(refusal.Cause, r.Now())
		refusal.Err = fault.After(wait, certmanagerv1.CertificateEventRequestFailed, "%w", err)
	}
	p.Memory.refusal = refusal
	return true
}

// objectOf names the object that a step writes.
func objectOf(crt *certmanagerv1.Certificate, a certificate.Action) string {
	switch a.Step {
	case certificate.StepCreateRequest:
		return "CertificateRequest " + a.Name
	case certificate.StepCreateKey:
		return "Secret " + a.Name
	default:
		return "Secret " + crt.Spec.SecretName
	}
}

// createKey makes the next-private-key Secret (spec §2.2). One that is there
// already was made by a pass that was cut short.
func (r *certificates) createKey(ctx context.Context, m *memory, crt *certmanagerv1.Certificate, a certificate.Action) error {
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
			OwnerReferences: []metav1.OwnerReference{facts.OwnedBy(crt)},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{cmmeta.TLSPrivateKeyKey: text},
	}
	found := &corev1.Secret{}
	ours, err := r.Make(ctx, secret, found, crt)
	if err == nil && (!ours || found.UID != "" && found.Labels[certmanagerv1.NextPrivateKeyLabel] != certmanagerv1.LabelTrue) {
		return blockedBy("Secret %q is in the way of the next private key: delete it", secret.Name)
	}
	return err
}

// blockedBy says that somebody else's object has a name that is needed. That object is not watched.
func blockedBy(format, name string) error {
	return fault.Class(cause.InTheWay).After(30*time.Second, certmanagerv1.CertificateEventRequestFailed, format, name)
}

// keyFor returns the private key that an Action means: one that there is, or a new one.
func (r *certificates) keyFor(ctx context.Context, m *memory, crt *certmanagerv1.Certificate, a certificate.Action) (crypto.Signer, error) {
	switch {
	case a.Held:
		return m.held.key, nil
	case a.Key != "":
		return r.readKey(ctx, crt.Namespace, a.Key)
	case a.ReuseKey:
		return r.readKey(ctx, crt.Namespace, crt.Spec.SecretName)
	case m.made != nil:
		key := m.made
		m.made = nil
		return key, nil
	}
	key, err := pki.GenerateKey(facts.KeySpecOf(&crt.Spec))
	if err != nil {
		return nil, cannotRequest(err)
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
func (r *certificates) createRequest(ctx context.Context, m *memory, crt *certmanagerv1.Certificate, a certificate.Action) error {
	key, err := r.keyFor(ctx, m, crt, a)
	if err != nil {
		return err
	}
	if a.Keep {
		m.hold(key, a)
	}
	request, err := certificate.NewRequest(crt, a, key, r.Settings.CopiedAnnotations)
	if err != nil {
		return cannotRequest(err)
	}
	delete(request.Annotations, revocation.Annotation) // they are the Certificate's own
	delete(request.Annotations, revocation.RecordAnnotation)
	if err := r.self.Fill(ctx, r.Manager.GetClient(), &request.Spec); err != nil {
		return err
	}
	found := &certmanagerv1.CertificateRequest{}
	ours, err := r.Make(ctx, request, found, crt)
	if err == nil && !ours && controller.IsPassing(found, crt, r.Now()) {
		return fault.Class(cause.InTheWay).After(5*time.Second, certmanagerv1.CertificateEventRequestFailed,
			"CertificateRequest %q of an earlier Certificate of this name is about to be deleted", a.Name)
	}
	if err == nil && !ours {
		request.Name = controller.SecondName(request.Name, crt.UID)
		ours, err = r.Make(ctx, request, &certmanagerv1.CertificateRequest{}, crt)
	}
	if apierrors.IsInvalid(err) {
		r.self.Forget()
	}
	if err == nil && !ours {
		return blockedBy("CertificateRequest %q is in the way and belongs to somebody else: delete it", a.Name)
	}
	return err
}

// cannotRequest says that no request can be made for this spec. Only a change of the spec helps, which is an event.
func cannotRequest(problem error) error {
	return fault.Failed(fault.Class(cause.NoRequest), certmanagerv1.CertificateEventRequestFailed, "No certificate request can be made for this spec: %w", problem)
}

// refuses reports whether the API server says no to what it was asked.
func refuses(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsForbidden(err)
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

func (r *certificates) deleteRequests(ctx context.Context, requests []facts.Request, names []string) error {
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
