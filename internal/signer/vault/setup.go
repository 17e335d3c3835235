package vault

import (
	"context"
	"errors"
	"fmt"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/signer"
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
	session, err := s.session(ctx, issuer)
	if err == nil {
		err = session.verify(ctx)
	}
	var t *trouble
	switch {
	case err == nil:
		return signer.Facts{Ready: true, Reason: certmanagerv1.IssuerReasonVaultVerified, Message: "Vault verified"}, nil
	case errors.As(err, &t):
		return signer.Facts{}, t.fault(certmanagerv1.IssuerReasonVaultError)
	default:
		return signer.Facts{}, err
	}
}

// fault says what follows from the trouble.
func (t *trouble) fault(reason string) error {
	switch t.class {
	case fault.ClassConfiguration:
		return fault.Pending(reason, "%w", t)
	case fault.ClassCredential:
		return fault.ClassCredential.After(0, reason, "%w", t)
	case fault.ClassPermanent:
		return fault.Failed(fault.ClassPermanent, reason, "%w", t)
	default:
		return fault.ClassUnavailable.After(0, reason, "%w", t)
	}
}
