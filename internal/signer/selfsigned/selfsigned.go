// Package selfsigned signs requests with the requester's own key.
//
// The key is in a Secret that an annotation of the request names. The package reads that Secret and signs. The package
// never writes a Secret. internal/machine/request decides whether a request may be signed.
package selfsigned

import (
	"context"
	"crypto"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// readRetry is how soon an API server that did not give a Secret is asked again.
const readRetry = 10 * time.Second

// Signer implements signer.Signer for issuers with spec.selfSigned, which can always be used.
type Signer struct {
	secrets credential.Reader
	now     func() time.Time
}

var (
	_ signer.Signer = (*Signer)(nil)
	_ signer.InLine = (*Signer)(nil)
)

// New returns a Signer that reads keys from secrets, by the clock now.
func New(secrets credential.Reader, now func() time.Time) *Signer {
	return &Signer{secrets: secrets, now: now}
}

// NeedsKey implements signer.InLine: the requester's key is all that is needed.
func (*Signer) NeedsKey() bool { return true }

// words are what differs between the two kinds of request (spec §3.4, §4.5).
type words struct {
	annotation, secretMissing string
}

func wordsFor(kind string) words {
	if kind == certmanagerv1.CertificateRequestKind {
		return words{certmanagerv1.PrivateKeySecretNameAnnotation, "MissingSecret"}
	}
	return words{certmanagerv1.CSRPrivateKeyAnnotation, "SecretNotFound"}
}

// Sign implements signer.Signer. The certificate is its own CA.
func (s *Signer) Sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	spec := issuer.GetSpec().SelfSigned
	if spec == nil {
		return signer.Result{}, fmt.Errorf("issuer %q has no spec.selfSigned", issuer.GetName())
	}
	key, err := s.key(ctx, r)
	if err != nil {
		return signer.Result{}, err
	}
	template, err := r.Template(pki.Issuance{NotBefore: s.now(), CRLDistributionPoints: spec.CRLDistributionPoints})
	if err != nil {
		return signer.Result{}, fault.Failed(fault.ClassPermanent, "ErrorGenerating", "error generating certificate template: %w", err)
	}
	if !pki.PublicKeysEqual(template.PublicKey, key.Public()) {
		return signer.Result{}, fault.Failed(fault.ClassPermanent, "ErrorKeyMatch", "the key in Secret %s/%s is not the one that signed the certificate request: name the Secret of the request's own key", r.ResourceNamespace, r.PrivateKeySecretName)
	}
	cert, err := pki.Sign(template, template, key)
	if err != nil {
		return signer.Result{}, fault.Failed(fault.ClassPermanent, "ErrorSigning", "error signing certificate: %w", err)
	}
	text := pki.EncodeCertificates(cert)
	result := signer.Result{Bundle: signer.Bundle{Chain: text, CA: text}}
	if len(cert.Subject.ToRDNSequence()) == 0 && len(cert.Subject.Names) == 0 {
		result.WarningReason = certmanagerv1.CertificateRequestEventBadConfig
		result.Warning = "the certificate has an empty subject and, being self-signed, an empty issuer, which RFC 5280 §4.1.2.4 forbids and some TLS software refuses: set a commonName or subject"
	}
	return result, nil
}

// key reads the requester's key.
func (s *Signer) key(ctx context.Context, r signer.Request) (crypto.Signer, error) {
	say := wordsFor(r.SourceKind)
	if r.PrivateKeySecretName == "" {
		return nil, fault.Failed(fault.ClassPermanent, "MissingAnnotation", "the annotation %q is missing or empty: it must name the Secret with the key of the certificate request", say.annotation)
	}
	where := r.ResourceNamespace + "/" + r.PrivateKeySecretName
	secret, err := s.secrets.Secret(ctx, r.ResourceNamespace, r.PrivateKeySecretName)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fault.Pending(say.secretMissing, "Secret %s, named by the annotation %q, does not exist: create it with the private key in tls.key", where, say.annotation)
	case err != nil:
		return nil, fault.After(readRetry, "ErrorGettingSecret", "read Secret %s: %w", where, err)
	}
	text := secret.Data[cmmeta.TLSPrivateKeyKey]
	if len(text) == 0 {
		return nil, fault.Pending("ErrorParsingKey", "Secret %s, key tls.key: it is missing or empty: store the private key of the certificate request there", where)
	}
	key, err := pki.DecodePrivateKey(text)
	if err != nil {
		return nil, fault.Pending("ErrorParsingKey", "Secret %s, key tls.key: %w", where, err)
	}
	return key, nil
}
