package preflight_test

import (
	"regexp"
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/clientside/preflight"
)

// issueValue is the grammar of the property issue by the letter (RFC 8659 §4.2).
var issueValue = regexp.MustCompile(`^[ \t]*((?:[A-Za-z0-9](?:-*[A-Za-z0-9])*(?:\.[A-Za-z0-9](?:-*[A-Za-z0-9])*)*)?)[ \t]*` +
	`(;[ \t]*(?:[A-Za-z0-9](?:-*[A-Za-z0-9])*[ \t]*=[ \t]*[!-:<-~]*[ \t]*(?:;[ \t]*[A-Za-z0-9](?:-*[A-Za-z0-9])*[ \t]*=[ \t]*[!-:<-~]*[ \t]*)*)?)?$`)

// FuzzCAA: a record lets the CA issue if and only if a reader by the letter of the grammar finds the name of the CA in
// it: a malformed record lets nobody issue (RFC 8659 §4.2).
func FuzzCAA(f *testing.F) {
	f.Add("ca.example")
	f.Add(" CA.example ; a=b; c = d")
	f.Add("ca.example; a")
	f.Add("ca.example;")
	f.Add("ca.example; a=b;")
	f.Add("ca.example; accounturi=x")
	proof := preflight.Proof{Name: "www.example.com", Type: acmev1.ChallengeTypeDNS01}
	ca := preflight.Authority{Identities: []string{"ca.example"}, Account: "https://ca.example/acct/1"}
	f.Fuzz(func(t *testing.T, value string) {
		got := preflight.CAA(proof, "example.com.", []preflight.CAARecord{{Tag: "issue", Value: value}}, ca)
		parts := issueValue.FindStringSubmatch(value)
		named := parts != nil && strings.EqualFold(parts[1], "ca.example")
		limited := strings.Contains(strings.ToLower(value), "accounturi") || strings.Contains(strings.ToLower(value), "validationmethods")
		if got.Outcome == preflight.OK && !named || named && !limited && got.Outcome != preflight.OK {
			t.Errorf("%q: %+v", value, got)
		}
	})
}
