// Package accounts keeps the ACME accounts that this process uses, and makes the calls that need an account.
//
// An account is one key at one server. A hundred issuers with the same key at the same server share one Account, with
// its connections, nonces and registration. When the CA asks the client to wait, the package parks the whole account:
// for that time, it sends no calls for this account. Some steps of Orders and Challenges call the CA, so they need an
// account. internal/machine/order and internal/machine/challenge decide these steps, and this package executes them.
//
// The package writes nothing to Kubernetes and retries nothing. internal/machine/order and internal/machine/challenge
// decide what follows from an outcome. internal/controller/issuers makes an issuer's account key, and
// registers the account by internal/signer/acmeorder, which calls this package.
package accounts

import (
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cmmeta "chancery.dev/api/meta/v1"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/pki"
)

// Server is an ACME server and how to trust it.
type Server struct {
	// URL of the directory (RFC 8555 §7.1.1).
	URL string
	// CABundle is PEM that replaces the system's roots; may be empty.
	CABundle []byte
	// SkipTLSVerify accepts any certificate.
	SkipTLSVerify bool
	// Tenant says that a namespaced Issuer names the server: Options.Egress holds for its connections, so
	// they are not those of ClusterIssuers.
	Tenant bool
}

func (s Server) id() string {
	trust := sha256.Sum256(s.CABundle)
	return fmt.Sprint(s.URL, " ", hex.EncodeToString(trust[:]), " ", s.SkipTLSVerify, " ", s.Tenant)
}

// Issuer is an issuer that uses an account.
type Issuer struct {
	// UID, Namespace (empty for a ClusterIssuer) and Name are the issuer's.
	UID             types.UID
	Namespace, Name string
}

// Change says what has happened to an issuer's account.
type Change int

const (
	// Bound: the issuer has an account to use now, or has it again.
	Bound Change = iota + 1
	// Parked: the CA has asked for the account to be left alone.
	Parked
	// Lost: the CA does not know the account any more; it has to be registered again.
	Lost
	// Released: the issuer is gone.
	Released
)

const (
	// maxHosts bounds how many servers Options.Observe is told by name: users who may create issuers can invent any
	// number. All others share the name otherHost.
	maxHosts  = 100
	otherHost = "other"
)

// Options configure a Registry.
type Options struct {
	// UserAgent names the program to CAs (RFC 8555 §6.1).
	UserAgent string
	// Observe is told about every request; may be nil.
	Observe func(acmeclient.Observation)
	// Now is the clock.
	Now func() time.Time
	// HTTPClient makes the connections; nil means acme.NewHTTPClient.
	HTTPClient func(acmeclient.HTTPOptions) (*http.Client, error)
	// Egress says which addresses the servers of tenants may have; nil means all.
	Egress *egress.Policy
}

// Registry holds the accounts. It is safe for concurrent use.
type Registry struct {
	o Options

	mu       sync.Mutex
	servers  map[string]*acmeclient.Client
	accounts map[string]*Account
	bindings map[types.UID]binding
	// opened is the account that each issuer has opened last, registered or not.
	opened map[types.UID]*Account
	// parks are those of accounts that no issuer uses any more.
	parks    parks
	watchers []func(Issuer, Change)
	// told are the hosts of servers that Options.Observe is told by their own names.
	told map[string]bool
}

type binding struct {
	issuer  Issuer
	account *Account
}

// New returns an empty Registry.
func New(o Options) *Registry {
	if o.HTTPClient == nil {
		o.HTTPClient = acmeclient.NewHTTPClient
	}
	return &Registry{
		o: o, servers: map[string]*acmeclient.Client{}, accounts: map[string]*Account{}, bindings: map[types.UID]binding{},
		opened: map[types.UID]*Account{}, parks: parks{}, told: map[string]bool{},
	}
}

// Watch makes the Registry call f whenever the account of an issuer changes. f MUST be quick. Call Watch before every
// other method.
func (r *Registry) Watch(f func(Issuer, Change)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, f)
}

// Open returns the account of a key at a server. The key may also be an old one of the account, which this process has
// replaced. The Registry keeps the account for the issuer until the issuer opens another account or is released. Open
// sends nothing. Its error says what is wrong with the server's address, its trust, or the key.
func (r *Registry) Open(issuer types.UID, server Server, key crypto.Signer) (*Account, error) {
	fingerprint, err := pki.PublicKeyFingerprint(key.Public())
	if err != nil {
		return nil, err
	}
	id := idOf(server.id(), fingerprint)
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.accounts[id]; a != nil {
		r.opened[issuer] = a
		return a, nil
	}
	base, err := r.server(server)
	if err != nil {
		return nil, err
	}
	client, err := base.WithKey(key, "")
	if err != nil {
		return nil, err
	}
	a := &Account{
		registry: r, server: server.id(), lane: id, key: key, client: client, registering: make(chan struct{}, 1), machine: r.parks.take(id),
	}
	r.accounts[id], r.opened[issuer] = a, a
	r.prune()
	return a, nil
}

