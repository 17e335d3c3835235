// Package pebble runs Pebble, a real ACME server made for testing, inside this process: for tests and for the demo.
//
// The package connects the parts of Pebble as Pebble's own command does, and serves them over TLS on loopback. Options
// has fields for settings that Pebble reads from environment variables. Each Start makes a server with its own roots
// and memory. The package does not break requests: a handler in Options.Wrap can do this.
//
// Pebble has two weaknesses. A second order that replaces the same certificate causes a data race inside Pebble, and
// the race detector reports this race. And Pebble is not fit for high rates: for every order, Pebble scans all
// authorizations that it ever made. So start a new Server for each throughput run.
package pebble

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/letsencrypt/pebble/v2/acme"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"

	"chancery.dev/internal/rig/spent"
)

// Options configure a Server. The zero value is a quick server that validates for real on
// ports 80 and 443 with the system's resolver.
type Options struct {
	// Listen is the TCP address to serve on; "" takes a free port of 127.0.0.1.
	Listen string
	// Names are DNS names that its certificate is good for, beside localhost.
	Names []string
	// DNSServer is the resolver (host:port, asked over TCP) of the validations; "" is the system's.
	DNSServer string
	// HTTPPort and TLSPort are where http-01 and tls-alpn-01 validations connect; 0 means 80 and 443.
	HTTPPort, TLSPort int
	// AlwaysValid skips the validations: each accepted challenge becomes valid.
	AlwaysValid bool
	// MaxSleep is up to how long a validation dawdles, in whole seconds; 0 means not at all.
	MaxSleep time.Duration
	// NonceRejectPercent is how many of the good nonces are refused; 0 to 99.
	NonceRejectPercent int
	// AuthzReusePercent is how often a valid authorization serves a new order; 0 to 100. Pebble rounds up: at 0 it is one
	// in a hundred. A test that needs a new authorization each time orders for another name each time.
	AuthzReusePercent int
	// Profiles are what the directory advertises, by name; nil is one called default. For an order
	// without a profile Pebble picks one at random.
	Profiles map[string]ca.Profile
	// RequireEAB refuses accounts without an external account binding.
	RequireEAB bool
	// EABKeys are MAC keys in unpadded base64url by key ID.
	EABKeys map[string]string
	// Blocklist are domains that no order may name, subdomains included.
	Blocklist []string
	// AlternateRoots is how many more roots there are, each with a chain to offer.
	AlternateRoots int
	// ChainLength is the number of intermediates; 0 means 1.
	ChainLength int
	// RetryAfterAuthz and RetryAfterOrder are in whole seconds, sent with an authorization that
	// is being validated and an order that is processing; 0 sends none.
	RetryAfterAuthz, RetryAfterOrder time.Duration
	// Wrap puts a handler around Pebble's, to watch or to break requests; nil for none.
	Wrap func(http.Handler) http.Handler
	// Log takes Pebble's log; nil discards it.
	Log io.Writer
}

// Server is a running Pebble.
type Server struct {
	// DirectoryURL is where ACME clients start.
	DirectoryURL string
	// TLSBundle is PEM: what a client trusts to talk to this server (an issuer's caBundle).
	TLSBundle []byte

	store *db.MemoryStore
	ca    *ca.CAImpl
	http  *http.Server
	done  chan struct{}
}

// Start serves until ctx ends or Close is called. It listens when it returns.
func Start(ctx context.Context, o Options) (*Server, error) {
	defer spent.On("starting Pebbles", time.Now())
	s := &Server{store: db.NewMemoryStore(), done: make(chan struct{})}
	for id, key := range o.EABKeys {
		if err := s.store.AddExternalAccountKeyByID(id, key); err != nil {
			return nil, fmt.Errorf("pebble: EAB key: %w", err)
		}
	}
	for _, name := range o.Blocklist {
		if err := s.store.AddBlockedDomain(name); err != nil {
			return nil, fmt.Errorf("pebble: blocklist: %w", err)
		}
	}
	handler, err := s.handler(o)
	if err != nil {
		return nil, err
	}
	cert, err := servingCertificate(o.Names)
	if err != nil {
		return nil, err
	}
	s.TLSBundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
	address := o.Listen
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("pebble: %w", err)
	}
	s.DirectoryURL = "https://" + listener.Addr().String() + wfe.DirectoryPath
	s.http = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		// Handshakes that a client gives up are no news.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(s.done)
		_ = s.http.ServeTLS(listener, "", "")
	}()
	context.AfterFunc(ctx, s.Close)
	return s, nil
}

// Deactivate deactivates the account with an address, as its holder does elsewhere or the CA's operator (RFC 8555
// §7.3.6).
func (s *Server) Deactivate(account string) error {
	id := account[strings.LastIndex(account, "/")+1:]
	known := s.store.GetAccountByID(id)
	if known == nil {
		return fmt.Errorf("pebble: there is no account %s", account)
	}
	deactivated := *known
	deactivated.Status = acme.StatusDeactivated
	return s.store.UpdateAccountByID(id, &deactivated)
}

