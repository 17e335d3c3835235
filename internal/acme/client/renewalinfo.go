package client

import (
	"context"
	"errors"
	"strings"

	"chancery.dev/internal/acme"
)

// ErrRenewalInfoUnsupported says that the server's directory has no renewalInfo (RFC 9773 §3).
var ErrRenewalInfoUnsupported = errors.New("acme: the server does not offer renewal information (RFC 9773)")

// RenewalInfo asks when to renew the certificate with the ID (RFC 9773 §4.1). It needs no account.
func (c *Client) RenewalInfo(ctx context.Context, certID string) (*acme.RenewalInfo, error) {
	dir, err := c.server.fetchDirectory(ctx)
	if err != nil {
		return nil, err
	}
	if dir.RenewalInfo == "" {
		return nil, ErrRenewalInfoUnsupported
	}
	r, err := c.server.get(ctx, ActionGetRenewalInfo, strings.TrimSuffix(dir.RenewalInfo, "/")+"/"+certID)
	if err != nil {
		return nil, err
	}
	info := new(acme.RenewalInfo)
	if err := r.decode(info); err != nil {
		return nil, err
	}
	info.Meta, info.ExplanationURL = r.meta, r.absolute(info.ExplanationURL)
	// §4.2: a window that does not end after its start is to be treated as if there were none.
	if w := info.SuggestedWindow; !w.End.After(w.Start) {
		return nil, r.broken(errors.New("the suggested window does not end after its start (RFC 9773 §4.2)"))
	}
	return info, nil
}
