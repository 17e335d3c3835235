// Package dnsaccount names the TXT record of a DNS-01 challenge (RFC 8555 §8.4) and of a
// DNS-ACCOUNT-01 challenge, whose name begins with a label of the ACME account
// (draft-ietf-acme-dns-account-label-03). It writes no record and asks no DNS server: see
// internal/solver/dns01.
package dnsaccount

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// labelBytes is how much of the digest the label has: base32 needs no padding for it.
const labelBytes = 10

// Label is the label of an ACME account, 16 characters without the underscore before it: base32 of
// the beginning of the SHA-256 digest of the account's URL, as the CA gave it (RFC 8555 §7.3).
func Label(accountURL string) string {
	sum := sha256.Sum256([]byte(accountURL))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:labelBytes]))
}

// Name is the name of the record for a domain, without a trailing dot of its own. Without a label it
// is that of DNS-01.
func Name(domain, label string) string {
	name := "_acme-challenge." + domain
	if label == "" {
		return name
	}
	return "_" + label + "." + name
}
