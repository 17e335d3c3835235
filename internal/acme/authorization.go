package acme

import "time"

// Authorization says whether the account may have certificates for an identifier (RFC 8555 §7.1.4).
type Authorization struct {
	Meta
	// URL names the authorization.
	URL string `json:"-"`
	// Identifier is what it is about, for a wildcard without "*.".
	Identifier Identifier `json:"identifier"`
	// Status is pending, valid, invalid, deactivated, expired or revoked (§7.1.6).
	Status Status `json:"status"`
	// Expires is when it ends; zero if not said.
	Expires time.Time `json:"expires,omitzero"`
	// Wildcard says that the order asked for "*." and the identifier.
	Wildcard bool `json:"wildcard,omitempty"`
	// Challenges are the ways to prove control; once decided, those that were tried.
	Challenges []Challenge `json:"challenges"`
}
