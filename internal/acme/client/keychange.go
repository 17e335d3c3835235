package client

import (
	"context"
	"crypto"
	"errors"

	"github.com/go-jose/go-jose/v4"
)

// ErrNoKeyChange says that the server's directory has no keyChange.
var ErrNoKeyChange = errors.New("acme: the server's directory has no keyChange: the account key cannot be replaced")

// RolloverKey replaces the account key at the CA (RFC 8555 §7.3.5). Afterwards this Client's key is
// void: go on with WithKey(newKey, c.AccountURL()). A 409 says that the new key has an account already.
func (c *Client) RolloverKey(ctx context.Context, newKey crypto.Signer) error {
	if c.key == nil {
		return ErrNoKey
	}
	account := c.AccountURL()
	if account == "" {
		return ErrNoAccount
	}
	dir, err := c.server.fetchDirectory(ctx)
	if err != nil {
		return err
	}
	if dir.KeyChange == "" {
		return ErrNoKeyChange
	}
	next, err := newAccountKey(newKey)
	if err != nil {
		return err
	}
	change, err := encode(struct {
		Account string          `json:"account"`
		OldKey  jose.JSONWebKey `json:"oldKey"`
	}{account, c.key.public})
	if err != nil {
		return err
	}
	inner, err := next.sign(change, jwsHeader{url: dir.KeyChange})
	if err != nil {
		return err
	}
	_, err = c.post(ctx, call{action: ActionRolloverKey, url: dir.KeyChange}, func(nonce string) ([]byte, error) {
		return c.key.sign(inner, jwsHeader{url: dir.KeyChange, nonce: nonce, kid: account})
	})
	return err
}
