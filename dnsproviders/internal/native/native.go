// Package native writes records through the APIs of DNS providers, for providers where lego does not keep the whole
// contract of spec §5.9. By this contract a provider adds or removes one value, leaves other values alone, keeps no
// state between calls, and succeeds if there is nothing left to do. Issuers have separate fields for these providers.
//
// Settings hold all input of the package: the package reads no file and no environment variable, unless ambient
// credentials are allowed.
package native

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/solver/dns01/wire"
)

// Writer writes records.
type Writer interface {
	// Present adds the record and leaves other values alone. It is idempotent.
	Present(ctx context.Context, r wire.Record) error
	// CleanUp removes the record with this value, and succeeds if there is none.
	CleanUp(ctx context.Context, r wire.Record) error
}

// Settings are what a provider is told.
type Settings struct {
	// Variables are credentials and settings, by name.
	Variables map[string]string
	// Ambient allows credentials of the machine.
	Ambient bool
	// Getenv looks up the variables of the process; only with Ambient.
	Getenv func(string) string
}

// New returns the Writer of a provider, or nil if there is none by this name.
func New(ctx context.Context, name string, s Settings) (Writer, error) {
	switch name {
	case "route53":
		return newRoute53(ctx, s)
	case "cloudflare":
		return newCloudflare(s)
	case "digitalocean":
		return newDigitalOcean(s)
	case "gcloud":
		return newCloudDNS(ctx, s)
	case "azuredns":
		return newAzure(s)
	}
	return nil, nil //nolint:nilnil // no Writer and no error is an answer: lego has one
}

// StatusError is an answer of an HTTP API that is not success.
type StatusError struct {
	// Code is the HTTP status code.
	Code int
	// RetryAfter is the header of that name.
	RetryAfter string
	// Message is what the API says.
	Message string
}

// Error says the status and what the API says.
func (e StatusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", e.Code, http.StatusText(e.Code), e.Message))
}

func isStatus(err error, code int) bool {
	var status StatusError
	return errors.As(err, &status) && status.Code == code
}

// maxBody bounds an answer, in octets.
const maxBody = limits.DNSProviderBody

// api is an HTTP API that speaks JSON.
type api struct {
	base   string
	header http.Header
	client *http.Client
	// message takes the reason out of an answer that is no success.
	message func(body []byte) string
}

func newAPI(base string, header http.Header, message func([]byte) string) *api {
	return &api{base: base, header: header, client: client(), message: message}
}

// client returns a client on http.DefaultTransport, which judges where it connects to.
func client() *http.Client { return &http.Client{Timeout: 20 * time.Second} }

// with returns the same API with further headers.
func (a *api) with(header http.Header) *api {
	out := *a
	out.header = a.header.Clone()
	maps.Copy(out.header, header)
	return &out
}

// call makes one request. in and out may be nil.
func (a *api) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	address := a.base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return err
	}
	req.Header = a.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "chancery-dns")
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read as far as needed
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return StatusError{resp.StatusCode, resp.Header.Get("Retry-After"), a.message(text)}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the answer of %s is not what its API says: %w", a.base, err)
	}
	return nil
}

// headerValue returns a credential that goes into an HTTP header. One with a line break
// would be quoted by the error of whoever refuses it: it is refused here (spec §5.9).
func headerValue(s Settings, name string) (string, error) {
	value := s.Variables[name]
	if strings.ContainsAny(value, "\r\n\x00") {
		return "", wire.Failed(wire.ClassConfig, "%s has a line break in it: store it without one, as printf does and echo does not", name)
	}
	return value, nil
}

// plain is a name as most APIs want it: without the trailing dot.
func plain(name string) string { return strings.TrimSuffix(name, ".") }

// relative is a name within a zone, both with their dots; "@" for the zone itself.
func relative(fqdn, zone string) string {
	if fqdn == zone {
		return "@"
	}
	return strings.TrimSuffix(fqdn, "."+zone)
}
