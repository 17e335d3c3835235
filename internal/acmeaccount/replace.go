package acmeaccount

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/pki"
)

const (
	// validationLimit is how long a CA is given for a validation that it was told to make: what
	// takes longer does not keep the key from being replaced.
	validationLimit = 10 * time.Minute
	// lookedFor is how long whoever has begun a validation is expected to look for its end.
	lookedFor = 5 * time.Second
	// strangersLimit is the same for those that an earlier process may have begun.
	strangersLimit = time.Minute
	// holdLimit is how long no validation is begun after a try to replace the key: tries follow
	// each other sooner than that, and who makes them may be gone.
	holdLimit = 15 * time.Second
	// quietAgain is when to look again whether the validations under way are over.
	quietAgain = time.Second
	// lateLimit is how long after it was sent a request may still reach the CA.
	lateLimit = 10 * time.Second
	// unsurePark is how far ahead the account is parked while the CA has not said which key it
	// goes by; unsureLimit is how long that may go on.
	unsurePark, unsureLimit = 2 * time.Second, time.Hour
	// askLimit bounds the question whether the key was replaced.
	askLimit = 20 * time.Second
)

// replacement is what an account knows of the replacement of its key.
type replacement struct {
	// since is when this process has taken over an account that others have used.
	since time.Time
	// validating are the authorizations that the CA was told to validate, and when.
	validating map[string]time.Time
	// held is until when none is added; unsure until when nothing is signed, because the CA may
	// go by either key.
	held, unsure time.Time
	// denied is the key that the CA has said not to know.
	denied crypto.PublicKey
}

// Uses reports whether the key is the account's.
func (a *Account) Uses(key crypto.Signer) bool {
	return pki.PublicKeysEqual(a.Key().Public(), key.Public())
}

// Denies reports whether the CA has said that no account has the key.
func (a *Account) Denies(key crypto.Signer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changing.denied != nil && pki.PublicKeysEqual(a.changing.denied, key.Public())
}

// Changing reports whether the key is about to be replaced: until it is, the CA is told to
// validate nothing.
func (a *Account) Changing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.registry.o.Now().Before(a.changing.held)
}

// usedBefore notes that others have used the account.
func (a *Account) usedBefore() {
	a.mu.Lock()
	a.changing.since = a.registry.o.Now()
	a.mu.Unlock()
}

// mayAccept notes that the CA is about to be told to validate. The failure says that the
// answer that is presented would not do, now or soon: it contains the thumbprint of the key
// (RFC 8555 §8.1).
func (a *Account) mayAccept(spec acmev1.ChallengeSpec) *acmeflow.Failure {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.registry.o.Now()
	if now.Before(a.changing.held) || acmeflow.Outdated(spec, a.client.Thumbprint()) {
		return &acmeflow.Failure{Class: acmeflow.ErrorBadNonce, Detail: "the account's key is being replaced", RetryAfter: quietAgain}
	}
	if a.changing.validating == nil {
		a.changing.validating = map[string]time.Time{}
	}
	a.changing.validating[spec.AuthorizationURL] = now
	return nil
}

// looked takes in how an authorization stands.
func (a *Account) looked(authz acme.Authorization, spec acmev1.ChallengeSpec) {
	over := authz.Status != "pending"
	for _, c := range authz.Challenges {
		over = over || c.URL == spec.URL && c.Status == "invalid"
	}
	if over {
		a.mu.Lock()
		delete(a.changing.validating, spec.AuthorizationURL)
		a.mu.Unlock()
	}
}

// lookAfter looks at some of the validations that nobody has told the end of for a while: who
// began one may be gone.
func (a *Account) lookAfter(ctx context.Context) {
	a.mu.Lock()
	var urls []string
	for url, began := range a.changing.validating {
		if a.registry.o.Now().Sub(began) >= lookedFor && len(urls) < parallel {
			urls = append(urls, url)
		}
	}
	a.mu.Unlock()
	for _, url := range urls {
		authz, err := a.current().GetAuthorization(ctx, url)
		switch {
		case err == nil:
			a.looked(*authz, acmev1.ChallengeSpec{AuthorizationURL: url})
		case !classOf(err).MayPass():
			a.looked(acme.Authorization{}, acmev1.ChallengeSpec{AuthorizationURL: url})
		}
	}
}

// quiet has no validation begin from now on, and says which ones are not over.
func (a *Account) quiet() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.registry.o.Now()
	if wait := a.changing.since.Add(strangersLimit).Sub(now); wait > 0 {
		return later(wait, "it waits until validations are over that may have been under way when this controller started")
	}
	a.changing.held = now.Add(holdLimit)
	for url, began := range a.changing.validating {
		if now.Sub(began) >= validationLimit {
			delete(a.changing.validating, url)
		}
	}
	if n := len(a.changing.validating); n > 0 {
		return later(quietAgain, "it waits for the ACME server to finish what it is validating")
	}
	return nil
}

