package accounts

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/account"
)

// Account is a key at a server. It is safe for concurrent use.
type Account struct {
	registry *Registry
	// server is what it is at; lane is the account's first name, and stays.
	server, lane string
	// registering holds one token while somebody registers, or replaces the key.
	registering chan struct{}
	// calls is held by whoever signs with the key, and for writing while it is replaced.
	calls sync.RWMutex

	mu         sync.Mutex
	key        crypto.Signer
	client     *acmeclient.Client
	registered bool
	email      string
	machine    account.Machine
}

// Lane names the lane of the engine that bounds the calls for the account.
func (a *Account) Lane() string { return a.lane }

// Key is the account's: the one that it was opened with, or the last that took its place.
func (a *Account) Key() crypto.Signer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.key
}

// Thumbprint is that of the account's key (RFC 7638), base64url.
func (a *Account) Thumbprint() string { return a.current().Thumbprint() }

// URL is the account's, once it is registered; else empty.
func (a *Account) URL() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.registered {
		return ""
	}
	return a.client.AccountURL()
}

// Registered reports whether the account is known to be registered with the email.
func (a *Account) Registered(email string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.registered && a.email == email
}

// Parked returns until when this process sends nothing to the CA for the account, and why.
func (a *Account) Parked() (until time.Time, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	park := a.machine.Parked(a.registry.o.Now())
	return park.Until, park.Reason
}

// park is what stays of the account while its CA is to be left alone.
func (a *Account) park() account.Machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.machine.Park()
}

// tell tells the machine of the account.
func (a *Account) tell(f func(m *account.Machine, now time.Time)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.machine, a.registry.o.Now())
}

func (a *Account) current() *acmeclient.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.client
}

// Adopt takes over a registration that an earlier process has made.
func (a *Account) Adopt(url, email string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.registered && a.client.AccountURL() == url {
		a.email = email
		return nil
	}
	client, err := a.client.WithKey(a.key, url)
	if err != nil {
		return err
	}
	a.client, a.registered, a.email = client, true, email
	a.machine.TakenOver(a.registry.o.Now())
	return nil
}

// lose forgets the registration that the client used, because the CA does not know it. One
// that was made since stays.
func (a *Account) lose(used *acmeclient.Client) {
	a.mu.Lock()
	if a.client != used {
		a.mu.Unlock()
		return
	}
	was := a.registered
	if client, err := a.client.WithKey(a.key, ""); err == nil {
		a.client = client
	}
	a.registered = false
	a.mu.Unlock()
	if was {
		a.registry.tellUsers(a, Lost)
	}
}

// extendPark parks the account because of an answer to a call that was sent at that time.
func (a *Account) extendPark(wait time.Duration, sent time.Time, reason string) {
	var parked bool
	a.tell(func(m *account.Machine, now time.Time) { parked = m.ExtendPark(wait, sent, reason, now) })
	if parked {
		a.registry.tellUsers(a, Parked)
	}
}

// served notes that the CA does what it is asked.
func (a *Account) served() { a.tell(func(m *account.Machine, _ time.Time) { m.Served() }) }

// Registration is what an account is registered with.
type Registration struct {
	// Email is the contact; empty for none.
	Email string
	// ExternalAccount binds to an account outside ACME; nil for none.
	ExternalAccount *acme.ExternalAccount
}

