package venafi

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

const (
	// callsAtOnce and callTimeout bound the calls to one server for the issuers of one namespace. A call is several
	// exchanges.
	callsAtOnce = 8
	callTimeout = 2 * time.Minute
	// tokenAgain is how soon a token is verified again that has ended by our clock, and that the server still takes.
	tokenAgain = 5 * time.Minute
	// zoneAgain is how soon a zone is looked for again that is not there: making one is no event.
	zoneAgain = 5 * time.Minute
)

// Lane implements signer.Remote.
func (s *Signer) Lane(issuer certmanagerv1.GenericIssuer) engine.Lane {
	server := "without a server"
	switch spec := issuer.GetSpec().Venafi; {
	case spec.TPP != nil:
		server = spec.TPP.URL
	case spec.Cloud != nil:
		server = or(spec.Cloud.URL, cloudURL)
	case spec.NGTS != nil:
		server = or(spec.NGTS.URL, ngtsURL)
	}
	namespace := signer.ResourceNamespace(issuer, s.ClusterResourceNamespace)
	return engine.Lane{Name: "Certificate Manager " + server + " for " + namespace, Limit: callsAtOnce, Timeout: callTimeout}
}

// Probe implements signer.Prober: it logs in and looks at the zone.
func (s *Signer) Probe(ctx context.Context, issuer certmanagerv1.GenericIssuer) (signer.Facts, error) {
	if issuer.GetSpec().Venafi == nil {
		return signer.Facts{}, fmt.Errorf("issuer %q has no spec.venafi", issuer.GetName())
	}
	a, err := s.account(ctx, issuer)
	var bad *accessError
	switch {
	case errors.As(err, &bad):
		return signer.Facts{}, fault.Pending(certmanagerv1.IssuerReasonVenafiErrorSetup, "%w", err)
	case err != nil:
		return signer.Facts{}, err
	}
	ends, err := a.verify(ctx)
	if err != nil {
		return signer.Facts{}, probeFault(err)
	}
	if now := s.Now(); !ends.IsZero() && !ends.After(now) {
		ends = now.Add(tokenAgain)
	}
	const reason = certmanagerv1.IssuerReasonVenafiReady
	return signer.Facts{Ready: true, Reason: reason, Message: reason, Until: ends}, nil
}

// probeFault says what an issuer does about a call that did not work out.
func probeFault(err error) error {
	f := &failure{class: classUnavailable, err: err}
	errors.As(err, &f)
	const reason, what = certmanagerv1.IssuerReasonVenafiErrorSetup, "Failed to set up the Certificate Manager issuer: %w"
	switch f.class {
	case classLogin:
		return fault.ClassCredential.After(f.retryAfter, certmanagerv1.IssuerReasonVenafiAuthenticateFailed, what+": correct them, or get a new token", f)
	case classUnavailable:
		return fault.ClassUnavailable.After(f.retryAfter, reason, what+"; retrying with back-off", f)
	case classLimited:
		return fault.ClassRateLimited.After(f.retryAfter, reason, what+"; retrying with back-off", f)
	default:
		return fault.ClassPermanent.After(max(f.retryAfter, zoneAgain), reason, what, f)
	}
}
