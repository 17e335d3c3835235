// Package signer is the interface (port) between requests and issuers.
//
// A Signer turns a Request into a certificate. internal/controller/requests makes a Request from a CertificateRequest
// or a CertificateSigningRequest. The packages below this one are the adapters, one for each type of issuer. This
// package signs nothing: it has only the interfaces, and the code that the adapters share. example_test.go shows how to
// write an adapter, and internal/app/wire.go lists the adapters.
package signer

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/account"
	"chancery.dev/internal/machine/issuer"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
)

// ReasonPending is the reason of a fault while the other side has not issued yet. Without a class, nothing is wrong;
// with a class, something is.
const ReasonPending = "IssuancePending"

// Signer issues certificates for one type of issuer. It keeps nothing that matters: a new Signer does the same. The
// engine and the controllers decide when, how often and where calls are made.
type Signer interface {
	// Sign MUST be idempotent: it is called again until it returns a Bundle or a fault.Terminal. Each call has the same
	// Request, with the Result.Annotations of earlier calls added. The Sign of a Remote MAY block until ctx ends; then
	// it MUST return an error that is no fault.Terminal. A Signer that is no Remote is InLine. After a fault.Pending,
	// the next call waits for an event: a change of the issuer, of a Secret that the issuer names, or of the request.
	// After any other error the class of the fault decides when the call is repeated.
	Sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, r Request) (Result, error)
}

// InLine is an optional ability of a Signer that needs nothing from outside of this process but Secrets, which it
// reads through a cache: its Sign MUST NOT block. One pass approves and signs a CertificateRequest, and stores both in
// one write. Any other Signer is called once the approval is stored.
type InLine interface {
	// NeedsKey reports whether Sign reads the requester's own key, from the Secret that
	// Request.PrivateKeySecretName names.
	NeedsKey() bool
}

// Facts are what a Prober has found.
type Facts = issuer.Facts

// Prober is an optional ability of an Adapter: it checks whether an issuer can be used. Without this ability, an issuer
// can always be used.
type Prober interface {
	// Probe MUST be idempotent, and MUST NOT change the issuer. If the issuer cannot be used, Probe returns a fault.
	// The fault's reason and message become those of the issuer's condition Ready. The fault's class tells whether
	// somebody has to correct something, or the server is away. A fault without a reason is shown to nobody. Any other
	// error says nothing about the issuer. When ctx ends, so does Probe.
	Probe(ctx context.Context, issuer certmanagerv1.GenericIssuer) (Facts, error)
}

// AccountHolder takes the place of a Prober if an issuer needs an account at its server, whose key is in a Secret
// (ACME). internal/machine/account decides what the account needs next, and the controller of issuers does it.
type AccountHolder interface {
	Remote

	// Account looks at the account of an issuer. It reads caches and what the process knows of accounts, and calls
	// nobody else. Its error is as that of Prober.Probe: a fault is a mistake in the spec or its Secrets.
	Account(ctx context.Context, issuer certmanagerv1.GenericIssuer) (Account, error)
	// UsesAccount reports whether the issuer uses the account with that URI, and the server has not lost it. It is quick.
	UsesAccount(issuer types.UID, uri string) bool
	// OnLost makes the AccountHolder call f with each issuer whose account the server has lost. f MUST be quick. Call
	// OnLost at the wiring.
	OnLost(f func(issuer types.NamespacedName))
}

// Account is one look at the account of an issuer.
type Account interface {
	// SetUp is what the look has found. Answered, WasBound and a failure are left to the caller.
	SetUp() account.SetUp
	// Take takes a step that writes no Secret. For a step that asks (account.Step.Asks), it makes the one call, to the
	// server or for the Secrets of solvers, and may block until ctx ends; its error says when the call is repeated, and
	// is no fault.Terminal.
	Take(ctx context.Context, step account.Step) error
	// Secret returns the Secret as it is after a step that writes it; nil if somebody else has taken the step already.
	// Live is the Secret as it is now, and MUST NOT be changed; nil for account.StepCreateKey. Key is a new key.
	Secret(step account.Step, live *corev1.Secret, key crypto.Signer) (*corev1.Secret, error)
}

