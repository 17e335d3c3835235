package accounts

import (
	"context"
	"crypto"
	"errors"
	"net/http"

	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/fault"
)

// Revoke asks the CA to revoke a certificate (DER; RFC 8555 §7.6). A certificate that is revoked already is a success.
// If the CA does not let the account revoke the certificate, Revoke signs with the certificate's own key, unless key is
// nil. While the account is parked, Revoke sends nothing. Its error is a fault.
func (a *Account) Revoke(ctx context.Context, cert []byte, key crypto.Signer, reason acme.Reason) error {
	a.calls.RLock()
	defer a.calls.RUnlock()
	if f := a.parkedFault(); f != nil {
		f.Unsent = true
		return f
	}
	c, sent := a.current(), a.registry.o.Now()
	err := c.RevokeCertificate(ctx, cert, reason)
	if key != nil && acme.ProblemOf(err) != nil && acmeclient.StatusOf(err) == http.StatusForbidden {
		if byKey := c.RevokeCertificateByKey(ctx, cert, key, reason); !refuses(byKey) {
			err = byKey
		}
	}
	switch {
	case err == nil, acme.HasCode(err, acme.CodeAlreadyRevoked):
		a.served()
		return nil
	case errors.Is(err, acmeclient.ErrNoRevocation):
		return fault.Failed(fault.ClassRefused, "", "%w", err)
	default:
		return a.failure(ctx, c, "", sent, err)
	}
}

// refuses reports whether the CA has said no.
func refuses(err error) bool {
	return acme.ProblemOf(err) != nil && !acme.HasCode(err, acme.CodeAlreadyRevoked) && !faultOf(err).MayPass()
}
