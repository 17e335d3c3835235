package acme

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"chancery.dev/internal/fault"
)

// directoryAge is how long a directory is used: CAs add and remove profiles while we run.
const directoryAge = time.Hour

// maxProfiles bounds how many profiles a directory may list.
const maxProfiles = 100

// ErrProfilesUnsupported says that the server's directory advertises no profiles at all. The
// text is that of spec §5.2.
var ErrProfilesUnsupported = errors.New("acme: certificate authority does not support profiles")

// ErrProfileUnknown says that the server advertises profiles, but not this one; errors.Is
// finds it in what CheckProfile returns.
var ErrProfileUnknown = errors.New("acme: certificate authority does not advertise a profile with name")

// Directory lists a server's resources (RFC 8555 §7.1.1).
type Directory struct {
	// NewNonce is where nonces come from (§7.2).
	NewNonce string `json:"newNonce"`
	// NewAccount registers (§7.3).
	NewAccount string `json:"newAccount"`
	// NewOrder applies for a certificate (§7.4).
	NewOrder string `json:"newOrder"`
	// NewAuthz authorizes ahead of an order (§7.4.1); few servers have it.
	NewAuthz string `json:"newAuthz,omitempty"`
	// RevokeCert revokes (§7.6).
	RevokeCert string `json:"revokeCert"`
	// KeyChange replaces the account key (§7.3.5).
	KeyChange string `json:"keyChange"`
	// RenewalInfo is the base of renewal information URLs (RFC 9773 §4.1); "" without ARI.
	RenewalInfo string `json:"renewalInfo,omitempty"`
	// Meta is about the server.
	Meta DirectoryMeta `json:"meta"`
}

// DirectoryMeta is the directory's "meta" object (RFC 8555 §7.1.1).
type DirectoryMeta struct {
	// TermsOfService is the URL of the terms.
	TermsOfService string `json:"termsOfService,omitempty"`
	// Website is about the server.
	Website string `json:"website,omitempty"`
	// ExternalAccountRequired says that newAccount needs a binding (§7.3.4).
	ExternalAccountRequired bool `json:"externalAccountRequired,omitempty"`
	// Profiles are names with descriptions (draft-ietf-acme-profiles §3).
	Profiles map[string]string `json:"profiles,omitempty"`
}

// CheckProfile tells whether an order may name the profile: nil for an advertised one or "",
// else ErrProfilesUnsupported or an error that is ErrProfileUnknown.
func (d *Directory) CheckProfile(name string) error {
	if name == "" {
		return nil
	}
	if len(d.Meta.Profiles) == 0 {
		return ErrProfilesUnsupported
	}
	if _, ok := d.Meta.Profiles[name]; !ok {
		return fmt.Errorf("%w %s", ErrProfileUnknown, name)
	}
	return nil
}

// directoryCache holds the directory and the one fetch under way.
type directoryCache struct {
	url     string
	mu      sync.Mutex
	current *Directory
	fetched time.Time
	flight  *directoryFlight
}

// directoryFlight is a fetch that others wait for; err and dir are set when done closes.
type directoryFlight struct {
	done chan struct{}
	dir  *Directory
	err  error
	// cancelled says that the fetcher's own context ended, which says nothing to the others.
	cancelled bool
}

// Directory returns the server's directory, fetched on first use and once an hour. It is shared:
// do not change it. While a refresh fails the old one serves on.
func (c *Client) Directory(ctx context.Context) (*Directory, error) {
	return c.server.fetchDirectory(ctx)
}

// KnownDirectory returns the directory that was fetched last, without asking the server;
// nil if none was. It is shared: do not change it.
func (c *Client) KnownDirectory() *Directory {
	d := &c.server.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current
}

func (s *server) fetchDirectory(ctx context.Context) (*Directory, error) {
	d := &s.directory
	for {
		d.mu.Lock()
		if d.current != nil && s.now().Sub(d.fetched) < directoryAge {
			defer d.mu.Unlock()
			return d.current, nil
		}
		flight := d.flight
		if flight == nil {
			flight = &directoryFlight{done: make(chan struct{})}
			d.flight = flight
			d.mu.Unlock()
			s.flyDirectory(ctx, flight)
			return flight.dir, flight.err
		}
		d.mu.Unlock()
		select {
		case <-flight.done:
		case <-ctx.Done():
			return nil, &TransportError{Action: ActionDiscover, Method: "GET", URL: d.url, Err: ctx.Err()}
		}
		if !flight.cancelled {
			return flight.dir, flight.err
		}
	}
}

// flyDirectory fetches for everyone who waits on flight.
func (s *server) flyDirectory(ctx context.Context, flight *directoryFlight) {
	d := &s.directory
	dir, err := s.requestDirectory(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	defer close(flight.done)
	d.flight = nil
	if err != nil && d.current != nil && ctx.Err() == nil {
		dir, err = d.current, nil
	}
	if err == nil {
		d.current, d.fetched = dir, s.now()
	}
	flight.dir, flight.err, flight.cancelled = dir, err, err != nil && ctx.Err() != nil
}

func (s *server) requestDirectory(ctx context.Context) (_ *Directory, err error) {
	defer fault.Contain(&err) // others wait for what comes of it
	r, err := s.get(ctx, ActionDiscover, s.directory.url)
	if err != nil {
		return nil, err
	}
	dir := new(Directory)
	if err := r.decode(dir); err != nil {
		return nil, err
	}
	for _, u := range []*string{&dir.NewNonce, &dir.NewAccount, &dir.NewOrder, &dir.NewAuthz,
		&dir.RevokeCert, &dir.KeyChange, &dir.RenewalInfo} {
		*u = r.absolute(*u)
	}
	if dir.NewNonce == "" || dir.NewAccount == "" || dir.NewOrder == "" {
		return nil, r.broken(errors.New("the directory lacks newNonce, newAccount or newOrder (§7.1.1): is this the URL of an ACME v2 directory?"))
	}
	if len(dir.Meta.Profiles) > maxProfiles {
		return nil, r.tooLarge("the directory lists more than %d profiles", maxProfiles)
	}
	return dir, nil
}