// AccountFacts are the facts of an issuer whose account has come to rest.
func AccountFacts(s *account.SetUp, say *account.Say, now time.Time) *Facts {
	facts := &Facts{Ready: say.Ready, Reason: say.Reason, Message: say.Message}
	if say.Again > 0 {
		facts.Until = now.Add(say.Again)
	}
	if status := s.Status; status.URI != "" {
		status.LastKeyRotation = say.Last
		facts.ACME = &status
	}
	return facts
}

// Forgetter is an optional ability of an Adapter that keeps something of issuers between calls.
type Forgetter interface {
	// Forget drops what is kept of an issuer that does not exist any more. It MUST be quick.
	Forget(issuer types.UID)
}

// Remote is the ability of an Adapter whose calls leave the process: Sign, Probe and, for steps that ask, Account.Take.
// They run in a lane of the engine, not on a worker, and Sign runs once the request's approval is stored. The calls of
// other Adapters run on a worker.
type Remote interface {
	// Lane returns the lane for the calls of an issuer. The issuer is of the Adapter's type, and Lane reads only its
	// namespace and its spec.
	Lane(issuer certmanagerv1.GenericIssuer) engine.Lane
}

// Orderer takes the place of a Signer if the certificate comes by an object in the cluster, an Order (ACME). It says
// what the Order is like. internal/machine/request decides when an Order is made and what happens to the request.
type Orderer interface {
	// Order returns the Order for a request, without the certificate that it replaces. The same request gets the same
	// Order, with the same name. The error is a fault.Terminal if no Order can be made for the request. The caller
	// verifies the signature of the PKCS#10 request before the Order is made.
	Order(issuer certmanagerv1.GenericIssuer, r Request) (*acmev1.Order, error)
	// Replaces names the certificate that a new Order is to replace (RFC 9773 §5); empty for none. It reads caches.
	Replaces(ctx context.Context, issuer certmanagerv1.GenericIssuer, r Request) (string, error)
}

// Adapter is a Signer or an Orderer for one type of issuer, with any of the optional abilities.
type Adapter any

// RenewalInformer is an optional ability of an Adapter: it asks the CA when a certificate should be renewed (ACME
// Renewal Information, RFC 9773).
type RenewalInformer interface {
	// RenewalInfo asks about the certificate at the head of chain, which is PEM. It
	// leaves the cluster: it MUST NOT be called on a reconcile worker. It returns nil if
	// the CA offers no such information, or the issuer is not to be asked.
	RenewalInfo(ctx context.Context, issuer certmanagerv1.GenericIssuer, chain []byte) (*RenewalInfo, error)
}

// Revoker is an optional ability of an Adapter: it asks the CA to revoke a certificate.
type Revoker interface {
	// Revoke revokes a certificate; a certificate that is revoked already is a success. The call leaves the cluster: it
	// MUST NOT run on a reconcile worker. A fault.Terminal says that the CA refuses: the call is repeated every hour.
	// After any other error the class of the fault decides when the call is repeated.
	Revoke(ctx context.Context, issuer certmanagerv1.GenericIssuer, r Revocation) error
}

// Revocation is which certificate to revoke, and why.
type Revocation struct {
	// Certificate is its DER.
	Certificate []byte
	// Key is its private key, for a CA that does not let the issuer revoke; nil if the key must not be used. Some CAs
	// take the use of the key as proof that others know the key, and then accept the key for no certificate any more.
	Key crypto.Signer
	// Reason is one of those that CAs accept from subscribers (RFC 5280 §5.3.1).
	Reason revocation.Reason
}

