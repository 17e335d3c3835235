package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
)

// directoryAge is how long a directory is used: CAs add and remove profiles while we run.
const directoryAge = time.Hour

// maxProfiles bounds how many profiles a directory may list.
const maxProfiles = limits.Profiles

// directoryCache holds the directory and the one fetch under way.
type directoryCache struct {
	url     string
	current *acme.Directory
	fetched time.Time
	flight  *directoryFlight
}

// directoryFlight is a fetch that others wait for; err and dir are set when done closes.
type directoryFlight struct {
	done chan struct{}
	dir  *acme.Directory
	err  error
	// cancelled says that the fetcher's own context ended, which says nothing to the others.
	cancelled bool
}

// Directory returns the server's directory, fetched on first use and once an hour. It is shared:
// do not change it. While a refresh fails the old one serves on.
func (c *Client) Directory(ctx context.Context) (*acme.Directory, error) {
	return c.server.fetchDirectory(ctx)
}

// KnownDirectory returns the directory that was fetched last, without asking the server;
// nil if none was. It is shared: do not change it.
func (c *Client) KnownDirectory() *acme.Directory {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.server.directory.current
}

func (s *server) fetchDirectory(ctx context.Context) (*acme.Directory, error) {
	d := &s.directory
	for {
		s.mu.Lock()
		if d.current != nil && s.now().Sub(d.fetched) < directoryAge {
			defer s.mu.Unlock()
			return d.current, nil
		}
		flight := d.flight
		if flight == nil {
			flight = &directoryFlight{done: make(chan struct{})}
			d.flight = flight
			s.mu.Unlock()
			s.fetchForAll(ctx, flight)
			return flight.dir, flight.err
		}
		s.mu.Unlock()
		select {
		case <-flight.done:
		case <-ctx.Done():
			return nil, &TransportError{Method: "GET", URL: d.url, Err: ctx.Err()}
		}
		if !flight.cancelled {
			return flight.dir, flight.err
		}
	}
}

// fetchForAll fetches the directory for everyone who waits on flight.
func (s *server) fetchForAll(ctx context.Context, flight *directoryFlight) {
	d := &s.directory
	dir, err := s.requestDirectory(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
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

// isElsewhere reports a status that says that what was asked for is not there: it is not that of a server out of order.
func isElsewhere(status int) bool {
	return status >= http.StatusMultipleChoices && status < http.StatusInternalServerError && status != http.StatusTooManyRequests
}

func (s *server) requestDirectory(ctx context.Context) (_ *acme.Directory, err error) {
	defer fault.Contain(&err) // others wait for what comes of it
	defer func() {
		if err != nil && !s.https {
			err = fmt.Errorf("%w; the address begins with http://, and ACME servers have https:// (RFC 8555 §6.1)", err)
		}
	}()
	const question = ": is this the URL of an ACME v2 directory?"
	r, err := s.get(ctx, ActionDiscover, s.directory.url)
	if page := (*HTTPError)(nil); errors.As(err, &page) && isElsewhere(page.Status) {
		return nil, fmt.Errorf("%w"+question, err)
	}
	if err != nil {
		return nil, err
	}
	dir := new(acme.Directory)
	if err := r.decode(dir); err != nil {
		return nil, fmt.Errorf("%w"+question, err)
	}
	for _, u := range []*string{&dir.NewNonce, &dir.NewAccount, &dir.NewOrder, &dir.RevokeCert,
		&dir.KeyChange, &dir.RenewalInfo} {
		*u = r.absolute(*u)
	}
	if dir.NewNonce == "" || dir.NewAccount == "" || dir.NewOrder == "" {
		return nil, r.broken(errors.New("the directory lacks newNonce, newAccount or newOrder (§7.1.1)" + question))
	}
	if len(dir.Meta.Profiles) > maxProfiles {
		return nil, r.tooLarge("the directory lists more than %d profiles", maxProfiles)
	}
	return dir, nil
}
