package selection

import (
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
)

// TestSelectorsInOtherSpellings: a selector in capitals, or with a dot at the end, is for the same names. So far it was
// passed over, and a solver for the zone above was taken.
func TestSelectorsInOtherSpellings(t *testing.T) {
	above := selecting(dns01(), selector{DNSZones: []string{"example.com"}})
	for _, c := range []struct {
		wanted   selector
		name     string
		wildcard bool
	}{
		{selector{DNSZones: []string{"sub.example.com."}}, "sub.example.com", false},
		{selector{DNSZones: []string{"Sub.Example.com"}}, "www.sub.example.com", true},
		{selector{DNSNames: []string{"Sub.Example.com"}}, "sub.example.com", false},
		{selector{DNSNames: []string{"sub.example.com."}}, "sub.example.com", false},
		{selector{DNSNames: []string{"*.Sub.example.com."}, DNSZones: []string{"Sub.example.com."}}, "sub.example.com", true},
		{selector{DNSNames: []string{"sub.example.com"}}, "SUB.example.com", false},
	} {
		got, err := Select(nil, acmev1.ACMEAuthorization{
			Identifier: c.name, Wildcard: new(c.wildcard), Challenges: []acmev1.ACMEChallenge{{Type: "dns-01", URL: "ca/dns-01"}},
		}, []acmev1.ACMEChallengeSolver{selecting(dns01(), c.wanted), above})
		if err != nil || !strings.HasPrefix(got.Why, "solvers[0] ") {
			t.Errorf("%+v for %s: %q, %v", c.wanted, c.name, got.Why, err)
		}
	}
}
