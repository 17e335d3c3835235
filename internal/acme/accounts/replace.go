package accounts

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/account"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/pki"
)

const (
	// askLimit bounds the question whether the key was replaced.
	askLimit = 20 * time.Second
	// whichAgain is how soon the CA is asked again which key it goes by, if it does not ask for more: meanwhile nothing
	// may be signed for the account.
	whichAgain = 30 * time.Second
)

// Uses reports whether the key is the account's.
func (a *Account) Uses(key crypto.Signer) bool {
	return pki.PublicKeysEqual(a.Key().Public(), key.Public())
}

// IsUnknownKey reports whether the CA has said that no account has the key.
func (a *Account) IsUnknownKey(key crypto.Signer) bool {
	fingerprint, err := pki.PublicKeyFingerprint(key.Public())
	a.mu.Lock()
	defer a.mu.Unlock()
	return err == nil && a.machine.IsUnknownKey(fingerprint)
}

// Changing reports whether the key is about to be replaced: until then, this process starts no validation at the CA.
func (a *Account) Changing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.machine.Changing(a.registry.o.Now())
}

// mayAccept notes that the CA is about to be told to validate. The failure says that the answer that is presented
// would not do, now or soon: it contains the thumbprint of the key (RFC 8555 §8.1).
func (a *Account) mayAccept(spec acmev1.ChallengeSpec) *fault.Fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !acmeflow.Outdated(spec, a.client.Thumbprint()) && a.machine.Validate(spec.AuthorizationURL, a.registry.o.Now()) {
		return nil
	}
	return fault.Answered(fault.ClassNotProcessed, "", account.HoldPoll, errors.New("the account's key is being replaced"))
}

// looked takes in how an authorization stands.
func (a *Account) looked(authz acme.Authorization, spec acmev1.ChallengeSpec) {
	over := authz.Status != "pending"
	for _, c := range authz.Challenges {
		over = over || c.URL == spec.URL && c.Status == "invalid"
	}
	if over {
		a.tell(func(m *account.Machine, _ time.Time) { m.Validated(spec.AuthorizationURL) })
	}
}

// checkUnwatched asks the CA about some of the validations that began a while ago and have no known end, and notes
// those that have ended.
func (a *Account) checkUnwatched(ctx context.Context) {
	var urls []string
	a.tell(func(m *account.Machine, now time.Time) { urls = m.Unwatched(parallel, now) })
	for _, url := range urls {
		authz, err := a.current().GetAuthorization(ctx, url)
		switch {
		case err == nil:
			a.looked(*authz, acmev1.ChallengeSpec{AuthorizationURL: url})
		case !faultOf(err).MayPass():
			a.looked(acme.Authorization{}, acmev1.ChallengeSpec{AuthorizationURL: url})
		}
	}
}

// holdValidations returns why the key cannot be replaced yet; nil if it can be. It holds new validations: see
// HoldValidations.
func (a *Account) holdValidations() error {
	var delay *account.Delay
	a.tell(func(m *account.Machine, now time.Time) { delay = m.HoldValidations(now) })
	return later(delay)
}

// later is a try that was not made yet. It is no failure.
func later(d *account.Delay) error {
	if d == nil {
		return nil
	}
	f := fault.Answered(fault.ClassNotProcessed, "", d.Wait, errors.New(d.Why))
	f.Unsent = true
	return f
}

// CanReplace asks whether the CA replaces keys at all. Its error is a fault.
func (a *Account) CanReplace(ctx context.Context) error {
	directory, err := a.current().Directory(ctx)
	if err == nil && directory.KeyChange == "" {
		err = acmeclient.ErrNoKeyChange
	}
	if err != nil {
		return unreplaced(err)
	}
	return nil
}

// unreplaced is why a key was not replaced. It does not park the account: the old key does.
func unreplaced(err error) *fault.Fault {
	if errors.Is(err, acmeclient.ErrNoKeyChange) {
		return fault.Answered(fault.ClassRefused, "", 0, err)
	}
	return faultOf(err)
}