// AuthorityTeller is an optional ability of a Signer that signs with a CA certificate of its own: it names the CA
// certificate, so that certificates that another one has signed can be replaced.
type AuthorityTeller interface {
	// Authority returns the certificates that the issuer delivers with what it signs now: first the one that it signs
	// with, or another of the same name and key. It returns an error if the issuer cannot sign. It is cheap when
	// nothing has changed.
	Authority(ctx context.Context, issuer certmanagerv1.GenericIssuer) ([]*x509.Certificate, error)
}

// RootTeller is a Signer that knows the roots that its certificates lead to.
type RootTeller interface {
	// Roots returns the root of the CA, then the older roots that the issuer hands on. It returns a fault if a root is
	// not known. It is cheap when nothing has changed.
	Roots(ctx context.Context, issuer certmanagerv1.GenericIssuer) ([]*x509.Certificate, error)
}

// AuthorityID is a digest of the subject and the key of a CA; see CAIssuerStatus.
func AuthorityID(ca *x509.Certificate) string {
	sum := sha256.Sum256(slices.Concat(ca.RawSubject, ca.RawSubjectPublicKeyInfo))
	return hex.EncodeToString(sum[:])
}

// RenewalInfo is when a CA would renew a certificate (RFC 9773 §4.2).
type RenewalInfo struct {
	// Start and End bound the suggested window.
	Start, End time.Time
	// ExplanationURL is for people; may be empty.
	ExplanationURL string
	// RetryAfter is how long to wait before asking again; zero if the CA did not say.
	RetryAfter time.Duration
}

// Request is a request for a certificate, independent of the kind of object
// that made it.
type Request struct {
	// Source is the object that asks: owner of whatever a Signer creates for it.
	Source metav1.Object
	// SourceKind is "CertificateRequest", "CertificateSigningRequest" or "PodCertificateRequest".
	SourceKind string
	// ResourceNamespace is where the Secrets that the request names are read, and
	// where a Signer creates objects on behalf of the request.
	ResourceNamespace string
	// CSR is a PEM encoded PKCS#10 request (RFC 2986).
	CSR []byte
	// Key is the public key of a request that has no CSR, which only a Signer that is InLine is given; nil otherwise.
	Key crypto.PublicKey
	// Names are the names of the certificate if they are not those of the CSR, which then names nothing; nil otherwise.
	Names *pki.AltNames
	// Duration is the validity asked for; never zero.
	Duration time.Duration
	// IsCA asks for a CA certificate.
	IsCA bool
	// Usages are the key usages asked for; none means what the key is good for (pki.ParseUsages).
	Usages []certmanagerv1.KeyUsage
	// PrivateKeySecretName names the Secret with the requester's own key, which
	// only SelfSigned needs; may be empty.
	PrivateKeySecretName string
	// IssuerName, IssuerKind and IssuerGroup name the issuer with defaults filled in.
	IssuerName, IssuerKind, IssuerGroup string
}

// Refuses returns an error if a certificate that was issued for the request must not be handed out. key is the public
// key of the CSR.
func (r *Request) Refuses(leaf *x509.Certificate, key crypto.PublicKey) error {
	switch {
	case !pki.PublicKeysEqual(leaf.PublicKey, key):
		return errors.New("the certificate's public key is not that of the request")
	case leaf.IsCA && !r.IsCA && r.SourceKind != certmanagerv1.CertificateRequestKind:
		// Whether the requester may have one was asked of those who asked for it only
		// (internal/machine/request).
		return errors.New("it is a CA certificate, which was not asked for")
	default:
		return nil
	}
}

