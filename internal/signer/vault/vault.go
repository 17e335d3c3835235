// Package vault lets a PKI secrets engine of HashiCorp Vault sign certificate requests. The package also checks whether
// a Vault issuer can be used.
//
// All calls block: the calls to Vault, to AWS, and for a service account's token. internal/engine decides when the
// package calls and when it repeats a call. A Vault token from a login is kept until its lease is nearly over. Vault's
// policies, not this package, decide what a request may ask of a role.
package vault

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/signer"
)

// Config is what a Signer needs.
type Config struct {
	// Secrets holds credentials and CA bundles.
	Secrets credential.Reader
	// Token returns a token of a service account that is good for some minutes and for the audiences alone.
	Token func(ctx context.Context, serviceAccount types.NamespacedName, audiences []string) (string, error)
	// Own reports whether a service account is the controller's own.
	Own func(ctx context.Context, serviceAccount types.NamespacedName) (bool, error)
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
func New(c Config) *Signer {
	return &Signer{Config: c, sessions: signer.Kept[*session]{
		Size: (*session).size,
		Drop: func(s *session) { s.http.CloseIdleConnections() },
	}}
}

// Forget implements signer.Forgetter.
func (s *Signer) Forget(issuer types.UID) { s.sessions.Forget(issuer) }

var (
	_ signer.Signer = (*Signer)(nil)
	_ signer.Prober = (*Signer)(nil)
	_ signer.Remote = (*Signer)(nil)

	_ signer.Forgetter = (*Signer)(nil)
)

// callsAtOnce and callTimeout bound the calls to one server for the issuers of one namespace.
const (
	callsAtOnce = 8
	callTimeout = 30 * time.Second
)

// Lane implements signer.Remote. The issuers of one namespace share a lane to a server, so that a slow login delays
// no other namespace.
func (s *Signer) Lane(issuer certmanagerv1.GenericIssuer) engine.Lane {
	namespace := signer.ResourceNamespace(issuer, s.ClusterResourceNamespace)
	return engine.Lane{
		Name: "Vault " + issuer.GetSpec().Vault.Server + " for " + namespace, Limit: callsAtOnce, Timeout: callTimeout,
		Bytes: 2 * limits.OneCall,
	}
}

// Probe implements signer.Prober: it looks whether Vault is in order, and logs in.
func (s *Signer) Probe(ctx context.Context, issuer certmanagerv1.GenericIssuer) (signer.Facts, error) {
	if issuer.GetSpec().Vault == nil {
		return signer.Facts{}, fmt.Errorf("issuer %q has no spec.vault", issuer.GetName())
	}
	session, err := s.session(ctx, issuer)
	if err == nil {
		err = session.verify(ctx)
	}
	if err != nil {
		return signer.Facts{}, told(err, certmanagerv1.IssuerKind)
	}
	return signer.Facts{Ready: true, Reason: certmanagerv1.IssuerReasonVaultVerified, Message: "Vault verified", LeftOut: session.leftOut}, nil
}

// Sign implements signer.Signer.
func (s *Signer) Sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	spec := issuer.GetSpec().Vault
	if spec == nil {
		return signer.Result{}, fmt.Errorf("issuer %q has no spec.vault", issuer.GetName())
	}
	order, err := newOrder(spec.Path, r)
	if err != nil {
		return signer.Result{}, told(rejected("%w", err), r.SourceKind)
	}
	session, err := s.session(ctx, issuer)
	if err != nil {
		return signer.Result{}, told(err, r.SourceKind)
	}
	result, err := order.place(ctx, session)
	return result, told(err, r.SourceKind)
}
