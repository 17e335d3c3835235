package acme

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"time"
)

// IdentifierType is the kind of an identifier.
type IdentifierType string

// The identifier types of RFC 8555 §9.7.7 and RFC 8738.
const (
	IdentifierDNS IdentifierType = "dns"
	IdentifierIP  IdentifierType = "ip"
)

// Identifier is what a certificate is for (RFC 8555 §9.7.7, RFC 8738).
type Identifier struct {
	// Type is dns or ip.
	Type IdentifierType `json:"type"`
	// Value is the name, with "*." in front for a wildcard in an order (§7.1.3), or the address.
	Value string `json:"value"`
}

// DNS is the identifier of a name.
func DNS(name string) Identifier { return Identifier{Type: IdentifierDNS, Value: name} }

// IP is the identifier of an address, in the textual form of RFC 8738 §3.
func IP(addr netip.Addr) Identifier {
	return Identifier{Type: IdentifierIP, Value: addr.Unmap().WithZone("").String()}
}

// Order is an application for a certificate (RFC 8555 §7.1.3).
type Order struct {
	Meta
	// URL names the order. FinalizeOrder leaves it empty if the server does not send it.
	URL string `json:"-"`
	// Status is pending, ready, processing, valid or invalid (§7.1.6).
	Status Status `json:"status"`
	// Expires is when the server forgets the order; zero if not said.
	Expires time.Time `json:"expires,omitzero"`
	// Identifiers are what the order is for, in any sequence.
	Identifiers []Identifier `json:"identifiers"`
	// NotBefore and NotAfter are the requested validity; zero if not said.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// Profile is the one that the server applies (draft-ietf-acme-profiles §4).
	Profile string `json:"profile,omitempty"`
	// Replaces is the certificate ID that the order renews (RFC 9773 §5).
	Replaces string `json:"replaces,omitempty"`
	// Error is why the order failed.
	Error *Problem `json:"error,omitempty"`
	// Authorizations are URLs, in any sequence.
	Authorizations []string `json:"authorizations"`
	// Finalize is where the CSR goes once the order is ready.
	Finalize string `json:"finalize"`
	// Certificate is where the certificate is once the order is valid.
	Certificate string `json:"certificate,omitempty"`
}

// maxNames bounds the names of an order: a request of pki.MaxChainPEM bytes has fewer.
const maxNames = 10_000

// NewOrderRequest is what newOrder sends (RFC 8555 §7.4).
type NewOrderRequest struct {
	// Identifiers are what the certificate is for.
	Identifiers []Identifier `json:"identifiers"`
	// NotBefore and NotAfter are the wanted validity; zero leaves it to the CA.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// Profile is a name from the directory; "" leaves it to the CA.
	Profile string `json:"profile,omitempty"`
	// Replaces is the ID of the certificate that this one renews (RFC 9773 §5); "" for none.
	Replaces string `json:"replaces,omitempty"`
}

// NewOrder applies for a certificate (RFC 8555 §7.4). Before anything is sent, the profile is checked
// against the directory (ErrProfilesUnsupported, ErrProfileUnknown), and Replaces needs a server with
// ARI (ErrRenewalInfoUnsupported); see RejectsReplaces.
func (c *Client) NewOrder(ctx context.Context, req NewOrderRequest) (*Order, error) {
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
	r, err := c.postLimit(ctx, call{action: ActionAuthorizeOrder, url: dir.NewOrder, limit: maxOrderBody}, req)
	if err != nil {
		return nil, err
	}
	if r.meta.Location == "" {
		return nil, r.broken(errors.New("newOrder came without the order's Location (§7.4)"))
	}
	return r.order(r.meta.Location)
}

// GetOrder reads an order.
func (c *Client) GetOrder(ctx context.Context, url string) (*Order, error) {
	r, err := c.postLimit(ctx, call{action: ActionGetOrder, url: url, limit: maxOrderBody}, nil)
	if err != nil {
		return nil, err
	}
	return r.order(url)
}

// FinalizeOrder sends the CSR (DER) of a ready order to its finalize URL (RFC 8555 §7.4). The answer
// is usually processing: read the order again later. Its URL is set only if the server sends it.
func (c *Client) FinalizeOrder(ctx context.Context, finalizeURL string, csr []byte) (*Order, error) {
	r, err := c.postLimit(ctx, call{action: ActionCreateOrderCert, url: finalizeURL, limit: maxOrderBody}, struct {
		CSR string `json:"csr"`
	}{base64.RawURLEncoding.EncodeToString(csr)})
	if err != nil {
		return nil, err
	}
	return r.order(r.meta.Location)
}

func (r *response) order(url string) (*Order, error) {
	o := new(Order)
	lists := struct { // take the place of the order's fields of the same names
		*Order
		Identifiers    json.RawMessage `json:"identifiers"`
		Authorizations json.RawMessage `json:"authorizations"`
	}{Order: o}
	err := r.decode(&lists)
	if err != nil {
		return nil, err
	}
	if o.Identifiers, err = readList[Identifier](r, lists.Identifiers, "identifiers", maxNames); err != nil {
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
	if errors.Is(err, ErrRenewalInfoUnsupported) || HasCode(err, CodeAlreadyReplaced) {
		return true
	}
	return HasCode(err, CodeMalformed) && strings.Contains(ProblemOf(err).Detail, "replaces")
}