// Template returns the certificate that the request asks for, as a template to sign (spec §3.4). i has the issuer's
// part of it.
func (r *Request) Template(i pki.Issuance) (*x509.Certificate, error) {
	csr, err := pki.KeyAlone(r.Key), error(nil)
	if r.Key == nil {
		csr, err = pki.DecodeCSR(r.CSR)
	}
	if err != nil {
		return nil, err
	}
	// A CertificateSigningRequest's usages are what its spec says and no more (spec §4.4).
	certSign := r.IsCA && r.SourceKind == certmanagerv1.CertificateRequestKind
	if i.Usages, err = pki.ParseUsages(r.Usages, certSign, csr.PublicKey); err != nil {
		return nil, err
	}
	i.Duration, i.IsCA = r.Duration, r.IsCA
	template, err := pki.NewTemplate(csr, i)
	switch {
	case err != nil || r.Names == nil:
		return template, err
	case !pki.NamesNothing(csr):
		return nil, errors.New("the encoded certificate request has names of its own")
	}
	names, err := r.Names.Extension(true)
	if err != nil {
		return nil, err
	}
	template.ExtraExtensions = append(template.ExtraExtensions, names)
	return template, nil
}

// Bundle is an issued certificate.
type Bundle struct {
	// Chain is PEM, leaf first, without a self-signed root.
	Chain []byte
	// CA is the PEM of the topmost known CA certificate, or empty.
	CA []byte
}

// Result is what Sign produced.
type Result struct {
	// Bundle is the issued certificate.
	Bundle Bundle
	// Warning is something the requester should know although the certificate
	// was issued; empty for none. WarningReason is its event reason.
	Warning, WarningReason string
	// Annotations have to be stored on the source object before Sign is called again (Venafi's pickup id), whatever
	// error comes with them; may be nil.
	Annotations map[string]string
}

// Type is a type of issuer: the field of its spec that is set.
type Type string

// The types of issuers.
const (
	TypeACME       Type = "acme"
	TypeCA         Type = "ca"
	TypeSelfSigned Type = "selfSigned"
	TypeVault      Type = "vault"
	TypeVenafi     Type = "venafi"
)

// Types are all types of issuers.
func Types() []Type { return []Type{TypeACME, TypeCA, TypeSelfSigned, TypeVault, TypeVenafi} }

// TypeOf returns the type of an issuer; "" if its spec names none.
func TypeOf(spec *certmanagerv1.IssuerSpec) Type {
	switch {
	case spec.ACME != nil:
		return TypeACME
	case spec.CA != nil:
		return TypeCA
	case spec.SelfSigned != nil:
		return TypeSelfSigned
	case spec.Vault != nil:
		return TypeVault
	case spec.Venafi != nil:
		return TypeVenafi
	default:
		return ""
	}
}

// ResourceNamespace returns where the Secrets that an issuer names are: the
// namespace of an Issuer, or clusterResources for a ClusterIssuer.
func ResourceNamespace(issuer metav1.Object, clusterResources string) string {
	if ns := issuer.GetNamespace(); ns != "" {
		return ns
	}
	return clusterResources
}

// SecretNames lists the Secrets in its resource namespace that an issuer names. A change of one of them wakes the
// issuer and the requests that wait for it.
func SecretNames(spec *certmanagerv1.IssuerSpec) []string {
	var refs []cmmeta.SecretKeySelector
	switch {
	case spec.CA != nil:
		refs = []cmmeta.SecretKeySelector{{Name: spec.CA.SecretName}}
	case spec.ACME != nil:
		refs = acmeSecrets(spec.ACME)
	case spec.Vault != nil:
		refs = vaultSecrets(spec.Vault)
	case spec.Venafi != nil:
		refs = venafiSecrets(spec.Venafi)
	}
	var names []string
	for _, ref := range refs {
		names = append(names, ref.Name)
	}
	return names
}

func vaultSecrets(spec *certmanagerv1.VaultIssuer) []cmmeta.SecretKeySelector {
	refs := named(spec.CABundleSecretRef, spec.ClientCertSecretRef, spec.ClientKeySecretRef, spec.Auth.TokenSecretRef)
	if a := spec.Auth.AppRole; a != nil {
		refs = append(refs, named(&a.SecretRef)...)
	}
	if a := spec.Auth.ClientCertificate; a != nil {
		refs = append(refs, named(&cmmeta.SecretKeySelector{Name: a.SecretName})...)
	}
	if a := spec.Auth.Kubernetes; a != nil {
		refs = append(refs, named(&a.SecretRef)...)
	}
	return refs
}

