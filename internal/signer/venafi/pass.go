package venafi

import (
	"context"

	"github.com/Venafi/vcert/v5/pkg/certificate"
	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/signer"
)

// pass is one Sign.
type pass struct {
	*Signer

	issuer  types.UID
	account *account
	r       signer.Request
	words   words
	order   order
}

func (p *pass) landed() {
	p.NotifyRequest(p.r.SourceKind, types.NamespacedName{Namespace: p.r.Source.GetNamespace(), Name: p.r.Source.GetName()})
}

// request hands the request in. Should the pickup id be lost before it is persisted,
// the request is handed in again: the object at a TPP server has the same name then.
func (p *pass) request() (signer.Result, error) {
	landed, ok := p.ask(p.r.Source.GetUID(), "request "+p.account.server+" "+p.account.zone, p.account, func(ctx context.Context) (any, error) {
		return p.account.request(ctx, p.order)
	}, p.landed)
	if !ok {
		return signer.Result{}, fault.Pending("", "The request is being handed in to %s", p.account.server)
	}
	id, _ := landed.Value.(string)
	if landed.Err != nil {
		return signer.Result{}, p.rest(p.r.Source.GetUID(), p.account, p.requestFault(landed.Err, p.words.request))
	}
	return signer.Result{Annotations: map[string]string{p.words.pickupID: id}},
		fault.After(0, "", "The request was handed in to %s", p.account.server)
}

// retrieve asks for the certificate.
func (p *pass) retrieve(ctx context.Context, id string) (signer.Result, error) {
	landed, ok := p.ask(p.r.Source.GetUID(), "retrieve "+id, p.account, func(ctx context.Context) (any, error) {
		return p.account.retrieve(ctx, p.order, id)
	}, p.landed)
	if !ok {
		return signer.Result{}, fault.Pending("", "%s is being asked for the certificate", p.account.server)
	}
	if landed.Err != nil {
		return signer.Result{}, p.rest(p.r.Source.GetUID(), p.account, p.requestFault(landed.Err, p.words.retrieve))
	}
	got, ok := landed.Value.(*certificate.PEMCollection)
	if !ok || got == nil {
		return signer.Result{}, fault.Failed(fault.ClassUnavailable, p.words.retrieve, "%s gave no certificate", p.account.server)
	}
	bundle, err := p.order.bundle(ctx, got)
	if err != nil {
		return signer.Result{}, fault.Failed(fault.ClassUnavailable, p.words.parse, "what %s gave cannot be used: %w", p.account.server, err)
	}
	result := signer.Result{Bundle: bundle}
	if p.account.product != productTPP && p.order.hasCustomFields() {
		result.WarningReason = "CustomFieldsIgnored"
		result.Warning = "the certificate was issued without its custom fields: only self-hosted Certificate Manager (spec.venafi.tpp) takes them"
	}
	return result, nil
}
