// Package vault signs requests by a PKI engine of HashiCorp Vault, and looks whether an issuer can be used.
//
// All calls block: to Vault, to AWS, and for a service account's token. Who makes them, and when they are repeated, is
// decided elsewhere. The token of a login is kept until its lease is nearly over. What may be asked of a role is
// Vault's policy.
package vault

import (
	"context"
	"errors"
	"fmt"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/signer"
)

// Config is what a Signer needs.
type Config struct {
	// Secrets holds credentials and CA bundles.
	Secrets signer.SecretReader
	// Tokens gives tokens of service accounts.
	Tokens TokenSource
	// Now is the clock.
	Now func() time.Time
	// ClusterResourceNamespace is where the Secrets of ClusterIssuers are.
	ClusterResourceNamespace string
	// AWS says where identities of AWS come from.
	AWS AWSConfig
	// Egress says which addresses the servers of Issuers may have; nil means all.
	Egress *egress.Policy
}

// Signer implements signer.Signer, signer.Prober and signer.Remote for issuers with spec.vault.
type Signer struct {
	Config

	sessions signer.Kept[*session]
}

// New returns a Signer.
func New(c Config) *Signer { return &Signer{Config: c} }

var (
	_ signer.Signer = (*Signer)(nil)
	_ signer.Prober = (*Signer)(nil)
	_ signer.Remote = (*Signer)(nil)
)

// callsAtOnce and callTimeout bound the calls to one server for the issuers of one namespace.
const (
	callsAtOnce = 8
	callTimeout = 30 * time.Second
)

// Lane implements signer.Remote. The issuers of one namespace share a lane to a server: those of others do not wait
// for logins that somebody has made slow.
func (s *Signer) Lane(issuer certmanagerv1.GenericIssuer) engine.Lane {
	namespace := signer.ResourceNamespace(issuer, s.ClusterResourceNamespace)
	return engine.Lane{
		Name: "Vault " + issuer.GetSpec().Vault.Server + " for " + namespace, Limit: callsAtOnce, Timeout: callTimeout,
	}
}

// Probe implements signer.Prober: it looks whether Vault is in order, and logs in.
func (s *Signer) Probe(ctx context.Context, issuer certmanagerv1.GenericIssuer) (signer.Facts, error) {
	if issuer.GetSpec().Vault == nil {
		return signer.Facts{}, fmt.Errorf("issuer %q has no spec.vault", issuer.GetName())
	}
	const reason = certmanagerv1.IssuerReasonVaultError
	say := reasons{missing: reason, login: reason}
	session, err := s.session(ctx, issuer)
	if err != nil {
		return signer.Facts{}, say.of(err)
	}
	if err := session.verify(ctx); err != nil {
		return signer.Facts{}, say.of(err)
	}
	return signer.Facts{Ready: true, Reason: certmanagerv1.IssuerReasonVaultVerified, Message: "Vault verified"}, nil
}

// Sign implements signer.Signer.
func (s *Signer) Sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	spec := issuer.GetSpec().Vault
	if spec == nil {
		return signer.Result{}, fmt.Errorf("issuer %q has no spec.vault", issuer.GetName())
	}
	say := reasonsOf(r.SourceKind)
	order, err := newOrder(spec.Path, r)
	if err != nil {
		return signer.Result{}, fault.Failed(fault.ClassPermanent, say.signing, "%w", err)
	}
	session, err := s.session(ctx, issuer)
	if err != nil {
		return signer.Result{}, say.of(err)
	}
	result, err := order.place(ctx, session)
	return result, say.of(err)
}

// reasons are the words for who is told of a trouble.
type reasons struct{ missing, login, signing string }

// reasonsOf returns the words for a kind of request (spec §3.4, §4.5).
func reasonsOf(kind string) reasons {
	if kind == certmanagerv1.CertificateRequestKind {
		return reasons{missing: "SecretMissing", login: "VaultInitError", signing: "SigningError"}
	}
	return reasons{missing: "SecretNotFound", login: "ErrorVaultInit", signing: "ErrorSigning"}
}

// of makes a trouble the fault that is told. Any other error is returned as it is.
func (r reasons) of(err error) error {
	var t *trouble
	if !errors.As(err, &t) {
		return err
	}
	reason := r.login
	switch t.stage {
	case stageMissing:
		reason = r.missing
	case stageSign:
		reason = r.signing
	case stageLogin:
	}
	return &fault.Fault{Kind: t.kind, Class: t.class, Reason: reason, Delay: t.again, Err: t}
}
