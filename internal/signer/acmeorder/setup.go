package acmeorder

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acmeaccount"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/signer"
)

const (
	// lookAgain is how often a missing Secret is looked for beside its events.
	lookAgain = 30 * time.Second
	// refusedAgain is how long a registration rests that the CA has refused for good:
	// what it does not like may also be mended on its side.
	refusedAgain = time.Hour
	registered   = "The ACME account was registered with the ACME server"
)

// letsEncryptV1 are addresses of a protocol that is no more (spec §5.1), with those
// that took their place.
func letsEncryptV1(server string) (string, bool) {
	v2, ok := map[string]string{
		"https://acme-v01.api.letsencrypt.org/directory":     "https://acme-v02.api.letsencrypt.org/directory",
		"https://acme-staging.api.letsencrypt.org/directory": "https://acme-staging-v02.api.letsencrypt.org/directory",
	}[strings.TrimSuffix(server, "/")]
	return v2, ok
}

// setup is one Probe in the making.
type setup struct {
	*Signer

	issuer certmanagerv1.GenericIssuer
	spec   *acmev1.ACMEIssuer
	name   acmeaccount.Issuer
	// namespace is where the issuer's Secrets are.
	namespace string
	now       time.Time
}

// attempt is the last try to register for an issuer.
type attempt struct {
	// inputs are what it was made with: with others it counts for nothing.
	inputs   string
	failures int
	// until is when the next one may be made; failed says how the last one went.
	until  time.Time
	failed *acmeaccount.Refusal
}

// trouble is a step of Probe that did not work out.
type trouble struct {
	reason string
	// again is when to try again beside events; 0 leaves it to events.
	again time.Duration
	err   error
}

// Error returns the message of the condition.
func (t *trouble) Error() string { return t.err.Error() }

// Unwrap returns what happened.
func (t *trouble) Unwrap() error { return t.err }

func troubled(reason string, again time.Duration, format string, args ...any) error {
	return &trouble{reason, again, fmt.Errorf(format, args...)}
}

// Probe implements signer.Prober by spec §5.1: it has the account registered. While the CA is being asked it returns
// a fault.Pending without a reason; Notify calls for the next look.
func (s *Signer) Probe(ctx context.Context, issuer certmanagerv1.GenericIssuer) (signer.Facts, error) {
	u := &setup{
		Signer: s, issuer: issuer, spec: issuer.GetSpec().ACME, now: s.Now(),
		name:      acmeaccount.Issuer{UID: issuer.GetUID(), Namespace: issuer.GetNamespace(), Name: issuer.GetName()},
		namespace: signer.ResourceNamespace(issuer, s.ClusterResourceNamespace),
	}
	if u.spec == nil {
		return signer.Facts{}, fmt.Errorf("issuer %q has no spec.acme", issuer.GetName())
	}
	facts, err := u.run(ctx)
	var t *trouble
	switch {
	case !errors.As(err, &t):
		return facts, err
	case t.again > 0:
		return signer.Facts{}, fault.After(t.again, t.reason, "%w", t.err)
	default:
		return signer.Facts{}, fault.Pending(t.reason, "%w", t.err)
	}
}

func (u *setup) run(ctx context.Context) (signer.Facts, error) {
	if v2, is := letsEncryptV1(u.spec.Server); is {
		return signer.Facts{}, troubled(certmanagerv1.IssuerReasonInvalidConfig, 0,
			"Your ACME server URL is set to a v1 endpoint (%s). You should update the spec.acme.server field to %q", u.spec.Server, v2)
	}
	keys, err := u.accountKeys(ctx)
	if err != nil {
		return signer.Facts{}, err
	}
	if err := u.solverSecrets(ctx); err != nil {
		return signer.Facts{}, err
	}
	account, err := u.open(keys.current)
	if err != nil {
		return signer.Facts{}, err
	}
	if facts, err := u.resolve(account, keys); err != nil {
		return facts, err
	}
	hash, err := keyHash(account.Key())
	if err != nil {
		return signer.Facts{}, err
	}
	unchanged := !keys.fresh && u.unchanged()
	old := u.issuer.GetStatus().ACME
	known := unchanged && old.LastPrivateKeyHash == hash
	if known && account.URL() == "" && !u.wasLost(account) {
		if err := account.Adopt(old.URI, u.spec.Email); err != nil {
			return signer.Facts{}, err
		}
	}
	// An issuer that has had its say leaves the contact alone: one that shares the account may
	// have said something else since, and they would contradict each other for ever. The key may
	// have been replaced meanwhile.
	if said := unchanged && account.URL() == old.URI; !said && !account.Registered(u.spec.Email) {
		if err := u.register(ctx, account); err != nil {
			return signer.Facts{}, err
		}
	}
	if account.URL() == "" {
		return signer.Facts{}, fault.After(time.Second, "", "the ACME server has lost the account again")
	}
	u.forget(u.name.UID)
	u.Accounts.Bind(u.name, account)
	return u.rotate(ctx, account, keys)
}

