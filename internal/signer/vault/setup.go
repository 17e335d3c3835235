package vault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/signer"
)

const verified = "Vault verified"

// verdict is what a verification has come to.
type verdict struct {
	session *session
	err     error
}

// Setup implements signer.Setupper: it logs in, once for each version of the spec and
// of the Secrets that it names. While Vault is being asked it returns the status as it
// is and a fault.Pending; NotifyIssuer calls for the next look.
func (s *Signer) Setup(ctx context.Context, issuer certmanagerv1.GenericIssuer) (certmanagerv1.IssuerStatus, error) {
	old := *issuer.GetStatus()
	if issuer.GetSpec().Vault == nil {
		return old, fmt.Errorf("issuer %q has no spec.vault", issuer.GetName())
	}
	session, err := s.session(ctx, issuer)
	var t *trouble
	switch {
	case errors.As(err, &t):
		// The next change of the issuer or of the Secret is the event that both wait for.
		return s.notReady(issuer, t), fault.Pending(certmanagerv1.IssuerReasonVaultError, "%w", t)
	case err != nil:
		return old, err
	}
	s.mu.Lock()
	done, last := session.verified, session.check
	s.mu.Unlock()
	switch {
	case done:
		return signer.ReadyStatus(issuer, s.Now(), true, certmanagerv1.IssuerReasonVaultVerified, verified), nil
	case last.failed != nil && s.Now().Before(last.until):
		return s.notReady(issuer, last.failed), fault.After(last.until.Sub(s.Now()), certmanagerv1.IssuerReasonVaultError, "%w", last.failed)
	}
	name := types.NamespacedName{Namespace: issuer.GetNamespace(), Name: issuer.GetName()}
	landed, ok := s.Flights.Ask(flight.Call{
		Key:    flight.Key{Object: issuer.GetUID(), Call: "vault verify"},
		Lane:   session.lane,
		Run:    func(ctx context.Context) (any, error) { return verdict{session, session.verify(ctx)}, nil },
		Landed: func() { s.NotifyIssuer(name) },
	})
	if !ok {
		return old, fault.Pending(certmanagerv1.IssuerReasonVaultError, "Vault %s is being asked", session.server)
	}
	v, ok := landed.Value.(verdict)
	if !ok {
		v = verdict{session, landed.Err}
	}
	if v.session != session {
		return old, fault.After(time.Millisecond, certmanagerv1.IssuerReasonVaultError, "Vault %s is being asked", session.server)
	}
	return s.conclude(issuer, v)
}

// conclude notes what a verification has come to, and says the status.
func (s *Signer) conclude(issuer certmanagerv1.GenericIssuer, v verdict) (certmanagerv1.IssuerStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if v.err == nil {
		v.session.verified = true
		return signer.ReadyStatus(issuer, now, true, certmanagerv1.IssuerReasonVaultVerified, verified), nil
	}
	check := &v.session.check
	check.failed = troubleOf(v.err)
	check.failures++
	wait := check.failed.patience(check.failures)
	check.until = now.Add(wait)
	return s.notReady(issuer, check.failed), fault.After(wait, certmanagerv1.IssuerReasonVaultError, "%w", check.failed)
}

func (s *Signer) notReady(issuer certmanagerv1.GenericIssuer, t *trouble) certmanagerv1.IssuerStatus {
	return signer.ReadyStatus(issuer, s.Now(), false, certmanagerv1.IssuerReasonVaultError, t.Error())
}
