package acme

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"strings"
)

// ChallengeType is a way to prove control.
type ChallengeType string

// The challenge types of RFC 8555 §8, RFC 8737, draft-ietf-acme-dns-account-label and draft-ietf-acme-dns-persist-01.
const (
	ChallengeHTTP01       ChallengeType = "http-01"
	ChallengeDNS01        ChallengeType = "dns-01"
	ChallengeTLSALPN01    ChallengeType = "tls-alpn-01"
	ChallengeDNSAccount01 ChallengeType = "dns-account-01"
	ChallengeDNSPersist01 ChallengeType = "dns-persist-01"
)

// Challenge is an offer to prove control of an identifier (RFC 8555 §7.1.5, §8).
type Challenge struct {
	Meta
	// URL names the challenge.
	URL string `json:"url"`
	// Type is http-01, dns-01 and so on; servers offer types that we do not know.
	Type ChallengeType `json:"type"`
	// Status is pending, processing, valid or invalid (§7.1.6).
	Status Status `json:"status"`
	// Token is the random part of the key authorization (§8.1), base64url.
	Token string `json:"token,omitempty"`
	// AccountURI is how the record of dns-persist-01 names the account (draft §3.1); empty if not said.
	AccountURI string `json:"accounturi,omitempty"`
	// IssuerDomainNames are the names by which that record may name the server (draft §3.1), unchecked; LaterDomainNames
	// are the same, as drafts after -01 spell the field.
	IssuerDomainNames []string `json:"issuer-domain-names,omitempty"`
	LaterDomainNames  []string `json:"issuerDomainNames,omitempty"`
	// Error is why the last attempt failed.
	Error *Problem `json:"error,omitempty"`
}

// DNS01Value is the TXT record's value for a key authorization (RFC 8555 §8.4).
func DNS01Value(keyAuthorization string) string {
	sum := sha256.Sum256([]byte(keyAuthorization))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// DNS01Label precedes the domain in the TXT record's name (RFC 8555 §8.4).
const DNS01Label = "_acme-challenge."

// DNS01Name is the name of the TXT record for a domain (RFC 8555 §8.4), without a trailing dot of its own. With the
// label of an account it is that of DNS-ACCOUNT-01 (draft-ietf-acme-dns-account-label-03).
func DNS01Name(domain, label string) string {
	name := DNS01Label + domain
	if label == "" {
		return name
	}
	return "_" + label + "." + name
}

// accountLabelBytes is how much of the digest the label of an account has: base32 needs no padding for it.
const accountLabelBytes = 10

// AccountLabel is the label of an account, 16 characters without the underscore before it: base32 of the beginning of
// the SHA-256 digest of the account's URL, as the CA gave it (RFC 8555 §7.3).
func AccountLabel(accountURL string) string {
	sum := sha256.Sum256([]byte(accountURL))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:accountLabelBytes]))
}

// HTTP01PathPrefix precedes the token in the path of the proof (RFC 8555 §8.3).
const HTTP01PathPrefix = "/.well-known/acme-challenge/"

// HTTP01Path is the path at which the key authorization is served (RFC 8555 §8.3).
func HTTP01Path(token string) string { return HTTP01PathPrefix + token }