// Close ends the server and its connections. It may be called more than once.
func (s *Server) Close() {
	_ = s.http.Close()
	<-s.done
}

// handler wires Pebble's parts as its command does.
func (s *Server) handler(o Options) (http.Handler, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	logger := log.New(o.Log, "pebble ", log.LstdFlags|log.Lmicroseconds)
	profiles := o.Profiles
	if len(profiles) == 0 {
		profiles = map[string]ca.Profile{"default": {Description: "The default profile"}}
	}
	// ECDSA: keys come at once. 0 intermediates is not a chain that Pebble can build.
	s.ca = ca.New(logger, s.store, "", "ecdsa", o.AlternateRoots, max(o.ChainLength, 1), profiles)
	var front wfe.WebFrontEndImpl
	err := withEnvironment(o.environment(), func() {
		v := va.New(logger, orPort(o.HTTPPort, 80), orPort(o.TLSPort, 443), false, o.DNSServer, s.store)
		front = wfe.New(logger, s.store, v, s.ca, []string{"pebble.letsencrypt.org"}, false, o.RequireEAB,
			seconds(o.RetryAfterAuthz), seconds(o.RetryAfterOrder))
	})
	if err != nil {
		return nil, err
	}
	handler := apart(s.released(front.Handler()))
	if o.Wrap != nil {
		handler = o.Wrap(handler)
	}
	return handler, nil
}

// environment is what Pebble reads while it is built.
func (o Options) environment() map[string]string {
	env := map[string]string{
		"PEBBLE_WFE_NONCEREJECT": strconv.Itoa(o.NonceRejectPercent),
		"PEBBLE_AUTHZREUSE":      strconv.Itoa(o.AuthzReusePercent),
		"PEBBLE_VA_NOSLEEP":      "",
		"PEBBLE_VA_SLEEPTIME":    "",
		"PEBBLE_VA_ALWAYS_VALID": "",
	}
	if o.MaxSleep > 0 {
		env["PEBBLE_VA_SLEEPTIME"] = strconv.Itoa(max(seconds(o.MaxSleep), 1))
	} else {
		env["PEBBLE_VA_NOSLEEP"] = "1"
	}
	if o.AlwaysValid {
		env["PEBBLE_VA_ALWAYS_VALID"] = "1"
	}
	return env
}

func orPort(port, fallback int) int {
	if port == 0 {
		return fallback
	}
	return port
}

func seconds(d time.Duration) int { return int(d / time.Second) }

// Roots are the root certificates that issued chains end in; the default chain's comes first.
func (s *Server) Roots() []*x509.Certificate {
	roots := make([]*x509.Certificate, s.ca.GetNumberOfRootCerts())
	for i := range roots {
		roots[i] = s.ca.GetRootCert(i).Cert
	}
	return roots
}

// RootPool holds all Roots, to verify what was issued.
func (s *Server) RootPool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, root := range s.Roots() {
		pool.AddCert(root)
	}
	return pool
}

// RootsPEM is all Roots in PEM.
func (s *Server) RootsPEM() []byte {
	var out []byte
	for _, root := range s.Roots() {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	}
	return out
}

// HTTPClient trusts this server and nothing else.
func (s *Server) HTTPClient() *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.TLSBundle)
	return &http.Client{Timeout: 90 * time.Second, Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 32,
	}}
}

// SetRenewalInfo makes body, which may be malformed, the renewal information of the
// certificate with the serial number.
func (s *Server) SetRenewalInfo(serial *big.Int, body string) error {
	if body == "" {
		return errors.New("pebble: an empty renewal information would mean the default one")
	}
	return s.store.SetARIResponse(serial, body)
}

// RevokedFor returns the reason (RFC 5280 §5.3.1) that the certificate with the serial number was revoked for;
// false if it was not revoked.
func (s *Server) RevokedFor(serial *big.Int) (reason uint, revoked bool) {
	c := s.store.GetRevokedCertificateBySerial(serial)
	if c == nil || c.Reason == nil {
		return 0, c != nil
	}
	return *c.Reason, true
}

// SetAuthorization makes status that of the authorization with the URL, as if the CA had
// changed its mind (RFC 8555 §7.1.6); false if there is none.
func (s *Server) SetAuthorization(url, status string) bool {
	authz := s.store.GetAuthorizationByID(url[strings.LastIndex(url, "/")+1:])
	if authz == nil {
		return false
	}
	authz.Lock()
	defer authz.Unlock()
	authz.Status = status
	return true
}

// Orders is how many orders the account with the URL has made.
func (s *Server) Orders(accountURL string) int {
	for i := len(accountURL) - 1; i >= 0; i-- {
		if accountURL[i] == '/' {
			return len(s.store.GetOrdersByAccountID(accountURL[i+1:]))
		}
	}
	return 0
}