// Register registers the key, or finds its account, and updates the contact (RFC 8555 §7.3). Issuers that share the
// account take turns: the first one registers it for all. Register's error is a fault. The reason
// certmanagerv1.IssuerReasonErrUpdateACMEAccount says that the account is registered, but its contact was not updated.
func (a *Account) Register(ctx context.Context, r Registration) error {
	release, err := a.turn(ctx)
	if err != nil {
		return err
	}
	defer release()
	if f := a.parkedFault(); f != nil {
		return f
	}
	var contact []string
	if r.Email != "" {
		contact = []string{"mailto:" + strings.ToLower(r.Email)}
	}
	client, sent := a.current(), a.registry.o.Now()
	if !a.isRegistered() {
		registered, err := client.NewAccount(ctx, acme.NewAccountRequest{
			Contact: contact, TermsOfServiceAgreed: true, ExternalAccount: r.ExternalAccount,
		})
		if isRefusal(err) {
			registered, err = a.known(ctx, client, r, err)
		}
		if err != nil {
			return a.failure(ctx, client, "", sent, err)
		}
		a.served()
		if closed(registered) {
			return fault.Failed(fault.ClassRefused, "", "%w", because{fmt.Errorf("the account %s is %s", registered.URL, registered.Status), ErrClosed})
		}
		a.setRegistered(r.Email, registered.Created || sameContact(registered.Contact, r.Email))
		if !registered.Created {
			a.tell((*account.Machine).TakenOver)
		}
		a.registry.tellUsers(a, Bound)
	}
	if a.Registered(r.Email) {
		return nil
	}
	if err := client.UpdateContact(ctx, contact); err != nil {
		f := a.failure(ctx, client, "", sent, err)
		f.Reason = certmanagerv1.IssuerReasonErrUpdateACMEAccount
		return f
	}
	a.served()
	a.setRegistered(r.Email, true)
	return nil
}

// ErrClosed says that the CA has an account for the key, and does not let it in: it was deactivated, or revoked (RFC
// 8555 §7.1.6).
var ErrClosed = errors.New("the account of this key is closed at the ACME server")

// ErrBinding says that the CA does not take the external account binding (RFC 8555 §7.3.4).
var ErrBinding = errors.New("the ACME server does not take the external account binding")

// because is an error in the words of the CA, with what it means.
type because struct {
	error

	meaning error
}

func (b because) Is(target error) bool { return target == b.meaning }
func (b because) Unwrap() error        { return b.error }

// known asks a CA that has refused a registration for the account of the key. Some CAs take a binding once, and look at
// it before the key, which may have an account (RFC 8555 §7.3.1). Without an account, it says why the CA has refused.
func (a *Account) known(ctx context.Context, c *acmeclient.Client, r Registration, refusal error) (*acme.Account, error) {
	found, failed := c.LookupAccount(ctx)
	switch {
	case failed == nil:
		return found, nil
	case acme.HasCode(failed, acme.CodeUnauthorized):
		return nil, because{failed, ErrClosed}
	case r.ExternalAccount != nil && (acme.HasCode(refusal, acme.CodeUnauthorized) || acme.HasCode(refusal, acme.CodeExternalAccountRequired)):
		return nil, because{refusal, ErrBinding}
	default:
		return nil, refusal
	}
}

// closed reports whether a CA serves an account no more.
func closed(found *acme.Account) bool {
	return found.Status != "" && found.Status != acme.StatusValid
}

// isRefusal reports whether a CA has refused what it was asked, and not how often.
func isRefusal(err error) bool {
	var p *acme.Problem
	return errors.As(err, &p) && p.Status >= http.StatusBadRequest && p.Status < http.StatusInternalServerError &&
		p.Status != http.StatusTooManyRequests && p.Code() != acme.CodeRateLimited
}

// turn waits for those before who register the account or replace its key.
func (a *Account) turn(ctx context.Context) (release func(), err error) {
	select {
	case a.registering <- struct{}{}:
		return func() { <-a.registering }, nil
	case <-ctx.Done():
		return nil, fault.ClassUnavailable.After(0, "", "the ACME server has not answered another call for the same account in time")
	}
}

func (a *Account) isRegistered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.registered
}

// setRegistered notes that the account is registered; with that email, if it is.
func (a *Account) setRegistered(email string, withEmail bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.registered = true
	a.email = "?" // no address
	if withEmail {
		a.email = email
	}
}

func sameContact(contact []string, email string) bool {
	if len(contact) == 0 {
		return email == ""
	}
	return strings.EqualFold(strings.TrimPrefix(contact[0], "mailto:"), email)
}
