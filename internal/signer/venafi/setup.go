package venafi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/signer"
)

// How long an issuer waits that could not be set up. Its Secret's next change is an
// event beside that.
const (
	firstSetupRetry, lastSetupRetry = 5 * time.Second, 5 * time.Minute
)

// standing is what is known of an account.
type standing struct {
	verified bool
	// until is when to look again: the end of a token, or of a wait. Zero for never.
	until    time.Time
	failures int
	failed   *failure
}

// doubt has the account verified again.
func (a *account) doubt() {
	a.mu.Lock()
	a.standing.verified, a.standing.until = false, time.Time{}
	a.mu.Unlock()
}

// Setup implements signer.Setupper: it logs in and looks at the zone, in a flight.
// Meanwhile it returns the status as it is and a fault.Pending; NotifyIssuer calls for
// the next look. What was verified is not verified again until the credentials
// change, end, or are refused.
func (s *Signer) Setup(ctx context.Context, issuer certmanagerv1.GenericIssuer) (certmanagerv1.IssuerStatus, error) {
	if issuer.GetSpec().Venafi == nil {
		return *issuer.GetStatus(), fmt.Errorf("issuer %q has no spec.venafi", issuer.GetName())
	}
	now := s.Now()
	a, err := s.account(ctx, issuer)
	var bad *accessError
	switch {
	case errors.As(err, &bad):
		const reason = certmanagerv1.IssuerReasonVenafiErrorSetup
		return signer.ReadyStatus(issuer, now, false, reason, err.Error()), fault.After(lookAgain, reason, "%w", err)
	case err != nil:
		// An API server that is away says nothing about the issuer: what was true stays.
		return *issuer.GetStatus(), err
	}
	a.mu.Lock()
	known := a.standing
	a.mu.Unlock()
	if known.until.IsZero() && known.verified || now.Before(known.until) {
		return known.status(issuer, now)
	}
	name := types.NamespacedName{Namespace: issuer.GetNamespace(), Name: issuer.GetName()}
	landed, ok := s.ask(issuer.GetUID(), "verify "+a.digest, a, func(ctx context.Context) (any, error) {
		return a.verify(ctx)
	}, func() { s.NotifyIssuer(name) })
	if !ok {
		return *issuer.GetStatus(), fault.Pending(certmanagerv1.IssuerReasonVenafiErrorSetup, "%s is being asked for zone %q", a.server, a.zone)
	}
	expires, _ := landed.Value.(time.Time)
	known = known.after(landed.Err, expires, now)
	a.mu.Lock()
	a.standing = known
	a.mu.Unlock()
	return known.status(issuer, now)
}

// after returns the standing after a verification.
func (k standing) after(err error, expires, now time.Time) standing {
	if err == nil {
		if !expires.IsZero() && !expires.After(now) {
			expires = now.Add(lastSetupRetry) // the clocks differ: the server takes the token
		}
		return standing{verified: true, until: expires}
	}
	k.failed = &failure{class: classUnavailable, err: err}
	errors.As(err, &k.failed)
	k.verified = false
	k.failures++
	wait := min(firstSetupRetry<<min(k.failures-1, 10), lastSetupRetry)
	k.until = now.Add(max(wait, k.failed.retryAfter))
	return k
}

// status returns the status for what is known, and when to look again.
func (k standing) status(issuer certmanagerv1.GenericIssuer, now time.Time) (certmanagerv1.IssuerStatus, error) {
	if k.verified {
		const reason = certmanagerv1.IssuerReasonVenafiReady
		status := signer.ReadyStatus(issuer, now, true, reason, reason)
		if k.until.IsZero() {
			return status, nil
		}
		return status, fault.After(k.until.Sub(now), reason, "the access token ends at %s", k.until.UTC().Format(time.RFC3339))
	}
	reason, hint := certmanagerv1.IssuerReasonVenafiErrorSetup, ""
	switch k.failed.class {
	case classLogin:
		reason = certmanagerv1.IssuerReasonVenafiAuthenticateFailed
		hint = ": correct them, or get a new token"
	case classUnavailable, classLimited:
		hint = "; retrying with back-off"
		if readyNow(issuer) {
			// What was verified for this generation still is, for all that is known.
			return *issuer.GetStatus(), fault.After(k.until.Sub(now), reason, "%w", k.failed)
		}
	default:
	}
	message := fmt.Sprintf("Failed to set up the Certificate Manager issuer: %s%s", k.failed, hint)
	return signer.ReadyStatus(issuer, now, false, reason, message), fault.After(k.until.Sub(now), reason, "%s", message)
}

func readyNow(issuer certmanagerv1.GenericIssuer) bool {
	c := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	return c != nil && c.Status == cmmeta.ConditionTrue && c.ObservedGeneration == issuer.GetGeneration()
}