// Replace replaces the account's key at the CA (RFC 8555 §7.3.5). From then on everybody who uses the account uses the
// next key. The caller MUST store the next key before: if the process ends in between, the caller calls Replace again,
// and Replace asks the CA whether it knows that key already. url is the account's, if the caller knows it.
//
// Replace makes no other call fail: it waits until no call is under way and the CA has finished its validations. Of an
// account that this process has not registered yet, Replace only asks the CA which key it knows: if there is no error,
// Uses or IsUnknownKey has the answer. Replace's error is a fault. A fault of fault.ClassNotProcessed means that
// nothing has failed, and says when to try again.
func (a *Account) Replace(ctx context.Context, next crypto.Signer, url string) error {
	release, err := a.turn(ctx)
	if err != nil {
		return err
	}
	defer release()
	if a.Uses(next) {
		return nil
	}
	var asked *account.Delay
	if a.tell(func(m *account.Machine, now time.Time) { asked = m.ParkedFor(now) }); asked != nil {
		return later(asked)
	}
	client, err := a.current().WithKey(next, "")
	if err != nil {
		return unreplaced(err)
	}
	if known := a.URL(); known != "" {
		url = known
	}
	found, err := a.acceptsKey(ctx, client, next, url)
	if err != nil || found || a.URL() == "" {
		return err
	}
	a.checkUnwatched(ctx)
	if err := a.holdValidations(); err != nil {
		return err
	}
	defer a.tell(func(m *account.Machine, _ time.Time) { m.Resume() })
	a.calls.Lock()
	defer a.calls.Unlock()
	return a.change(ctx, client, next)
}

// change makes the request, and finds out what has come of it.
func (a *Account) change(ctx context.Context, client *acmeclient.Client, next crypto.Signer) error {
	url := a.URL()
	if url == "" {
		return later(&account.Delay{Wait: account.HoldPoll, Why: "the ACME server has lost the account: it is registered again"})
	}
	err := a.current().RolloverKey(ctx, next)
	if err == nil {
		return a.become(client, next, url)
	}
	why := unreplaced(err)
	if errors.Is(err, acmeclient.ErrNoKeyChange) {
		return why
	}
	// Whatever the answer is, a 409 included: it may be one to a request that was sent twice, or
	// come from a proxy that has not seen the CA's.
	ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	found, other := a.acceptsKey(ask, client, next, url)
	switch {
	case found:
		return nil
	case fault.IsTerminal(other):
		return other
	case other != nil:
		a.tell(func(m *account.Machine, now time.Time) { m.SetUnsure(true, now) })
		why.Delay = cmp.Or(why.Delay, whichAgain)
	case why.MayPass() && why.Class != fault.ClassRateLimited:
		a.tell(func(m *account.Machine, now time.Time) { m.SetUnsure(false, now) })
	}
	return why
}

// acceptsKey asks whether the CA accepts the next key. If so, the account uses that key from then on.
func (a *Account) acceptsKey(ctx context.Context, client *acmeclient.Client, next crypto.Signer, url string) (bool, error) {
	found, err := client.LookupAccount(ctx)
	if err == nil && url != "" && found.URL != url {
		return false, fault.Failed(fault.ClassRefused, "",
			"the next key belongs to the account %s at the ACME server already, and this one is %s", found.URL, url)
	}
	if err == nil {
		return true, a.become(client, next, found.URL)
	}
	why := unreplaced(err)
	if why.MayPass() && !acme.HasCode(err, acme.CodeAccountDoesNotExist) {
		why.Delay = cmp.Or(why.Delay, whichAgain)
		return false, why
	}
	fingerprint, err := pki.PublicKeyFingerprint(next.Public())
	if err != nil {
		return false, err
	}
	a.tell(func(m *account.Machine, _ time.Time) { m.NoteUnknownKey(fingerprint) })
	return false, nil
}

// become makes the account use the next key. The registry finds the account by both keys: a caller that has read the
// old key a moment ago must not get another account.
func (a *Account) become(client *acmeclient.Client, next crypto.Signer, url string) error {
	client, err := client.WithKey(next, url)
	if err != nil {
		return unreplaced(err)
	}
	a.mu.Lock()
	if !a.registered {
		a.email = "?" // no address
		a.machine.TakenOver(a.registry.o.Now())
	}
	a.key, a.client, a.registered = next, client, true
	a.machine.Replaced()
	a.mu.Unlock()
	id, err := a.id()
	if err != nil {
		return unreplaced(err)
	}
	a.registry.mu.Lock()
	a.registry.accounts[id] = a
	a.registry.mu.Unlock()
	a.registry.tellUsers(a, Bound)
	return nil
}
