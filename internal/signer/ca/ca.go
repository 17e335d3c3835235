// Package ca signs requests with a certificate authority whose key is in a Secret.
//
// In the Secret, tls.crt holds the signing certificate and the chain from this certificate to a root, tls.key holds the
// private key, and ca.crt may hold the root. The package only reads the Secret: it never writes a Secret.
// internal/machine/request decides whether a request may be signed. This package then signs the certificate if the
// certificates of the CA allow it.
package ca

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/when"
)

// Reasons of events (spec §3.4).
const (
	reasonSecretMissing     = "SecretMissing"
	reasonSecretInvalidData = "SecretInvalidData"
	reasonSecretGetError    = "SecretGetError"
	reasonSigningError      = "SigningError"
	reasonOutlivesCA        = "CertificateOutlivesCA"
	reasonClamped           = "ValidityClamped"
)

// readRetry is how soon an API server that did not give a Secret is asked again.
const readRetry = 10 * time.Second

// Config is what a Signer needs.
type Config struct {
	// Secrets holds the key pairs.
	Secrets credential.Reader
	// Now is the clock.
	Now func() time.Time
	// ClusterResourceNamespace is where the Secrets of ClusterIssuers are.
	ClusterResourceNamespace string
}

// Signer implements signer.Signer and signer.Prober for issuers with spec.ca.
type Signer struct {
	config Config
	pairs  signer.Kept[*keyPair]
}

// New returns a Signer.
func New(config Config) *Signer {
	// Key pairs are kept so that a thousand certificates of one issuer parse and verify its chain once.
	return &Signer{config: config, pairs: signer.Kept[*keyPair]{Size: (*keyPair).size}}
}

// Forget implements signer.Forgetter.
func (s *Signer) Forget(issuer types.UID) { s.pairs.Forget(issuer) }

var (
	_ signer.Signer = (*Signer)(nil)
	_ signer.InLine = (*Signer)(nil)
	_ signer.Prober = (*Signer)(nil)

	_ signer.AuthorityTeller = (*Signer)(nil)
	_ signer.RootTeller      = (*Signer)(nil)
	_ signer.Forgetter       = (*Signer)(nil)
)

// NeedsKey implements signer.InLine: the authority's key is all that is needed.
func (*Signer) NeedsKey() bool { return false }

// Sign implements signer.Signer. A certificate that outlives the authority's has a warning, or is clamped if an
// annotation of the issuer says so. A certificate that the authority's own certificates do not allow is refused.
func (s *Signer) Sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	spec := issuer.GetSpec().CA
	if spec == nil {
		return signer.Result{}, fmt.Errorf("issuer %q has no spec.ca", issuer.GetName())
	}
	pair, err := s.pair(ctx, issuer, spec)
	if err != nil {
		return signer.Result{}, signFault(err)
	}
	if pair.chainErr != nil {
		// Of no class: the next request may find another Secret.
		return signer.Result{}, fault.Terminal(reasonSigningError, "error signing certificate: the CA certificates in Secret %s: %w", pair.secret, pair.chainErr)
	}
	now, asked, end := s.config.Now(), r.Duration, pair.signing().NotAfter
	clamp := issuer.GetAnnotations()[certmanagerv1.ClampValidityAnnotation] == certmanagerv1.LabelTrue
	if left := end.Sub(now).Truncate(time.Second); clamp && left < asked {
		r.Duration = left
	}
	if r.Duration <= 0 && clamp {
		return signer.Result{}, fault.Terminal(reasonSigningError, "error signing certificate: the CA certificate in Secret %s expired on %s: renew it", pair.secret, end.UTC().Format(time.RFC3339))
	}
	chain, err := pair.sign(spec, r, now)
	if err != nil {
		return signer.Result{}, fault.Failed(fault.ClassPermanent, reasonSigningError, "error signing certificate: %w", err)
	}
	leaf := chain.Certificates[0]
	if err := pki.CheckLimits(leaf, pair.authority()); err != nil {
		return signer.Result{}, fault.Failed(fault.ClassPolicy, reasonSigningError, "error signing certificate: Secret %s: %w: verifiers would refuse the certificate; ask for another one, or replace the CA", pair.secret, err)
	}
	var result signer.Result
	if result.Bundle, err = pair.bundle(issuer, chain, r, now); err != nil {
		return signer.Result{}, fault.Terminal(reasonSigningError, "error signing certificate: Secret %s: %w", pair.secret, err)
	}
	switch {
	case r.Duration < asked:
		result.WarningReason = reasonClamped
		result.Warning = fmt.Sprintf("the certificate is valid until %s, with the CA certificate in Secret %s, and not for the %s that were asked for: renew the CA",
			leaf.NotAfter.UTC().Format(time.RFC3339), pair.secret, asked)
	case leaf.NotAfter.After(end):
		result.WarningReason = reasonOutlivesCA
		result.Warning = fmt.Sprintf("the certificate is valid until %s, but the CA certificate in Secret %s only until %s: verifiers refuse it from then on; renew the CA or ask for a shorter duration",
			leaf.NotAfter.UTC().Format(time.RFC3339), pair.secret, end.UTC().Format(time.RFC3339))
	}
	return result, nil
}

