package podrequests

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// signCall names the call of the engine that asks a server to sign.
const signCall = "sign"

// signed is a certificate that may be handed out.
type signed struct {
	chain []byte // PEM
	leaf  *x509.Certificate
	// wanted says what it was made for, by which state of the issuer.
	wanted string
}

// sign signs a request, and writes everything at once. A Signer that asks a server does so by a call of the engine.
func (r *requests) sign(ctx context.Context, p *pass, o *observation, a podrequest.Action) (engine.Plan, error) {
	by, can := r.signerOf(o).(signer.Signer)
	if !can {
		return engine.Plan{}, fmt.Errorf("%s has no Signer: please report this as a bug", o.state.IssuerName)
	}
	if same, err := r.sameIssuer(ctx, o.issuer); err != nil || !same {
		return engine.Plan{Waits: engine.For{What: engine.WaitEvent, Detail: "the watch of " + o.state.IssuerName + " is late"}}, err
	}
	ref := o.state.Signer.Reference()
	remote, afar := by.(signer.Remote)
	run := func(ctx context.Context) (signed, error) {
		result, err := r.Sign(ctx, by, o.issuer, signer.Request{
			Source: p.Object, SourceKind: controller.PodRequestKind, ResourceNamespace: signer.ResourceNamespace(o.issuer, r.Settings.ClusterResourceNamespace),
			CSR: a.CSR, Key: a.Key, Names: &a.Names, Duration: a.Duration,
			Usages:     []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageServerAuth, certmanagerv1.UsageClientAuth},
			IssuerName: ref.Name, IssuerKind: ref.Kind, IssuerGroup: ref.Group,
		})
		if err != nil {
			return signed{}, err
		}
		chain, err := pki.DecodeChain(result.Bundle.Chain)
		if err == nil {
			err = a.Refuses(chain[0], r.Now())
		}
		if err != nil {
			return signed{}, fmt.Errorf("%s has made a certificate that the Pod cannot have: %w", o.state.IssuerName, err)
		}
		return signed{chain: result.Bundle.Chain, leaf: chain[0]}, nil
	}
	if afar {
		return r.call(ctx, p, o, a, remote.Lane(o.issuer), run)
	}
	made, err := run(ctx)
	if err == nil {
		return r.issued(p, o, made), nil
	}
	plan := r.unsigned(p, err)
	if !fault.IsTerminal(err) {
		plan.Failure = err
	}
	return plan, nil
}

// call asks a server to sign, until it has. What a call has brought counts as long as it is for what is wanted now,
// also if the issuer was not ready meanwhile.
func (r *requests) call(ctx context.Context, p *pass, o *observation, a podrequest.Action, lane engine.Lane, run func(context.Context) (signed, error)) (engine.Plan, error) {
	inputs, err := r.IssuerInputs(ctx, o.issuer)
	if err != nil {
		return engine.Plan{}, err
	}
	wanted := fmt.Sprintf("%s %q %s", inputs, a.Names, a.Duration)
	if last, back := p.LastOutcome(signCall); back && last.Err == nil {
		made, _ := last.Value.(signed)
		if made.wanted == wanted && a.Refuses(made.leaf, r.Now()) == nil {
			return r.issued(p, o, made), nil
		}
		p.Forget(signCall) // it has become too old, or is for other names
	}
	answer := p.Ask(engine.Call{
		Name: signCall, Lane: lane, Tenant: o.issuer.GetNamespace(), Inputs: wanted + " " + controller.RetryKey(o.issuer), Finish: true,
		Run: func(ctx context.Context) (any, error) {
			made, err := run(ctx)
			if fault.IsTerminal(err) {
				err = errors.New(err.Error()) // no event tells that the server has been corrected
			}
			made.wanted = wanted
			return made, err
		},
	})
	if answer.Err == nil {
		return engine.Plan{}, nil // it is in the list of waits as a call
	}
	plan := r.unsigned(p, answer.Err)
	if plan.Wake = answer.Until; !plan.Wake.IsZero() {
		plan.Waits.What = engine.WaitTime
	}
	return plan, nil
}

// unsigned makes a request wait that could not be signed: whatever it is, somebody else than the Pod can correct it.
func (r *requests) unsigned(p *pass, err error) engine.Plan {
	return r.wait(p, podrequest.Action{Step: podrequest.StepWait, Reason: podrequest.ReasonSigningError, Message: err.Error()})
}

// issued hands a certificate out.
func (r *requests) issued(p *pass, o *observation, made signed) engine.Plan {
	reason := reasonIssued
	if !leads(r.Deps) {
		reason = reasonWithoutLeader
	}
	plan := verdict(p.Object, certificatesv1.PodCertificateRequestConditionTypeIssued, reason, "signed by "+o.state.IssuerName, r.Now())
	status := &plan.Status.(*podCertificateRequest).Status //nolint:forcetypeassert // verdict makes it
	status.CertificateChain = string(made.chain)
	status.NotBefore, status.NotAfter = new(metav1.NewTime(made.leaf.NotBefore)), new(metav1.NewTime(made.leaf.NotAfter))
	status.BeginRefreshAt = new(metav1.NewTime(podrequest.RefreshAt(string(p.Object.Spec.PodUID), made.leaf.NotBefore, made.leaf.NotAfter)))
	return plan
}

// signerOf is what signs for the issuer; nil for nothing.
func (r *requests) signerOf(o *observation) signer.Adapter {
	if o.issuer == nil {
		return nil
	}
	return r.Signers[signer.TypeOf(o.issuer.GetSpec())]
}
