package certificates

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/signer"
)

const (
	// inquiries is how many questions one issuer is asked at once.
	inquiries = 4
	// inquiryTimeout bounds a question.
	inquiryTimeout = 90 * time.Second
	// shortWait is a wait that is not worth writing down.
	shortWait = 30 * time.Second
)

// issuerFacts says what decisions need to know of an issuer.
func (r *certificates) issuerFacts(ctx context.Context, crt *certmanagerv1.Certificate, issuer certmanagerv1.GenericIssuer) *certificate.IssuerFacts {
	if issuer == nil {
		return nil
	}
	by := r.Signers[signer.TypeOf(issuer.GetSpec())]
	_, informs := by.(signer.RenewalInformer)
	facts := &certificate.IssuerFacts{Version: fmt.Sprintf("%s/%d", issuer.GetUID(), issuer.GetGeneration()), Informs: informs}
	switch spec := issuer.GetSpec(); {
	case signer.ResourceNamespace(issuer, r.Settings.ClusterResourceNamespace) != crt.Namespace:
	case spec.CA != nil && !crt.Spec.IsCA: // a CA may replace it
		facts.Secret = spec.CA.SecretName
	case spec.ACME != nil && cmp.Or(spec.ACME.PrivateKey.Key, cmmeta.TLSPrivateKeyKey) == cmmeta.TLSPrivateKeyKey:
		facts.Secret = spec.ACME.PrivateKey.Name
	}
	if inLine := r.InLine(issuer, crt.Spec.IssuerRef, crt.Namespace); inLine != nil {
		facts.InLine, facts.NeedsKey = true, inLine.NeedsKey()
	}
	if teller, ok := by.(signer.AuthorityTeller); ok {
		// One that is not at hand replaces nothing; the issuer's own condition says why.
		if delivered, err := teller.Authority(ctx, issuer); err == nil {
			var firstSeen time.Time
			if said := issuer.GetStatus().CA; said != nil && said.Authority == signer.AuthorityID(delivered[0]) {
				firstSeen = said.FirstSeen.Time
			}
			facts.Authority = certificate.AuthorityOf(delivered, firstSeen)
			facts.Version += "/" + signer.AuthorityID(delivered[0]) // what one CA refuses, another may sign
			facts.ReissueNow = certmanagerv1.ReissuesNow(issuer)
		}
	}
	return facts
}

// The calls of the engine.
const (
	renewalCall    = "ask when to renew"
	revocationCall = "revoke"
)

// laneOf is where the calls of Certificates for an issuer go.
func laneOf(issuer certmanagerv1.GenericIssuer) engine.Lane {
	return engine.Lane{Name: "certificates of issuer " + string(issuer.GetUID()), Limit: inquiries, Timeout: inquiryTimeout}
}

// inquire asks the issuer when it wants the certificate to be renewed, and returns when to ask again.
func (r *certificates) inquire(ctx context.Context, p *pass, v *view, about facts.Digest) (time.Time, error) {
	if v.issuer == nil {
		return time.Time{}, nil
	}
	informer, ok := r.Signers[signer.TypeOf(v.issuer.GetSpec())].(signer.RenewalInformer)
	if !ok {
		return time.Time{}, nil
	}
	secret, err := r.Secrets.Secret(ctx, p.Object.Namespace, p.Object.Spec.SecretName)
	if err != nil {
		return time.Time{}, client.IgnoreNotFound(err)
	}
	chain, issuer := secret.Data[cmmeta.TLSCertKey], v.issuer
	p.Memory.asked = about
	answer := p.Ask(engine.Call{
		Name: renewalCall, Inputs: v.Issuer.Version + " " + hex.EncodeToString(about[:]), Lane: laneOf(issuer),
		Run: func(ctx context.Context) (any, error) { return informer.RenewalInfo(ctx, issuer, chain) },
	})
	return answer.Until, nil
}

// takeRenewalInfo remembers what the issuer has said when to renew. A failure that passes soon is no answer: the engine
// asks again.
func takeRenewalInfo(p *pass) {
	said, ok := p.LastOutcome(renewalCall)
	if f := fault.Of(said.Err); !ok || f != nil && f.Kind == fault.KindAfter && f.Delay <= shortWait {
		return
	}
	p.Memory.answer = answerOf(said, p.Memory.asked)
	p.Forget(renewalCall)
}

// answerOf turns what a question has come to into what decisions need of it.
func answerOf(o engine.Outcome, about facts.Digest) *certificate.RenewalAnswer {
	answer := &certificate.RenewalAnswer{Certificate: about, At: o.At}
	info, ok := o.Value.(*signer.RenewalInfo)
	switch {
	case o.Err != nil:
		answer.Error = o.Err
		if f := fault.Of(o.Err); f != nil {
			answer.RetryAfter = f.Delay
		}
	case !ok || info == nil:
		answer.None = true
	default:
		answer.Start, answer.End = info.Start, info.End
		answer.ExplanationURL, answer.RetryAfter = info.ExplanationURL, info.RetryAfter
	}
	return answer
}

// affectedBy lists the Certificates that a change of their issuer, or of a Secret that the issuer names, matters to:
// those that wait for the issuer after a failure, or to be revoked, and all whose CA may be another one now.
func (r *certificates) affectedBy(ctx context.Context, object client.Object) (out []reconcile.Request) {
	issuer, ok := object.(certmanagerv1.GenericIssuer)
	replaceable := ok && issuer.GetSpec().CA != nil
	for _, o := range r.Find(ctx, &certmanagerv1.CertificateList{}, issuerIndex, controller.IssuerKey(object.GetNamespace(), object.GetName())) {
		crt, ok := o.(*certmanagerv1.Certificate)
		if ok && (replaceable || crt.Status.LastFailureTime != nil ||
			certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking, cmmeta.ConditionTrue)) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(crt)})
		}
	}
	return out
}

// matters lets those changes of an issuer through that decisions about Certificates depend on: its spec, what is known
// of its CA or its ACME account, since when it is ready, and whether what an earlier CA has signed is issued again at
// once.
func matters() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, isIssuer := e.ObjectOld.(certmanagerv1.GenericIssuer)
		is, stays := e.ObjectNew.(certmanagerv1.GenericIssuer)
		return isIssuer && stays && (certmanagerv1.ReissuesNow(was) != certmanagerv1.ReissuesNow(is) ||
			certmanagerv1.DeliversRoots(was) != certmanagerv1.DeliversRoots(is) || controller.RetryKey(was) != controller.RetryKey(is) ||
			!cmmeta.Equal(was.GetStatus().CA, is.GetStatus().CA))
	}})
}

func issuerOf(obj client.Object) []string {
	crt, ok := obj.(*certmanagerv1.Certificate)
	if !ok || crt.Spec.IssuerRef.GroupOrDefault() != certmanagerv1.GroupName {
		return nil
	}
	return []string{controller.IssuerKeyOf(crt.Spec.IssuerRef, crt.Namespace)}
}
