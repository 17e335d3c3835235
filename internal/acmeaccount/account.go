package acmeaccount

import (
	"context"
	"crypto"
	"fmt"
	"strings"
	"sync"
	"time"

	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/acmeflow"
)

const (
	// maxPark bounds how long one answer parks a whole account: its Retry-After may be a day. The
	// object that was refused waits that long by itself (acmeflow.Backoff), others need not.
	maxPark = time.Hour
	// firstPark and secondPark are the bounds while only one or two answers in a row say so: others
	// show whether they are meant too.
	firstPark, secondPark = time.Minute, 10 * time.Minute
)

// defaultPark is for a CA that asks for fewer requests and does not say how long: the
// first step of Let's Encrypt's integration guide.
const defaultPark = time.Minute

// Account is a key at a server. It is safe for concurrent use.
type Account struct {
	registry *Registry
	// server is what it is at; lane is the account's first name, and stays.
	server, lane string
	// registering holds one token while somebody registers, or replaces the key.
	registering chan struct{}
	// calls is held by whoever signs with the key, and for writing while it is replaced.
	calls  sync.RWMutex
	limits limits

	mu         sync.Mutex
	key        crypto.Signer
	client     *acmeclient.Client
	registered bool
	email      string
	// since and until are when the account was last parked, and until when.
	since, until time.Time
	reason       string
	// refusals is how many answers in a row have asked for the account to be left alone.
	refusals int
	changing replacement
}

// Lane is what calls for the account are bounded by.
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

// Parked returns until when the CA is to be left alone, and why; zero if it never asked. While
// it is not known which key the CA goes by, it is left alone, too.
func (a *Account) Parked() (until time.Time, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if unsure := a.changing.unsure; unsure.After(a.until) {
		now := a.registry.o.Now()
		if at := now.Add(unsurePark); at.Before(unsure) {
			unsure = at
		}
		if unsure.After(a.until) {
			return unsure, "the account's key is being replaced, and the ACME server has not said yet whether it was"
		}
	}
	return a.until, a.reason
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
	a.changing.since = a.registry.o.Now()
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

// leaveAlone parks the account because of an answer that may be meant for all: everybody
// leaves the CA alone for a while. It only ever extends that; answers to calls that were
// sent before do not.
func (a *Account) leaveAlone(wait time.Duration, sent time.Time, reason string) {
	now := a.registry.o.Now()
	a.mu.Lock()
	later := !sent.Before(a.since)
	if later {
		a.refusals++
		wait = parkFor(wait, a.refusals)
		later = now.Add(wait).After(a.until)
	}
	if later {
		a.since, a.until, a.reason = now, now.Add(wait), reason
	}
	a.mu.Unlock()
	if later {
		a.registry.tellUsers(a, Parked)
	}
}

// served notes that the CA does what it is asked.
func (a *Account) served() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusals = 0
}

// parkFor is how long to leave an account alone after so many refusals in a row.
func parkFor(wait time.Duration, refusals int) time.Duration {
	switch refusals {
	case 1:
		return min(wait, firstPark)
	case 2:
		return min(wait, secondPark)
	default:
		return min(wait, maxPark)
	}
}

// Registration is what an account is registered with.
type Registration struct {
	// Email is the contact; empty for none.
	Email string
	// ExternalAccount binds to an account outside ACME; nil for none.
	ExternalAccount *acme.ExternalAccount
}

// Refusal is why a CA keeps an account unregistered, or its key.
type Refusal struct {
	acmeflow.Failure

	// Updating says that the account is registered and its contact was refused.
	Updating bool
}

// Error returns what the CA said.
func (r *Refusal) Error() string { return r.Detail }

// Register registers the key, or finds its account, and sees to the contact (RFC 8555
// §7.3). Issuers that share the account take turns: the first one registers it for all. Its
// error is a *Refusal.
func (a *Account) Register(ctx context.Context, r Registration) error {
	release, refusal := a.turn(ctx)
	if refusal != nil {
		return refusal
	}
	defer release()
	if f := a.heldBack(); f != nil {
		return &Refusal{Failure: *f}
	}
	var contact []string
	if r.Email != "" {
		contact = []string{"mailto:" + strings.ToLower(r.Email)}
	}
	client, sent := a.current(), a.registry.o.Now()
	if !a.isRegistered() {
		account, err := client.NewAccount(ctx, acme.NewAccountRequest{
			Contact: contact, TermsOfServiceAgreed: true, ExternalAccount: r.ExternalAccount,
		})
		if err != nil {
			return &Refusal{Failure: *a.failure(client, "", sent, err)}
		}
		a.served()
		if account.Status != "" && account.Status != acme.StatusValid {
			return &Refusal{Failure: acmeflow.Failure{Class: acmeflow.ErrorPermanent, Detail: fmt.Sprintf(
				"the account %s is %s at the ACME server: delete the Secret with its key to have a new account made", account.URL, account.Status)}}
		}
		a.settle(r.Email, account.Created || sameContact(account.Contact, r.Email))
		if !account.Created {
			a.usedBefore()
		}
		a.registry.tellUsers(a, Bound)
	}
	if a.Registered(r.Email) {
		return nil
	}
	if _, err := client.UpdateContact(ctx, contact); err != nil {
		return &Refusal{Failure: *a.failure(client, "", sent, err), Updating: true}
	}
	a.served()
	a.settle(r.Email, true)
	return nil
}

// turn waits for those before who register the account or replace its key.
func (a *Account) turn(ctx context.Context) (release func(), refusal error) {
	select {
	case a.registering <- struct{}{}:
		return func() { <-a.registering }, nil
	case <-ctx.Done():
		return nil, &Refusal{Failure: acmeflow.Failure{Class: acmeflow.ErrorUnavailable, Detail: "the ACME server has not answered another issuer with the same account in time"}}
	}
}

func (a *Account) isRegistered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.registered
}

// settle notes that the account is registered; with that email, if it is.
func (a *Account) settle(email string, withEmail bool) {
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
