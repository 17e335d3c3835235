package client

import (
	"crypto"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// libraryToken ends every User-Agent, as RFC 8555 §6.1 asks of libraries.
const libraryToken = "chancery-acme/1"

// Options say which server a Client talks to, as whom, and over what.
type Options struct {
	// DirectoryURL is where the server's directory is (RFC 8555 §7.1.1). Required.
	DirectoryURL string
	// HTTPClient sends the requests; nil means NewHTTPClient with its defaults. Its redirect policy is replaced.
	HTTPClient *http.Client
	// UserAgent names the program (RFC 8555 §6.1); the library's own token is appended.
	UserAgent string
	// Key is the account key: RSA, ECDSA P-256, P-384, P-521 or Ed25519. Without one, only
	// the directory and renewal information can be read.
	Key crypto.Signer
	// Observe is told about every HTTP request once it is over; nil is told nothing. It must
	// be quick and safe for concurrent use.
	Observe func(Observation)
	// Now is the clock for durations, for the age of the directory and for a Retry-After
	// date that comes without a Date; nil means time.Now.
	Now func() time.Time
}

// ErrNoKey says that a signed request needs an account key and the Client has none.
var ErrNoKey = errors.New("acme: the client has no account key")

// ErrNoAccount says that the account URL is unknown: NewAccount or LookupAccount comes first.
var ErrNoAccount = errors.New("acme: the client has no account URL yet: register or look up the account first")

// Client talks to one ACME server for one account. It is safe for concurrent use.
type Client struct {
	server *server
	key    *accountKey
	// account is the URL of the account; server.mu guards it.
	account string
}

// server is what all accounts at one ACME server share: connections, directory, nonces.
type server struct {
	http      *http.Client
	userAgent string
	observe   func(Observation)
	now       func() time.Time
	https     bool

	// closed says that no connection is kept once its request is over.
	closed atomic.Bool

	mu        sync.Mutex
	directory directoryCache
	nonces    noncePool
}

// New makes a Client. It sends nothing: the directory is fetched by the first call that needs it.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.DirectoryURL)
	if err != nil {
		return nil, fmt.Errorf("acme: directory URL: %w", err)
	}
	if (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return nil, fmt.Errorf("acme: directory URL %q is not an absolute http or https URL", o.DirectoryURL)
	}
	s := &server{
		userAgent: strings.TrimSpace(o.UserAgent + " " + libraryToken),
		observe:   o.Observe,
		now:       o.Now,
		https:     u.Scheme == "https",
		directory: directoryCache{url: o.DirectoryURL},
	}
	if s.now == nil {
		s.now = time.Now
	}
	base := o.HTTPClient
	if base == nil {
		if base, err = NewHTTPClient(HTTPOptions{}); err != nil {
			return nil, err
		}
	}
	s.http = s.withRedirectPolicy(base)
	c := &Client{server: s}
	if o.Key == nil {
		return c, nil
	}
	return c.WithKey(o.Key, "")
}

// WithKey returns a Client for another key at the same server, sharing connections, directory and nonces. The account
// URL may be empty if it is not known yet. After a key rollover it takes the place of the old Client.
func (c *Client) WithKey(key crypto.Signer, accountURL string) (*Client, error) {
	k, err := newAccountKey(key)
	if err != nil {
		return nil, err
	}
	return &Client{server: c.server, key: k, account: accountURL}, nil
}

// Close closes the connections to the server, which all its Clients share: those without a request now, the others
// after their requests. A Client can be used all the same.
func (c *Client) Close() {
	c.server.closed.Store(true)
	c.server.http.CloseIdleConnections()
}

// AccountURL is the account's URL, the "kid" of RFC 8555 §6.2; empty while unknown.
func (c *Client) AccountURL() string {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.account
}

// Thumbprint is the RFC 7638 thumbprint of the account key, base64url; empty without a key.
func (c *Client) Thumbprint() string {
	if c.key == nil {
		return ""
	}
	return c.key.thumbprint
}
