package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-jose/go-jose/v4"

	"chancery.dev/internal/acme"
)

// newAccountWire is the payload of newAccount (RFC 8555 §7.3).
type newAccountWire struct {
	Contact                []string        `json:"contact,omitempty"`
	TermsOfServiceAgreed   bool            `json:"termsOfServiceAgreed,omitempty"`
	OnlyReturnExisting     bool            `json:"onlyReturnExisting,omitempty"`
	ExternalAccountBinding json.RawMessage `json:"externalAccountBinding,omitempty"`
}

// NewAccount registers the key, or finds the account that it has already (RFC 8555 §7.3, §7.3.1;
// then the contact stays as it was). From then on the Client knows its account URL.
func (c *Client) NewAccount(ctx context.Context, req acme.NewAccountRequest) (*acme.Account, error) {
	return c.newAccount(ctx, ActionRegisterAccount, req.ExternalAccount, newAccountWire{
		Contact:              req.Contact,
		TermsOfServiceAgreed: req.TermsOfServiceAgreed,
	})
}

// LookupAccount finds the account of the key (onlyReturnExisting, RFC 8555 §7.3.1), and from then on the
// Client knows its URL. If there is none, the Problem has CodeAccountDoesNotExist.
func (c *Client) LookupAccount(ctx context.Context) (*acme.Account, error) {
	return c.newAccount(ctx, ActionGetRegistration, nil, newAccountWire{OnlyReturnExisting: true})
}

func (c *Client) newAccount(ctx context.Context, action Action, ext *acme.ExternalAccount, w newAccountWire) (*acme.Account, error) {
	if c.key == nil {
		return nil, ErrNoKey
	}
	dir, err := c.server.fetchDirectory(ctx)
	if err != nil {
		return nil, err
	}
	if ext != nil {
		if w.ExternalAccountBinding, err = c.bind(ext, dir.NewAccount); err != nil {
			return nil, err
		}
	}
	body, err := encode(w)
	if err != nil {
		return nil, err
	}
	r, err := c.post(ctx, call{action: action, url: dir.NewAccount}, func(nonce string) ([]byte, error) {
		return c.key.sign(body, jwsHeader{url: dir.NewAccount, nonce: nonce})
	})
	if err != nil {
		return nil, err
	}
	if r.meta.Location == "" {
		return nil, r.broken(errors.New("newAccount came without the account's Location (§7.3)"))
	}
	account := new(acme.Account)
	if len(r.body) > 0 { // an empty body is an account of which the server says nothing
		if err := r.decode(account); err != nil {
			return nil, err
		}
	}
	account.Meta, account.URL, account.Created = r.meta, r.meta.Location, r.status == http.StatusCreated
	c.server.mu.Lock()
	c.account = account.URL
	c.server.mu.Unlock()
	return account, nil
}

// bind makes the JWS of RFC 8555 §7.3.4: the account's public key under the CA's MAC key.
func (c *Client) bind(ext *acme.ExternalAccount, url string) (json.RawMessage, error) {
	alg := ext.Algorithm
	switch alg {
	case "":
		alg = acme.HS256
	case acme.HS256, acme.HS384, acme.HS512:
	default:
		return nil, fmt.Errorf("acme: external account binding: algorithm %q is not HS256, HS384 or HS512", alg)
	}
	if ext.KeyID == "" || len(ext.Key) == 0 {
		return nil, errors.New("acme: external account binding needs a key ID and a MAC key")
	}
	payload, err := c.key.public.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("acme: external account binding: %w", err)
	}
	opts := &jose.SignerOptions{}
	opts.WithHeader("url", url).WithHeader("kid", ext.KeyID)
	return signJWS(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(alg), Key: ext.Key}, opts, payload)
}

// UpdateContact replaces the account's contact URLs (RFC 8555 §7.3.2); an empty list removes them.
func (c *Client) UpdateContact(ctx context.Context, contact []string) error {
	if contact == nil {
		contact = []string{}
	}
	_, err := c.postKID(ctx, call{action: ActionUpdateRegistration, url: c.AccountURL()}, struct {
		Contact []string `json:"contact"`
	}{contact})
	return err
}
