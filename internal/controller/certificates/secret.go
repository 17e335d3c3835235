package certificates

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
)

// store applies the target Secret with what was issued (spec §2.4).
func (r *certificates) store(ctx context.Context, m *memory, v *view, a certificate.Action) error {
	state := &v.State
	key, err := r.keyFor(ctx, m, state.Certificate, a)
	if err != nil {
		return err
	}
	text, err := facts.EncodeKey(state.Certificate, key)
	if err != nil {
		return err
	}
	target, version := facts.Target{Chain: a.Chain, CA: a.Request.Status.CA, Key: text, Issuer: a.Request.Spec.IssuerRef}, ""
	if v.successor != nil {
		target.CA, version = v.successor.ca, v.successor.version
	}
	return r.apply(ctx, state, target, version)
}

// storeTemporary applies the target Secret with a certificate that nobody trusts, for
// as long as the issuer takes (spec §2.4).
func (r *certificates) storeTemporary(ctx context.Context, state *certificate.State, a certificate.Action) error {
	key, err := r.encodedKey(ctx, state.Certificate, a.Key)
	if err != nil {
		return err
	}
	csr, err := pki.DecodeCSR(a.Request.Spec.Request)
	if err != nil {
		return err
	}
	usages, err := pki.ParseUsages(a.Request.Spec.Usages, a.Request.Spec.IsCA, csr.PublicKey)
	if err != nil {
		return err
	}
	i := pki.Issuance{NotBefore: r.Now(), Duration: certmanagerv1.DefaultCertificateDuration, IsCA: a.Request.Spec.IsCA, Usages: usages}
	if d := a.Request.Spec.Duration; d != nil {
		i.Duration = d.Duration
	}
	chain, err := pki.TemporaryCertificate(csr, i)
	if err != nil {
		return err
	}
	return r.apply(ctx, state, facts.Target{Chain: chain, Key: key}, "")
}

// repair applies the target Secret with what it holds (spec §2.6), unless somebody has
// changed it meanwhile. What cannot be repaired as it is stays so, and good otherwise.
func (r *certificates) repair(ctx context.Context, m *memory, state *certificate.State) error {
	crt := state.Certificate
	secret, err := r.Secrets.Secret(ctx, crt.Namespace, crt.Spec.SecretName)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	err = r.apply(ctx, state, facts.RepairOf(crt, secret, state.OlderRoots), secret.ResourceVersion)
	switch {
	case fault.IsTerminal(err) || refuses(err):
		m.note(state, state.Secret.Version, err, r.Now())
		return nil
	case err != nil:
		return err
	}
	repaired, err := r.Secrets.Metadata(ctx, crt.Namespace, crt.Spec.SecretName)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	m.note(state, repaired.ResourceVersion, nil, r.Now())
	return nil
}

// apply writes everything that we manage of the target Secret at once, so that whatever
// is left out disappears, and nothing of anybody else's. Only the given version is
// replaced, or any if that is empty. A Secret that the watches do not know is made, and taken from nobody: one that was
// restored a moment ago is a conflict.
func (r *certificates) apply(ctx context.Context, state *certificate.State, t facts.Target, version string) error {
	crt := state.Certificate
	t.Certificate, t.Passwords, t.OwnerReference = crt, state.Passwords, state.OwnerReference
	secret, err := t.Secret()
	if err != nil {
		return fault.Terminal(certmanagerv1.CertificateEventRequestFailed, "The Secret cannot be made as the spec wants it: %w", err)
	}
	secret.ResourceVersion = version
	options := []client.PatchOption{client.FieldOwner(facts.FieldManager)}
	existing, err := r.Secrets.Metadata(ctx, crt.Namespace, crt.Spec.SecretName)
	switch {
	case err == nil:
		secret.Type = existing.Type // it cannot be changed
		options = append(options, client.ForceOwnership)
	case !apierrors.IsNotFound(err):
		return err
	}
	//nolint:staticcheck // an apply configuration says the same in three times the code
	err = r.Client.Patch(ctx, secret, client.Apply, options...)
	if existing == nil && apierrors.IsConflict(err) {
		r.Secrets.DoubtWatch(crt.Namespace, crt.Spec.SecretName)
	}
	return err
}

