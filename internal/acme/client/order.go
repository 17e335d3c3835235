package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"chancery.dev/internal/acme"
)

// maxNames bounds the names of an order: a request of pki.MaxChainPEM bytes has fewer.
const maxNames = 10_000

// NewOrder applies for a certificate (RFC 8555 §7.4). Before anything is sent, the profile is checked
// against the directory (ErrProfilesUnsupported, ErrProfileUnknown), and Replaces needs a server with
// ARI (ErrRenewalInfoUnsupported); see RejectsReplaces.
func (c *Client) NewOrder(ctx context.Context, req acme.NewOrderRequest) (*acme.Order, error) {
	dir, err := c.server.fetchDirectory(ctx)
	if err != nil {
		return nil, err
	}
	if err := dir.CheckProfile(req.Profile); err != nil {
		return nil, err
	}
	if req.Replaces != "" && dir.RenewalInfo == "" {
		return nil, ErrRenewalInfoUnsupported
	}
	// RFC 3339 in UTC without fractions: what every server parses.
	req.NotBefore = req.NotBefore.UTC().Truncate(time.Second)
	req.NotAfter = req.NotAfter.UTC().Truncate(time.Second)
	r, err := c.postKID(ctx, call{action: ActionAuthorizeOrder, url: dir.NewOrder, limit: maxOrderBody}, req)
	if err != nil {
		return nil, err
	}
	if r.meta.Location == "" {
		return nil, r.broken(errors.New("newOrder came without the order's Location (§7.4)"))
	}
	return r.order(r.meta.Location)
}

// GetOrder reads an order.
func (c *Client) GetOrder(ctx context.Context, url string) (*acme.Order, error) {
	r, err := c.postKID(ctx, call{action: ActionGetOrder, url: url, limit: maxOrderBody}, nil)
	if err != nil {
		return nil, err
	}
	return r.order(url)
}

// FinalizeOrder sends the CSR (DER) of a ready order to its finalize URL (RFC 8555 §7.4). The answer
// is usually processing: read the order again later. Its URL is set only if the server sends it.
func (c *Client) FinalizeOrder(ctx context.Context, finalizeURL string, csr []byte) (*acme.Order, error) {
	r, err := c.postKID(ctx, call{action: ActionCreateOrderCert, url: finalizeURL, limit: maxOrderBody}, struct {
		CSR string `json:"csr"`
	}{base64.RawURLEncoding.EncodeToString(csr)})
	if err != nil {
		return nil, err
	}
	return r.order(r.meta.Location)
}

func (r *response) order(url string) (*acme.Order, error) {
	o := new(acme.Order)
	lists := struct { // take the place of the order's fields of the same names
		*acme.Order
		Identifiers    json.RawMessage `json:"identifiers"`
		Authorizations json.RawMessage `json:"authorizations"`
	}{Order: o}
	err := r.decode(&lists)
	if err != nil {
		return nil, err
	}
	if o.Identifiers, err = readList[acme.Identifier](r, lists.Identifiers, "identifiers", maxNames); err != nil {
		return nil, err
	}
	if o.Authorizations, err = readList[string](r, lists.Authorizations, "authorizations", 2*maxNames); err != nil {
		return nil, err
	}
	o.Meta, o.URL = r.meta, url
	o.Finalize, o.Certificate = r.absolute(o.Finalize), r.absolute(o.Certificate)
	size := 0
	for i, a := range o.Authorizations {
		o.Authorizations[i] = r.absolute(a)
		if size += len(o.Authorizations[i]); size > maxOrderBody {
			return nil, r.tooLarge("addresses of authorizations of more than %d bytes", maxOrderBody)
		}
	}
	return o, nil
}

// RejectsReplaces reports whether NewOrder failed because of Replaces alone, so that the same order
// without it may pass: alreadyReplaced (RFC 9773 §7.4), no ARI, or malformed with a word about it.
func RejectsReplaces(err error) bool {
	if errors.Is(err, ErrRenewalInfoUnsupported) || acme.HasCode(err, acme.CodeAlreadyReplaced) {
		return true
	}
	return acme.HasCode(err, acme.CodeMalformed) && strings.Contains(acme.ProblemOf(err).Detail, "replaces")
}