// sign issues the certificate and orders it into the chain of the authority.
func (p *keyPair) sign(spec *certmanagerv1.CAIssuer, r signer.Request, now time.Time) (pki.Chain, error) {
	template, err := r.Template(pki.Issuance{
		NotBefore:              now,
		CRLDistributionPoints:  spec.CRLDistributionPoints,
		OCSPServers:            spec.OCSPServers,
		IssuingCertificateURLs: spec.IssuingCertificateURLs,
	})
	if err != nil {
		return pki.Chain{}, err
	}
	leaf, err := pki.Sign(template, p.signing(), p.key)
	if err != nil {
		return pki.Chain{}, err
	}
	chain, err := p.chain.Prepend(leaf)
	if err != nil {
		return pki.Chain{}, fmt.Errorf("%w (does the Certificate write the Secret %s that its issuer reads?)", err, p.secret)
	}
	return chain, nil
}

// Probe implements signer.Prober: it checks that the Secret holds a CA.
func (s *Signer) Probe(ctx context.Context, issuer certmanagerv1.GenericIssuer) (signer.Facts, error) {
	spec := issuer.GetSpec().CA
	if spec == nil {
		return signer.Facts{}, fmt.Errorf("issuer %q has no spec.ca", issuer.GetName())
	}
	pair, err := s.pair(ctx, issuer, spec)
	var bad *pairError
	now := s.config.Now()
	switch {
	case err == nil && pair.cannotSign() != "":
		return signer.Facts{}, fault.Pending(certmanagerv1.IssuerReasonErrInvalidKeyPair, "%s", pair.cannotSign())
	case err == nil && now.Before(pair.signing().NotBefore):
		begins := pair.signing().NotBefore
		return signer.Facts{}, fault.After(begins.Sub(now), certmanagerv1.IssuerReasonErrInvalidKeyPair,
			"the CA certificate in Secret %s is not valid before %s: verifiers refuse what it signs until then", pair.secret, begins.UTC().Format(time.RFC3339))
	case err == nil:
		facts := signer.Facts{Ready: true, Reason: certmanagerv1.IssuerReasonKeyPairVerified, Message: pair.verified(now)}
		first := pki.FirstToExpire(pair.authority())
		facts.Authority, facts.NotBefore, facts.NotAfter = signer.AuthorityID(pair.signing()), first.NotBefore, first.NotAfter
		if ends := pair.signing().NotAfter; !now.After(ends) {
			facts.Until = ends.Add(time.Second) // then the message is another one
		}
		older, until := pair.olderRoots(now)
		facts.OlderRoots, facts.Until = older, when.Earliest(facts.Until, until)
		return facts, nil
	case errors.As(err, &bad) && bad.kind == pairUnfit:
		return signer.Facts{}, fault.Pending(certmanagerv1.IssuerReasonErrInvalidKeyPair, "%w", err)
	case errors.As(err, &bad):
		return signer.Facts{}, fault.Pending(certmanagerv1.IssuerReasonErrGetKeyPair, "%w", err)
	default:
		return signer.Facts{}, fmt.Errorf("get the key pair of the CA: %w", err)
	}
}