// wasLost reports whether the CA has forgotten the account while the issuer used it.
func (u *setup) wasLost(account *acmeaccount.Account) bool {
	bound, ok := u.Accounts.Of(u.name.UID)
	return ok && bound == account
}

// open finds the account. Its errors are mistakes in the issuer's spec.
func (u *setup) open(key crypto.Signer) (*acmeaccount.Account, error) {
	server, err := url.Parse(u.spec.Server)
	if err != nil || server.Host == "" {
		return nil, troubled(certmanagerv1.IssuerReasonInvalidURL, 0,
			"spec.acme.server %q is not the address of an ACME directory: use one like https://acme.example.com/directory", u.spec.Server)
	}
	account, err := u.Accounts.Open(u.name.UID, acmeaccount.Server{
		URL: u.spec.Server, CABundle: u.spec.CABundle, SkipTLSVerify: u.spec.SkipTLSVerify,
	}, key)
	if err != nil {
		return nil, troubled(certmanagerv1.IssuerReasonInvalidConfig, 0, "spec.acme: %w", err)
	}
	return account, nil
}

// unchanged reports whether the account was registered before with all that matters beside
// the key (spec §5.1, step 5): then a restart costs the CA nothing.
func (u *setup) unchanged() bool {
	status := u.issuer.GetStatus()
	if status.ACME == nil || status.ACME.URI == "" {
		return false
	}
	server, err := url.Parse(u.spec.Server)
	if err != nil {
		return false
	}
	account, err := url.Parse(status.ACME.URI)
	return err == nil && account.Host == server.Host &&
		status.ACME.LastRegisteredEmail == u.spec.Email &&
		certmanagerv1.HasIssuerCondition(status.Conditions, certmanagerv1.IssuerConditionReady, cmmeta.ConditionTrue)
}

// register has the account registered, in a flight. It returns nil once it is.
func (u *setup) register(ctx context.Context, account *acmeaccount.Account) error {
	binding, version, err := u.externalAccount(ctx)
	if err != nil {
		return err
	}
	a := u.attempt(u.attempts, account.Lane()+" "+u.spec.Email+" "+version)
	if a.failed != nil && u.now.Before(a.until) {
		return u.refused(a)
	}
	if until, reason := account.Parked(); u.now.Before(until) {
		return troubled(certmanagerv1.IssuerReasonErrRegisterACMEAccount, until.Sub(u.now),
			"The ACME server %s asked to be left alone until %s: %s", u.spec.Server, until.UTC().Format(time.RFC3339), reason)
	}
	registration := acmeaccount.Registration{Email: u.spec.Email, ExternalAccount: binding}
	landed, ok := u.Flights.Ask(flight.Call{
		// By issuer: the inputs tell calls for what was the spec apart.
		Key:    flight.Key{Object: u.name.UID, Call: a.inputs},
		Lane:   account.Lane(),
		Run:    func(ctx context.Context) (any, error) { return nil, account.Register(ctx, registration) },
		Landed: func() { u.Notify(u.name) },
	})
	if !ok {
		return fault.Pending("", "the ACME account is being registered with %s", u.spec.Server)
	}
	if landed.Err == nil {
		return nil
	}
	a.missed(landed.Err, u.now)
	return u.refused(a)
}

// missed notes how the try went, and when the next one may be made.
func (a *attempt) missed(err error, now time.Time) {
	a.failed = &acmeaccount.Refusal{Failure: acmeflow.Failure{Class: acmeflow.ErrorUnavailable, Detail: err.Error()}}
	errors.As(err, &a.failed)
	if after := a.failed.RetryAfter; a.failed.Class == acmeflow.ErrorBadNonce && after > 0 {
		a.until = now.Add(after) // nothing has failed
		return
	}
	a.failures++
	wait := acmeflow.Backoff(a.failed.Failure, a.failures, 0)
	if !a.failed.Class.MayPass() {
		wait = refusedAgain
	}
	a.until = now.Add(wait)
}

// attempt returns the last try, or a blank one if the inputs are others. Only the
// worker that has the issuer changes it.
func (u *setup) attempt(of map[types.UID]*attempt, inputs string) *attempt {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := of[u.name.UID]
	if a == nil || a.inputs != inputs {
		a = &attempt{inputs: inputs}
		of[u.name.UID] = a
	}
	return a
}

// refused says how the last try went.
func (u *setup) refused(a *attempt) error {
	reason, what := certmanagerv1.IssuerReasonErrRegisterACMEAccount, "Failed to register ACME account"
	if a.failed.Updating {
		reason, what = certmanagerv1.IssuerReasonErrUpdateACMEAccount, "Failed to update ACME account"
	}
	hint := "; retrying with back-off"
	if !a.failed.Class.MayPass() {
		hint = ": the ACME server refuses it; correct spec.acme, or the account at the ACME server"
	}
	return troubled(reason, max(a.until.Sub(u.now), time.Millisecond), "%s with %s: %s%s", what, u.spec.Server, a.failed.Detail, hint)
}
