package acmeorder

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=get;list;watch

const (
	// renewalInfoSoon is the wait after a failure that may pass soon. renewalInfoLater is the wait after any other one,
	// such as a certificate that the CA does not know: by RFC 9773 §4.3.3 clients then ask again in six hours.
	renewalInfoSoon  = time.Minute
	renewalInfoLater = 6 * time.Hour
)

// RenewalInfo implements signer.RenewalInformer. Each of its errors is a fault that says whether and when to ask again.
func (s *Adapter) RenewalInfo(ctx context.Context, issuer certmanagerv1.GenericIssuer, chain []byte) (*signer.RenewalInfo, error) {
	spec := issuer.GetSpec().ACME
	if s.NoARI || spec == nil || spec.RenewalInformationSource == acmev1.RenewalInformationNone {
		return nil, nil //nolint:nilnil // there is none, as the interface says
	}
	certs, err := pki.DecodeChain(chain)
	if err != nil {
		return nil, fault.Terminal(reasonRenewalInfo, "no renewal information: %w", err)
	}
	id, err := acme.CertID(certs[0])
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // a certificate that cannot be named has none
	}
	account, ok := s.Accounts.Of(issuer.GetUID())
	if !ok {
		return nil, fault.After(lookAgain, reasonRenewalInfo, "no renewal information: the ACME account of issuer %q is not at hand yet", issuer.GetName())
	}
	if until, reason := account.Parked(); s.Now().Before(until) {
		return nil, fault.After(until.Sub(s.Now()), reasonRenewalInfo,
			"no renewal information: the ACME server asked to be left alone until %s: %s", until.UTC().Format(time.RFC3339), reason)
	}
	info, err := account.RenewalInfo(ctx, id)
	switch {
	case err != nil:
		return nil, fault.After(renewalInfoAgain(err), reasonRenewalInfo, "no renewal information: %w", err)
	case info == nil:
		return nil, nil //nolint:nilnil // as above
	}
	return &signer.RenewalInfo{
		Start: info.SuggestedWindow.Start, End: info.SuggestedWindow.End,
		ExplanationURL: info.ExplanationURL, RetryAfter: info.RetryAfter,
	}, nil
}

func renewalInfoAgain(err error) time.Duration {
	f := fault.Of(err)
	switch {
	case f == nil:
		return renewalInfoSoon
	case f.Delay > 0:
		return f.Delay
	case f.MayPass() && !f.Unsure: // whoever answers so, it is but a hint
		return renewalInfoSoon
	default:
		return renewalInfoLater
	}
}

// Replaces implements signer.Orderer. It names the certificate that the new one replaces (RFC 9773 §5; spec §3.4): the
// certificate in the Secret of the request's Certificate, if the same issuer has issued it. The name is a hint to the
// CA. If there is no such certificate, Replaces returns no name and no error.
func (s *Adapter) Replaces(ctx context.Context, issuer certmanagerv1.GenericIssuer, r signer.Request) (string, error) {
	cr, ok := r.Source.(*certmanagerv1.CertificateRequest)
	if !ok || s.NoARI || issuer.GetSpec().ACME.RenewalInformationSource == acmev1.RenewalInformationNone {
		return "", nil
	}
	if account, bound := s.Accounts.Of(issuer.GetUID()); bound && !account.OffersRenewalInfo() {
		return "", nil
	}
	name := cr.Annotations[certmanagerv1.CertificateNameAnnotation]
	if name == "" {
		return "", nil
	}
	crt := &certmanagerv1.Certificate{}
	if err := s.Objects.Get(ctx, client.ObjectKey{Namespace: cr.Namespace, Name: name}, crt); err != nil {
		return "", foundOr(err, "Certificate", cr.Namespace, name)
	}
	secret, err := s.Secrets.Secret(ctx, cr.Namespace, crt.Spec.SecretName)
	if err != nil {
		return "", foundOr(err, "Secret", cr.Namespace, crt.Spec.SecretName)
	}
	by := cmmeta.IssuerReference{
		Name: secret.Annotations[certmanagerv1.IssuerNameAnnotation], Kind: secret.Annotations[certmanagerv1.IssuerKindAnnotation],
		Group: secret.Annotations[certmanagerv1.IssuerGroupAnnotation],
	}
	if by.Name != r.IssuerName || by.KindOrDefault() != r.IssuerKind || by.GroupOrDefault() != r.IssuerGroup {
		return "", nil
	}
	certs, err := pki.DecodeChain(secret.Data[cmmeta.TLSCertKey])
	if err != nil {
		return "", nil //nolint:nilerr // there is nothing to name
	}
	id, err := acme.CertID(certs[0])
	if err != nil {
		return "", nil //nolint:nilerr // as above
	}
	return id, nil
}

// foundOr is nil if the error says that an object is not there.
func foundOr(err error, kind, namespace, name string) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("read %s %s/%s for what is replaced: %w", kind, namespace, name, err)
}
