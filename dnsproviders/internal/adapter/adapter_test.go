package adapter

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"chancery.dev/dnsproviders/internal/native"
	"chancery.dev/internal/solver/dns01/wire"
)

// TestANamePausesNoCredential: a tenant chooses a domain, and a tenant's ACME server a token, that reads like an
// error of the provider. A credential that is paused for that is paused for everybody.
func TestANamePausesNoCredential(t *testing.T) {
	for _, name := range []string{
		"429.example.com", "401.example.com", "403.example.com", "throttling.example.com", "rate-limit.example.com", "rate.limit.example.com",
		"unauthorized.example.com", "unauthorised.forbidden.example.com", "accessdenied.example.com", "ratelimit.example.com",
		"SignatureDoesNotMatch.example.com", "InvalidClientTokenId.example.com", "PriorRequestNotComplete.example.com", "invalid_token.example.com",
	} {
		r := wire.Record{
			Domain: strings.ToLower(name), FQDN: "_acme-challenge." + strings.ToLower(name) + ".", Zone: "example.com.",
			Token: "403-429", KeyAuthorization: "403-429.forbidden", Value: "throttled-401",
		}
		relative := strings.TrimSuffix(r.FQDN, ".example.com.")
		for _, err := range []error{
			fmt.Errorf("vultr: could not find zone for domain %q: [fqdn=%s]", name, r.FQDN),
			fmt.Errorf("ovh: error 400 when create record %s in zone example.com", relative),
			fmt.Errorf("gandi: record %s exists", strings.ToUpper(strings.ReplaceAll(relative, ".", "_"))),
			fmt.Errorf("luadns: TXT %s for %s: %s %s", r.Value, r.Domain, r.Token, r.KeyAuthorization),
			native.StatusError{Code: http.StatusNotFound, Message: "no zone for " + name},
		} {
			var class *wire.Failure
			if got := classify(err, r); errors.As(got, &class) || !errors.Is(got, err) {
				t.Errorf("%v is of class %s", err, class.Class)
			}
		}
	}
}

// TestClassesOfProviders: the provider's own words count, whatever else is said.
func TestClassesOfProviders(t *testing.T) {
	r := wire.Record{Domain: "www.example.com", FQDN: "_acme-challenge.www.example.com.", Zone: "example.com."}
	for text, want := range map[string]wire.Class{
		"API call for www.example.com failed: 403 Forbidden":       wire.ClassCredential,
		"example.com: authentication failed":                       wire.ClassCredential,
		"www.example.com: Rate limit exceeded":                     wire.ClassThrottled,
		"route53: Throttling: Rate exceeded for www.example.com":   wire.ClassThrottled,
		"some credentials information are missing: EXAMPLE_APIKEY": wire.ClassConfig,
	} {
		var got *wire.Failure
		if err := classify(errors.New(text), r); !errors.As(err, &got) || got.Class != want {
			t.Errorf("%s: %v, want class %s", text, err, want)
		}
	}
	// What the library keeps beside its text counts, too: a name cannot take it away.
	var got *wire.Failure
	err := classify(fmt.Errorf("it failed: %w", &typed{StatusCode: http.StatusForbidden}), wire.Record{Domain: "403.forbidden.example.com"})
	if !errors.As(err, &got) || got.Class != wire.ClassCredential {
		t.Errorf("403 beside the text: %v", err)
	}
}

type typed struct{ StatusCode int }

func (*typed) Error() string { return "refused" }
