package client

import (
	"context"
	"crypto"
	"fmt"

	"chancery.dev/internal/acme"
)

// AcceptChallenge tells the server that the proof is in place (RFC 8555 §7.5.1: POST {}). It is
// idempotent while the challenge is pending or processing.
func (c *Client) AcceptChallenge(ctx context.Context, url string) (*acme.Challenge, error) {
	return c.postChallenge(ctx, ActionAcceptChallenge, url, struct{}{})
}

// GetChallenge reads a challenge (POST-as-GET).
func (c *Client) GetChallenge(ctx context.Context, url string) (*acme.Challenge, error) {
	return c.postChallenge(ctx, ActionGetChallenge, url, nil)
}

func (c *Client) postChallenge(ctx context.Context, action Action, url string, payload any) (*acme.Challenge, error) {
	r, err := c.postKID(ctx, action, url, payload)
	if err != nil {
		return nil, err
	}
	ch := new(acme.Challenge)
	if err := r.decode(ch); err != nil {
		return nil, err
	}
	ch.Meta, ch.URL = r.meta, url
	return ch, nil
}

// KeyAuthorization is "token.thumbprint" (RFC 8555 §8.1) for the public account key. It fails for a token
// that is not base64url: such a token must not get into a path, a file or a record.
func KeyAuthorization(token string, public crypto.PublicKey) (string, error) {
	sum, err := Thumbprint(public)
	if err != nil {
		return "", err
	}
	return keyAuthorization(token, sum)
}

func keyAuthorization(token, thumbprint string) (string, error) {
	if token == "" || !isBase64URL(token) {
		return "", fmt.Errorf("acme: challenge token %q is not base64url (RFC 8555 §8.3)", acme.Sanitise(token, acme.MaxExcerpt))
	}
	return token + "." + thumbprint, nil
}