func (r *certificates) encodedKey(ctx context.Context, crt *certmanagerv1.Certificate, secret string) ([]byte, error) {
	key, err := r.readKey(ctx, crt.Namespace, secret)
	if err != nil {
		return nil, err
	}
	return facts.EncodeKey(crt, key)
}

// passwords reads those of the keystores that a Certificate wants.
func (r *certificates) passwords(ctx context.Context, crt *certmanagerv1.Certificate) (facts.Passwords, error) {
	var p facts.Passwords
	stores := crt.Spec.Keystores
	if stores == nil {
		return p, nil
	}
	var err error
	if jks := stores.JKS; jks != nil && jks.Create {
		if p.JKS, err = r.password(ctx, crt.Namespace, "spec.keystores.jks", jks.PasswordSecretRef, jks.Password); err != nil {
			return p, noteMissing(&p, err)
		}
	}
	if p12 := stores.PKCS12; p12 != nil && p12.Create {
		if p.PKCS12, err = r.password(ctx, crt.Namespace, "spec.keystores.pkcs12", p12.PasswordSecretRef, p12.Password); err != nil {
			return p, noteMissing(&p, err)
		}
	}
	return p, nil
}

// passwordError says that a password is not there: only a change of the Secret, or of
// the Certificate, helps.
type passwordError struct{ error }

func noteMissing(p *facts.Passwords, err error) error {
	if missing, ok := errors.AsType[passwordError](err); ok {
		p.Error = missing
		return nil
	}
	return err
}

func (r *certificates) password(ctx context.Context, namespace, field string, ref cmmeta.SecretKeySelector, literal *string) (string, error) {
	if ref.Name == "" {
		if literal == nil || *literal == "" {
			return "", passwordError{fmt.Errorf("%s: set passwordSecretRef or password", field)}
		}
		return *literal, nil
	}
	if ref.Key == "" {
		return "", passwordError{fmt.Errorf("%s: set passwordSecretRef.key", field)}
	}
	secret, err := r.Secrets.Secret(ctx, namespace, ref.Name)
	switch {
	case apierrors.IsNotFound(err):
		return "", passwordError{fmt.Errorf("Secret %q of %s.passwordSecretRef does not exist: create it with the password in %q", ref.Name, field, ref.Key)}
	case err != nil:
		return "", err
	case len(secret.Data[ref.Key]) == 0:
		return "", passwordError{fmt.Errorf("Secret %q of %s.passwordSecretRef has nothing in %q: put the password there", ref.Name, field, ref.Key)}
	case len(secret.Data[ref.Key]) > limits.CredentialBytes:
		return "", passwordError{fmt.Errorf("Secret %q of %s.passwordSecretRef has more than %d bytes in %q: put the password there, and nothing else",
			ref.Name, field, limits.CredentialBytes, ref.Key)}
	default:
		return string(secret.Data[ref.Key]), nil
	}
}

// passwordSecretsOf lists the Secrets that hold passwords of a Certificate's keystores.
func passwordSecretsOf(obj client.Object) []string {
	crt, ok := obj.(*certmanagerv1.Certificate)
	if !ok || crt.Spec.Keystores == nil {
		return nil
	}
	var names []string
	if jks := crt.Spec.Keystores.JKS; jks != nil && jks.PasswordSecretRef.Name != "" {
		names = append(names, jks.PasswordSecretRef.Name)
	}
	if p12 := crt.Spec.Keystores.PKCS12; p12 != nil && p12.PasswordSecretRef.Name != "" {
		names = append(names, p12.PasswordSecretRef.Name)
	}
	return names
}
