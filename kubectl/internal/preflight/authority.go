package preflight

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/pki"
)

// authority checks whether the CA of a CA issuer can sign the Certificate: the CA's validity and its constraints.
func (k *checker) authority(ctx context.Context, spec *certmanagerv1.CAIssuer) preflight.Finding {
	f := preflight.Finding{Check: "CA", Outcome: preflight.OK}
	key := client.ObjectKey{Namespace: cmp.Or(k.issuer.GetNamespace(), k.o.resources), Name: spec.SecretName}
	secret := &corev1.Secret{}
	if err := k.client.Get(ctx, key, secret); err != nil {
		return unread(f.Check, "", fmt.Errorf("its certificate cannot be read: %w", err))
	}
	chain, err := pki.DecodeBundle(secret.Data[corev1.TLSCertKey])
	if err == nil && len(chain) == 0 {
		err = errors.New("there is no certificate")
	}
	if err != nil {
		f.Outcome, f.Message, f.WhatToDo = preflight.Failed, fmt.Sprintf("%s of Secret %s: %v", corev1.TLSCertKey, key, err), preflight.Cure(cause.CAExpired)
		return f
	}
	duration := certmanagerv1.DefaultCertificateDuration
	if d := k.certificate.Spec.Duration; d != nil {
		duration = d.Duration
	}
	now := time.Now()
	end := chain[0].NotAfter
	f.Message = fmt.Sprintf("the CA certificate in Secret %s is valid until %s, and allows the names", key, end.UTC().Format(time.RFC3339))
	limits := allowed(&k.certificate.Spec, chain, now, duration)
	switch {
	case now.After(end):
		f.Outcome, f.Message = preflight.Failed, fmt.Sprintf("the CA certificate in Secret %s expired on %s", key, end.UTC().Format(time.RFC3339))
		f.WhatToDo = preflight.Cure(cause.CAExpired)
	case limits != nil:
		f.Outcome, f.Message, f.WhatToDo = preflight.Failed, limits.Error(), "Ask for other names or usages, or take another CA"
	case now.Add(duration).After(end):
		f.Outcome = preflight.Warning
		f.Message = fmt.Sprintf("the CA certificate in Secret %s is valid until %s only, and the Certificate asks for %s", key, end.UTC().Format(time.RFC3339), duration)
		f.WhatToDo = "Renew the CA, or set a shorter spec.duration"
	}
	return f
}

// allowed returns an error if the certificates of a CA do not allow a certificate for the spec. The CA issuer checks
// that after it has signed; here a certificate with a key that nobody keeps takes the place of the signed one.
func allowed(spec *certmanagerv1.CertificateSpec, authority []*x509.Certificate, now time.Time, duration time.Duration) error {
	kind := pki.KeySpec{Algorithm: pki.ECDSA}
	if spec.PrivateKey.OnlySigns() { // which allows other usages
		kind.Algorithm = string(spec.PrivateKey.Algorithm)
	}
	key, err := pki.GenerateKey(kind)
	if err != nil {
		return err
	}
	wanted := certificate.CSRTemplateOf(spec)
	wanted.SignatureAlgorithm = "" // which may be that of another kind of key
	text, err := pki.CreateCSR(wanted, key)
	if err != nil {
		return err
	}
	csr, err := pki.DecodeCSR(text)
	if err != nil {
		return err
	}
	usages, err := pki.ParseUsages(spec.Usages, spec.IsCA, key.Public())
	if err != nil {
		return err
	}
	template, err := pki.NewTemplate(csr, pki.Issuance{NotBefore: now, Duration: duration, IsCA: spec.IsCA, Usages: usages})
	if err != nil {
		return err
	}
	template.SerialNumber = big.NewInt(1)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	return pki.CheckLimits(cert, authority)
}
