package acme

import (
	"net/netip"
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