// later is a try that was not made yet. It is no failure.
func later(wait time.Duration, why string) error {
	return &Refusal{Failure: acmeflow.Failure{Class: acmeflow.ErrorBadNonce, Detail: why, RetryAfter: wait}}
}

// resume lets validations begin again.
func (a *Account) resume() {
	a.mu.Lock()
	a.changing.held = time.Time{}
	a.mu.Unlock()
}

// CanReplace asks whether the CA replaces keys at all. Its error is a *Refusal.
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
func unreplaced(err error) *Refusal {
	f := acmeflow.Failure{Class: classOf(err), Detail: err.Error(), RetryAfter: acmeclient.RetryAfter(err)}
	if errors.Is(err, acmeclient.ErrNoKeyChange) {
		f.Class = acmeflow.ErrorPermanent
	}
	return &Refusal{Failure: f}
}

// Replace has the CA go by another key (RFC 8555 §7.3.5), and uses it from then on, for
// everybody who uses the account. The next key MUST be stored before: whoever is cut short
// calls Replace again, which asks the CA whether it goes by that key already. The url is the
// account's, if the caller knows it.
//
// It makes sure that nothing fails for it: no other call is under way meanwhile, and the CA
// has finished what it is validating. An account that this process has not registered yet is
// only asked about: without an error, Uses or Denies has the answer. Its error is a *Refusal;
// one of the class ErrorBadNonce says that nothing has failed, and when to try again.
func (a *Account) Replace(ctx context.Context, next crypto.Signer, url string) error {
	release, refusal := a.turn(ctx)
	if refusal != nil {
		return refusal
	}
	defer release()
	if a.Uses(next) {
		return nil
	}
	if wait := a.asked(); wait > 0 {
		return later(wait, "the ACME server has asked to be left alone")
	}
	client, err := a.current().WithKey(next, "")
	if err != nil {
		return unreplaced(err)
	}
	if known := a.URL(); known != "" {
		url = known
	}
	found, err := a.goesBy(ctx, client, next, url)
	if err != nil || found || a.URL() == "" {
		return err
	}
	a.lookAfter(ctx)
	if err := a.quiet(); err != nil {
		return err
	}
	defer a.resume()
	a.calls.Lock()
	defer a.calls.Unlock()
	return a.change(ctx, client, next)
}

// asked is how long the CA has asked to be left alone.
func (a *Account) asked() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.until.Sub(a.registry.o.Now())
}

// change makes the request, and finds out what has come of it.
func (a *Account) change(ctx context.Context, client *acmeclient.Client, next crypto.Signer) error {
	url := a.URL()
	if url == "" {
		return later(quietAgain, "the ACME server has lost the account: it is registered again")
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
	found, refusal := a.goesBy(ask, client, next, url)
	var other *Refusal
	switch {
	case found:
		return nil
	case errors.As(refusal, &other) && !other.Class.MayPass():
		return other
	case refusal != nil:
		a.doubt(unsureLimit)
	case why.Class.MayPass() && why.Class != acmeflow.ErrorRateLimited:
		a.doubt(lateLimit)
	}
	return why
}

// goesBy asks whether the CA goes by the next key, and follows it if it does.
func (a *Account) goesBy(ctx context.Context, client *acmeclient.Client, next crypto.Signer, url string) (bool, error) {
	account, err := client.LookupAccount(ctx)
	if err == nil && url != "" && account.URL != url {
		return false, &Refusal{Failure: acmeflow.Failure{Class: acmeflow.ErrorPermanent, Detail: fmt.Sprintf(
			"the next key belongs to the account %s at the ACME server already, and this one is %s", account.URL, url)}}
	}
	if err == nil {
		return true, a.become(client, next, account.URL)
	}
	why := unreplaced(err)
	if why.Class.MayPass() && !acme.HasCode(err, acme.CodeAccountDoesNotExist) {
		return false, why
	}
	a.mu.Lock()
	a.changing.denied, a.changing.unsure = next.Public(), time.Time{}
	a.mu.Unlock()
	return false, nil
}

// doubt has nothing signed for a while.
func (a *Account) doubt(d time.Duration) {
	a.mu.Lock()
	a.changing.unsure = a.registry.o.Now().Add(d)
	a.mu.Unlock()
}

// become has the account use the next key. The registry finds it by both: who has read the
// old one a moment ago must not have another account made for it.
func (a *Account) become(client *acmeclient.Client, next crypto.Signer, url string) error {
	client, err := client.WithKey(next, url)
	if err != nil {
		return unreplaced(err)
	}
	a.mu.Lock()
	if !a.registered {
		a.email = "?" // no address
		a.changing.since = a.registry.o.Now()
	}
	a.key, a.client, a.registered = next, client, true
	a.changing.unsure, a.changing.held = time.Time{}, time.Time{}
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
