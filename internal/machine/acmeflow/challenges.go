package acmeflow

import (
	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
)

// AccountThumbprintAnnotation carries the thumbprint of the account key on a
// Challenge, for DNS-01 providers that compute the record's value themselves.
const AccountThumbprintAnnotation = "chancery.dev/account-thumbprint"

// OurFinalizers are those of the Challenge's finalizers that are this controller's.
func OurFinalizers(c *acmev1.Challenge) []string {
	var ours []string
	for _, f := range c.Finalizers {
		if f == acmev1.ChallengeFinalizer || f == acmev1.ChallengeFinalizerLegacy {
			ours = append(ours, f)
		}
	}
	return ours
}

// Outdated reports whether a Challenge answers with another account key than that of the thumbprint: the CA would
// refuse the answer.
func Outdated(c acmev1.ChallengeSpec, thumbprint string) bool {
	return c.Type != acmev1.ChallengeTypeDNSPersist01 && c.Key != KeyToPresent(c.Type, c.Token, thumbprint)
}

// KeyToPresent is the key authorization for HTTP-01 (RFC 8555 §8.1) and TLS-ALPN-01
// (RFC 8737 §3), and the value of the TXT record for DNS-01 (RFC 8555 §8.4) and DNS-ACCOUNT-01.
func KeyToPresent(t acmev1.ACMEChallengeType, token, thumbprint string) string {
	key := token + "." + thumbprint
	if !WritesRecord(t) {
		return key
	}
	return acme.DNS01Value(key)
}

// WritesRecord reports whether the solver of a type of challenge writes a TXT record: DNS-01 and DNS-ACCOUNT-01. That
// of DNS-PERSIST-01 is its owner's.
func WritesRecord(t acmev1.ACMEChallengeType) bool {
	return t == acmev1.ChallengeTypeDNS01 || t == acmev1.ChallengeTypeDNSAccount01
}
