package certificates

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/signer"
)

// olderRoots says what becomes of the older roots in the Secret of a CA. The issuers that sign with the Secret decide.
// If the CA is an intermediate of an issuer that hands on roots itself, it has from there what it needs.
func (r *certificates) olderRoots(ctx context.Context, v *view) (facts.OlderRoots, error) {
	crt, by, out := v.Certificate, v.issuer, facts.ForgetOlderRoots
	switch {
	case !crt.Spec.IsCA, v.SecretOwner != crt.Name, by != nil && by.GetSpec().CA != nil && (certmanagerv1.ReissuesNow(by) || certmanagerv1.DeliversRoots(by)):
		return out, nil
	case v.Secret == nil && crt.Status.Revision == nil, v.Secret != nil && v.Secret.CertificateName != crt.Name:
		return out, nil // nothing was there before, or what somebody else has left, which is not handed on
	}
	issuers, err := r.IssuersOf(ctx, client.ObjectKey{Namespace: crt.Namespace, Name: crt.Spec.SecretName})
	if err != nil {
		return out, err
	}
	for _, issuer := range issuers {
		switch {
		case issuer.GetSpec().CA == nil || issuer.GetNamespace() == "" && !r.Scope.Holds(issuer.GetName()):
		case certmanagerv1.ReissuesNow(issuer):
			return facts.DropOlderRoots, nil
		case certmanagerv1.DeliversRoots(issuer):
			out = facts.KeepOlderRoots
		}
	}
	return out, nil
}

// successor is ca.crt of a CA, and the version of the Secret that the CA takes the place of.
type successor struct {
	ca      []byte
	version string
}

// succeed prepares for StepStore what a CA takes over from the one before. It returns an event if the older root does
// not vouch for the new one.
func (r *certificates) succeed(ctx context.Context, v *view, a certificate.Action) ([]engine.Event, error) {
	if a.Step != certificate.StepStore || v.OlderRoots != facts.KeepOlderRoots {
		return nil, nil
	}
	var unlinked error
	switch earlier, err := r.Secrets.Secret(ctx, v.Certificate.Namespace, v.Certificate.Spec.SecretName); {
	case apierrors.IsNotFound(err):
		unlinked = errors.New("the Secret with the old key was deleted")
	case err != nil:
		return nil, err
	default:
		v.successor = &successor{version: earlier.ResourceVersion} // the key that has signed is the one that is replaced
		v.successor.ca, unlinked = facts.SucceedCA(a.Chain, a.Request.Status.CA, earlier, r.Now())
	}
	if unlinked == nil {
		return nil, nil
	}
	return []engine.Event{{Warning: true, Reason: certmanagerv1.CertificateEventRootNotVouchedFor, Message: fmt.Sprintf(
		"Clients that know only the old root refuse what the new root in Secret %q signs: %v. Give them the new root: it is the first certificate in ca.crt",
		v.Certificate.Spec.SecretName, unlinked)}}, nil
}

// affectedByIssuer lists the Certificates that a change of an issuer matters to: those that affectedBy lists and, if
// the issuer says that keys are stolen, those that may keep its CA.
func (r *certificates) affectedByIssuer(ctx context.Context, object client.Object) []reconcile.Request {
	out := r.affectedBy(ctx, object)
	issuer, ok := object.(certmanagerv1.GenericIssuer)
	if !ok || issuer.GetSpec().CA == nil || !certmanagerv1.ReissuesNow(issuer) {
		return out
	}
	secret := client.ObjectKey{Namespace: signer.ResourceNamespace(issuer, r.Settings.ClusterResourceNamespace), Name: issuer.GetSpec().CA.SecretName}
	named := ""
	if f, err := r.Secrets.Facts(ctx, secret.Namespace, secret.Name); err == nil && f != nil {
		named = f.CertificateName
	}
	for _, crt := range r.claims.Holders(secret, named) {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(crt)})
	}
	return out
}