// Authority implements signer.AuthorityTeller.
func (s *Signer) Authority(ctx context.Context, issuer certmanagerv1.GenericIssuer) ([]*x509.Certificate, error) {
	spec := issuer.GetSpec().CA
	if spec == nil {
		return nil, fmt.Errorf("issuer %q has no spec.ca", issuer.GetName())
	}
	pair, err := s.pair(ctx, issuer, spec)
	if err == nil {
		err = pair.chainErr
	}
	if err != nil {
		return nil, err
	}
	switch deliver, stolen := certmanagerv1.DeliversRoots(issuer), certmanagerv1.ReissuesNow(issuer); {
	case stolen:
		return slices.Concat(pair.authority(), pair.chain.WithoutLinks().Cross), nil
	case deliver: // Sign leaves out what expires soon: a cross certificate does not bound what Sign delivers
		return pair.authority(), nil
	default:
		return slices.Concat(pair.authority(), pair.chain.Cross), nil
	}
}

// cannotSign says why the CA cannot sign, whatever it is asked for; empty if it can.
func (p *keyPair) cannotSign() string {
	switch {
	case p.chainErr != nil:
		return fmt.Sprintf("the CA cannot sign: the CA certificates in Secret %s: %s", p.secret, p.chainErr)
	case p.signing().KeyUsage != 0 && p.signing().KeyUsage&x509.KeyUsageCertSign == 0: // RFC 5280 §4.2.1.3
		return fmt.Sprintf("the CA cannot sign: the certificate in Secret %s has key usages without cert sign: replace it by one that has it", p.secret)
	default:
		return ""
	}
}

// verified is the message of a ready issuer, with a warning if the CA has expired.
func (p *keyPair) verified(now time.Time) string {
	const verified = "Signing CA verified"
	if ends := p.signing().NotAfter; now.After(ends) {
		return fmt.Sprintf("%s, but the certificate in Secret %s expired on %s: renew it", verified, p.secret, ends.UTC().Format(time.RFC3339))
	}
	return verified
}

// pair returns the issuer's key pair: the one of exactly this version of its Secret.
func (s *Signer) pair(ctx context.Context, issuer certmanagerv1.GenericIssuer, spec *certmanagerv1.CAIssuer) (*keyPair, error) {
	namespace := signer.ResourceNamespace(issuer, s.config.ClusterResourceNamespace)
	secret, err := s.config.Secrets.Secret(ctx, namespace, spec.SecretName)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &pairError{kind: pairMissing, err: fmt.Errorf("Secret %s/%s does not exist: create it with the CA's certificate in tls.crt and its key in tls.key", namespace, spec.SecretName)}
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s: %w", namespace, spec.SecretName, err)
	}
	parse := func() (*keyPair, error) { return parsePair(ctx, secret) }
	if secret.UID == "" || secret.ResourceVersion == "" {
		return parse()
	}
	version := strings.Join([]string{namespace, secret.Name, string(secret.UID), secret.ResourceVersion}, "/")
	return s.pairs.For(issuer, sha256.Sum256([]byte(version)), s.config.Now(), parse)
}

// signFault says what Sign's caller should do about an error of pair.
func signFault(err error) error {
	var bad *pairError
	switch {
	case !errors.As(err, &bad):
		return fault.After(readRetry, reasonSecretGetError, "%w", err)
	case bad.kind == pairMissing:
		return fault.Pending(reasonSecretMissing, "%w", err)
	default:
		return fault.Pending(reasonSecretInvalidData, "%w", err)
	}
}