func idOf(server string, fingerprint [sha256.Size]byte) string {
	return server + " " + hex.EncodeToString(fingerprint[:])
}

// id is what the registry knows the account by.
func (a *Account) id() (string, error) {
	fingerprint, err := pki.PublicKeyFingerprint(a.Key().Public())
	return idOf(a.server, fingerprint), err
}

// server returns what all accounts at a server share.
func (r *Registry) server(s Server) (*acmeclient.Client, error) {
	if c := r.servers[s.id()]; c != nil {
		return c, nil
	}
	options := acmeclient.HTTPOptions{CABundle: s.CABundle, InsecureSkipVerify: s.SkipTLSVerify}
	if s.Tenant {
		options.Egress = r.o.Egress
	}
	transport, err := r.o.HTTPClient(options)
	if err != nil {
		return nil, err
	}
	c, err := acmeclient.New(acmeclient.Options{
		DirectoryURL: s.URL, HTTPClient: transport, UserAgent: r.o.UserAgent, Observe: r.observer(s.URL), Now: r.o.Now,
	})
	if err != nil {
		return nil, err
	}
	r.servers[s.id()] = c
	return c, nil
}

// observer tells of requests under the host of the server's directory: a server has few names
// for people, whatever the addresses are that it gives to its resources.
func (r *Registry) observer(directory string) func(acmeclient.Observation) {
	u, err := url.Parse(directory)
	if err != nil || r.o.Observe == nil {
		return r.o.Observe
	}
	host := u.Host
	if !r.told[host] && len(r.told) >= maxHosts {
		host = otherHost
	}
	r.told[host] = true
	return func(o acmeclient.Observation) {
		o.Host = host
		r.o.Observe(o)
	}
}

// Bind makes an issuer use an account from now on.
func (r *Registry) Bind(issuer Issuer, a *Account) {
	r.mu.Lock()
	old, had := r.bindings[issuer.UID]
	r.bindings[issuer.UID] = binding{issuer, a}
	if id, err := a.id(); err == nil {
		r.accounts[id] = a
	}
	if had && old.account != a {
		r.prune()
	}
	r.mu.Unlock()
	if !had || old.account != a {
		r.tell([]Issuer{issuer}, Bound)
	}
}

// Of returns the account that an issuer uses, if it is at hand.
func (r *Registry) Of(issuer types.UID) (*Account, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.bindings[issuer]
	return b.account, ok
}

// Waits lists the issuers whose account is parked.
func (r *Registry) Waits() (out []engine.Wait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.bindings {
		if until, why := b.account.Parked(); r.o.Now().Before(until) {
			wait := engine.Wait{
				Kind: cmmeta.DefaultIssuerKind, Namespace: b.issuer.Namespace, Name: b.issuer.Name,
				For: engine.For{What: engine.WaitPark, Detail: why}, Lane: b.account.Lane(), Until: until,
			}
			if b.issuer.Namespace == "" {
				wait.Kind = cmmeta.ClusterIssuerKind
			}
			out = append(out, wait)
		}
	}
	return out
}

// Release forgets an issuer that is gone.
func (r *Registry) Release(issuer Issuer) {
	r.mu.Lock()
	delete(r.bindings, issuer.UID)
	delete(r.opened, issuer.UID)
	r.prune()
	r.mu.Unlock()
	r.tell([]Issuer{issuer}, Released)
}

// prune forgets the accounts that no issuer uses, and the servers without accounts, whose connections are closed. Of a
// parked account the park is kept until it ends: an issuer that is deleted and created again must not evade it.
func (r *Registry) prune() {
	used, servers, now := map[*Account]bool{}, map[string]bool{}, r.o.Now()
	for _, b := range r.bindings {
		used[b.account] = true
	}
	for _, a := range r.opened {
		used[a] = true
	}
	maps.DeleteFunc(r.accounts, func(id string, a *Account) bool {
		if used[a] {
			servers[a.server] = true
			return false
		}
		if until, _ := a.Parked(); now.Before(until) {
			r.parks.put(id, a.park(), now)
		}
		return true
	})
	maps.DeleteFunc(r.servers, func(id string, c *acmeclient.Client) bool {
		if !servers[id] {
			c.Close()
		}
		return !servers[id]
	})
}

// tellUsers tells everybody who uses an account.
func (r *Registry) tellUsers(a *Account, c Change) {
	r.mu.Lock()
	var users []Issuer
	for _, b := range r.bindings {
		if b.account == a {
			users = append(users, b.issuer)
		}
	}
	r.mu.Unlock()
	r.tell(users, c)
}

func (r *Registry) tell(issuers []Issuer, c Change) {
	r.mu.Lock()
	watchers := slices.Clone(r.watchers)
	r.mu.Unlock()
	for _, f := range watchers {
		for _, i := range issuers {
			f(i, c)
		}
	}
}

// String names the issuer as people do.
func (i Issuer) String() string {
	if i.Namespace == "" {
		return fmt.Sprintf("ClusterIssuer %q", i.Name)
	}
	return fmt.Sprintf("Issuer %q in namespace %q", i.Name, i.Namespace)
}
