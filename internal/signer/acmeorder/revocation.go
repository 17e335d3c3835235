package acmeorder

import (
	"context"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/signer"
)

// reasonRevocation is the reason of what Revoke fails with.
const reasonRevocation = "RevocationFailed"

// Revoke implements signer.Revoker (RFC 8555 §7.6).
func (s *Adapter) Revoke(ctx context.Context, issuer certmanagerv1.GenericIssuer, r signer.Revocation) error {
	account, ok := s.Accounts.Of(issuer.GetUID())
	if !ok {
		return fault.After(lookAgain, reasonRevocation, "the ACME account of issuer %q is not at hand: its condition Ready says why", issuer.GetName())
	}
	err := account.Revoke(ctx, r.Certificate, r.Key, codeOf(r.Reason))
	switch f := fault.Of(err); {
	case f == nil:
		return err
	case f.MayPass():
		told := *f
		told.Reason = reasonRevocation
		return &told
	default:
		return fault.Terminal(reasonRevocation, "%w", err)
	}
}

// codeOf is the reason as ACME has it.
func codeOf(r revocation.Reason) acme.Reason {
	switch r {
	case revocation.KeyCompromise:
		return acme.ReasonKeyCompromise
	case revocation.AffiliationChanged:
		return acme.ReasonAffiliationChanged
	case revocation.Superseded:
		return acme.ReasonSuperseded
	case revocation.CessationOfOperation:
		return acme.ReasonCessationOfOperation
	default:
		return acme.ReasonUnspecified
	}
}
