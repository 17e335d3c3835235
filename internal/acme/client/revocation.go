package client

import (
	"context"
	"crypto"
	"encoding/base64"
	"errors"

	"chancery.dev/internal/acme"
)

// ErrNoRevocation says that a server offers no revocation at all.
var ErrNoRevocation = errors.New("acme: the server's directory has no revokeCert: certificates cannot be revoked")

// revocation is the payload of revokeCert (RFC 8555 §7.6).
type revocation struct {
	Certificate string      `json:"certificate"`
	Reason      acme.Reason `json:"reason,omitempty"`
}

// RevokeCertificate revokes a certificate (DER) as the account that has it (RFC 8555 §7.6). A Problem
// with CodeAlreadyRevoked says that there was nothing left to do.
func (c *Client) RevokeCertificate(ctx context.Context, cert []byte, reason acme.Reason) error {
	url, err := c.revokeURL(ctx)
	if err != nil {
		return err
	}
	_, err = c.postKID(ctx, call{action: ActionRevokeCert, url: url}, revocation{base64.RawURLEncoding.EncodeToString(cert), reason})
	return err
}

// RevokeCertificateByKey revokes a certificate (DER) with its own private key (RFC 8555 §7.6): no account is needed.
func (c *Client) RevokeCertificateByKey(ctx context.Context, cert []byte, key crypto.Signer, reason acme.Reason) error {
	url, err := c.revokeURL(ctx)
	if err != nil {
		return err
	}
	k, err := newAccountKey(key)
	if err != nil {
		return err
	}
	body, err := encode(revocation{base64.RawURLEncoding.EncodeToString(cert), reason})
	if err != nil {
		return err
	}
	_, err = c.post(ctx, call{action: ActionRevokeCert, url: url}, func(nonce string) ([]byte, error) {
		return k.sign(body, jwsHeader{url: url, nonce: nonce})
	})
	return err
}

func (c *Client) revokeURL(ctx context.Context) (string, error) {
	dir, err := c.server.fetchDirectory(ctx)
	if err != nil {
		return "", err
	}
	if dir.RevokeCert == "" {
		return "", ErrNoRevocation
	}
	return dir.RevokeCert, nil
}
