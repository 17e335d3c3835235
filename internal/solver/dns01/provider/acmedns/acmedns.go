// Package acmedns writes challenge records into an acme-dns server, which is a DNS server for challenges only. A CNAME
// leads from _acme-challenge of a domain to this server.
//
// It registers no account. The server keeps the last two values of an account, whoever has sent them. So the package
// cleans nothing up. If the self checks do not find a value, the package sends the value again.
package acmedns

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/limit"
)

const (
	// timeout bounds a request.
	timeout = 20 * time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = limits.ShortBody
	// kept is how many values of an account the server keeps.
	kept = 2
	// maxKnown bounds the accounts whose values are remembered.
	maxKnown = 10_000
)

// Client reaches acme-dns servers. New makes one. It is safe for concurrent use.
type Client struct {
	http      *http.Client
	userAgent string
	limits    *limit.Limits

	mu sync.Mutex
	// known are the last values of each account. If the newest value is sent again, the server forgets the other one.
	known map[string][]string
}

// New makes a Client. Without an http.Client, it uses one of its own with a time limit; without limits, there are none.
func New(client *http.Client, userAgent string, limits *limit.Limits) *Client {
	if client == nil {
		client = (*egress.Policy)(nil).Client(timeout, maxAnswer)
	}
	direct := *client
	// Requests carry the account's password, which is for the server of the configuration alone.
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{http: &direct, userAgent: userAgent, limits: limits, known: map[string][]string{}}
}

// Within returns a separate Client like c that connects only to addresses that a Policy permits.
func (c *Client) Within(p *egress.Policy) *Client {
	return New(p.Client(timeout, maxAnswer), c.userAgent, c.limits)
}

// registration is an entry of the Secret, as acme-dns clients store it.
type registration struct {
	Username   string `json:"username"`
	Password   string `json:"password"`
	FullDomain string `json:"fulldomain"`
	Subdomain  string `json:"subdomain"`
}

// Provider implements dns01.Provider.
type Provider struct {
	client   *Client
	base     *url.URL
	accounts map[string]registration
	source   string
	// call identifies a server and a Secret's content for the limits.
	call limit.Call
}

var _ dns01.Provider = (*Provider)(nil)

// Provider makes a Provider of the API's configuration. namespace is where the Secret is.
func (c *Client) Provider(ctx context.Context, config *acmev1.AcmeDNSProvider, namespace string, secrets credential.Reader) (*Provider, error) {
	host := config.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	base, err := url.Parse(host)
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" {
		return nil, fault.Terminal(dns01.ReasonInvalidConfig, "acmeDNS: host %q is not the address of a server: write https://host", config.Host)
	}
	ref := config.AccountSecretRef
	p := &Provider{client: c, base: base, source: fmt.Sprintf("Secret %s/%s, entry %q", namespace, ref.Name, ref.Key)}
	text, err := credential.Value(ctx, secrets, namespace, ref.Name, ref.Key)
	if err != nil {
		return nil, fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "acmeDNS: %w", err)
	}
	if err := json.Unmarshal([]byte(text), &p.accounts); err != nil {
		// Not the decoder's words: they may quote a password.
		return nil, fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "acmeDNS: %s is not a JSON object of accounts by domain", p.source)
	}
	for domain, account := range p.accounts {
		if key := pki.DNSNameKey(domain); key != domain {
			delete(p.accounts, domain)
			p.accounts[key] = account
		}
	}
	p.call.Provider = "acmeDNS at " + base.Redacted()
	p.call.Key, err = limit.KeyOf("acmeDNS", base.String(), text)
	return p, err
}

// Present sends the value to the account of the domain.
func (p *Provider) Present(ctx context.Context, r dns01.Record) error {
	domain := pki.DNSNameKey(r.Domain)
	a, ok := p.accounts[domain]
	if !ok {
		return fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "acmeDNS: %s has no account for %q: register one and add it", p.source, domain)
	}
	key := p.base.String() + " " + a.Subdomain
	if !r.Missed && p.client.knows(key, r.Value) { // another cluster may have pushed out what is missed
		return nil
	}
	call := p.call
	call.ID = key + " " + r.Value
	if err := p.client.limits.Do(ctx, call, func() error { return p.update(ctx, a, r.Value) }); err != nil {
		return err
	}
	p.client.remember(key, r.Value)
	return nil
}

// CleanUp does nothing: the server drops old values by itself.
func (*Provider) CleanUp(context.Context, dns01.Record) error { return nil }

func (p *Provider) update(ctx context.Context, a registration, value string) error {
	body, err := json.Marshal(map[string]string{"subdomain": a.Subdomain, "txt": value})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base.JoinPath("update").String(), bytes.NewReader(body))
	if err != nil {
		return fault.Terminal(dns01.ReasonInvalidConfig, "acmeDNS: host %q cannot be asked", p.base.Redacted())
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": p.client.userAgent, "X-Api-User": a.Username, "X-Api-Key": a.Password,
	} {
		if strings.ContainsAny(value, "\r\n") {
			return fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "acmeDNS: the account in %s has a line break in it", p.source)
		}
		req.Header.Set(name, value)
	}
	resp, err := p.client.http.Do(req)
	if err != nil {
		return fault.ClassUnavailable.After(0, dns01.ReasonUnreachable, "acmeDNS: updating at %s: %s", p.base.Redacted(), egress.Cause(err))
	}
	defer func() { _ = resp.Body.Close() }() // read as far as needed
	// Read, so that the connection can be used again; never echoed.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.After(dns01.MendPeriod, dns01.ReasonRefused, "acmeDNS: %s does not accept the account %q of %s (status %d): "+
			"is its password right, and does its allowfrom let this controller in?", p.base.Redacted(), a.Subdomain, p.source, resp.StatusCode)
	}
	var class fault.Class // none, if another account may work
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		class = fault.ClassRateLimited
	case resp.StatusCode/100 == 5:
		class = fault.ClassUnavailable
	}
	return class.After(dns01.MendPeriod, dns01.ReasonRefused, "acmeDNS: %s refuses the update of %q: status %d %s",
		p.base.Redacted(), a.Subdomain, resp.StatusCode, http.StatusText(resp.StatusCode))
}

func (c *Client) knows(key, value string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.known[key], value)
}

func (c *Client) remember(key, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxKnown {
		clear(c.known) // costs at most one update more for each account
	}
	values := append(slices.DeleteFunc(c.known[key], func(v string) bool { return v == value }), value)
	c.known[key] = values[max(0, len(values)-kept):]
}