func venafiSecrets(spec *certmanagerv1.VenafiIssuer) []cmmeta.SecretKeySelector {
	switch {
	case spec.TPP != nil:
		return append([]cmmeta.SecretKeySelector{{Name: spec.TPP.CredentialsRef.Name}}, named(spec.TPP.CABundleSecretRef)...)
	case spec.Cloud != nil:
		return []cmmeta.SecretKeySelector{spec.Cloud.APITokenSecretRef}
	case spec.NGTS != nil:
		return []cmmeta.SecretKeySelector{{Name: spec.NGTS.CredentialsRef.Name}}
	default:
		return nil
	}
}

func acmeSecrets(spec *acmev1.ACMEIssuer) []cmmeta.SecretKeySelector {
	refs := []cmmeta.SecretKeySelector{spec.PrivateKey}
	if eab := spec.ExternalAccountBinding; eab != nil {
		refs = append(refs, eab.KeySecretRef)
	}
	for i := range spec.Solvers {
		refs = append(refs, DNS01Secrets(spec.Solvers[i].DNS01)...)
	}
	return refs
}

// DNS01Secrets lists the entries of Secrets that a DNS-01 solver needs; an empty key means all entries. Only one
// provider is set.
func DNS01Secrets(c *acmev1.DNS01Solver) []cmmeta.SecretKeySelector {
	switch {
	case c == nil:
		return nil
	case c.RFC2136 != nil:
		return named(&c.RFC2136.TSIGSecretSecretRef)
	case c.AcmeDNS != nil:
		return named(&c.AcmeDNS.AccountSecretRef)
	case c.Akamai != nil:
		return named(&c.Akamai.ClientTokenSecretRef, &c.Akamai.ClientSecretSecretRef, &c.Akamai.AccessTokenSecretRef)
	case c.CloudDNS != nil:
		return named(c.CloudDNS.ServiceAccountSecretRef)
	case c.Cloudflare != nil:
		return named(c.Cloudflare.APIKeySecretRef, c.Cloudflare.APITokenSecretRef)
	case c.Route53 != nil:
		return named(c.Route53.AccessKeyIDSecretRef, &c.Route53.SecretAccessKeySecretRef)
	case c.AzureDNS != nil:
		return named(c.AzureDNS.ClientSecretSecretRef)
	case c.DigitalOcean != nil:
		return named(&c.DigitalOcean.TokenSecretRef)
	case c.Webhook != nil:
		return webhookSecrets(c.Webhook)
	case c.Exec != nil && c.Exec.SecretRef != nil: // only the program knows which entries it needs
		return named(&cmmeta.SecretKeySelector{Name: c.Exec.SecretRef.Name})
	default:
		return nil
	}
}

// webhookSecrets are the CA bundle and the client certificate for a webhook that is an HTTPS server.
func webhookSecrets(c *acmev1.WebhookProvider) []cmmeta.SecretKeySelector {
	var refs []cmmeta.SecretKeySelector
	if ref := c.CABundleSecretRef; ref != nil {
		refs = append(refs, cmmeta.SecretKeySelector{Name: ref.Name, Key: ref.KeyOr(cmmeta.TLSCAKey)})
	}
	if ref := c.ClientCertificateSecretRef; ref != nil {
		refs = append(refs, cmmeta.SecretKeySelector{Name: ref.Name, Key: corev1.TLSCertKey},
			cmmeta.SecretKeySelector{Name: ref.Name, Key: corev1.TLSPrivateKeyKey})
	}
	return refs
}

// named returns the references that name a Secret.
func named(optional ...*cmmeta.SecretKeySelector) []cmmeta.SecretKeySelector {
	var refs []cmmeta.SecretKeySelector
	for _, ref := range optional {
		if ref != nil && ref.Name != "" {
			refs = append(refs, *ref)
		}
	}
	return refs
}
