package venafi

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/Venafi/vcert/v5/pkg/certificate"
	"github.com/Venafi/vcert/v5/pkg/endpoint"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/fault/retryafter"
	"chancery.dev/internal/limits"
)

// FuzzCustomFields: each field that is asked for has a name and is of the one known type, no field of an issuer stands
// beside the request's of the same name, and what is read is the same once it is written again.
func FuzzCustomFields(f *testing.F) {
	f.Add(`[{"name":"Cost center","value":"42"}]`, `[{"name":"Cost center","value":"7","type":"Plain"}]`)
	f.Add(`null`, `[{"NAME":"a","Value":null}]`)
	f.Add(`[]`, `[{"name":"a","name":"b"},{"name":"a"}]`)
	f.Fuzz(func(t *testing.T, issuer, request string) {
		const key = certmanagerv1.VenafiCustomFieldsAnnotation
		got, err := customFields(map[string]string{key: issuer}, map[string]string{key: request}, []string{key})
		if err != nil {
			return
		}
		if len(got) == 0 || got[0].Type != certificate.CustomFieldOrigin {
			t.Fatalf("%+v", got)
		}
		own, err := parseFields(request)
		if err != nil {
			t.Fatal(err)
		}
		var written []field
		for i, c := range got[1:] {
			if c.Name == "" || c.Type != certificate.CustomFieldPlain {
				t.Errorf("%+v", c)
			}
			for _, o := range own {
				if c.Name == o.Name && i < len(got)-1-len(own) {
					t.Errorf("%q is the issuer's and the request's", c.Name)
				}
			}
			written = append(written, field{Name: c.Name, Value: c.Value})
		}
		if len(written) == 0 {
			return
		}
		text, err := json.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		again, err := customFields(map[string]string{key: string(text)}, nil, nil)
		if err != nil || len(again) != len(got) || again[len(again)-1] != got[len(got)-1] {
			t.Errorf("%s is read as %+v, %v", text, again, err)
		}
	})
}

// FuzzVenafiPolicy: a policy within the bounds gives the library no longer list and no longer entry. Whatever a list
// allows, our own check allows what the library's does.
func FuzzVenafiPolicy(f *testing.F) {
	f.Add([]byte(policyOf([]string{"example.com", ".example", ""}, []string{"Unit"}, "City")), ".*\n^web")
	f.Add([]byte(`{"policy":{"whitelisteddomains":["a"],"WhitelistedDomains":[null],"Subject":{"City":{"Value":"x","Locked":true}}}}`), "(\n[\nweb.example.com|.*")
	f.Add([]byte(`{"Policy":{"WhitelistedDomains":["$"],"SubjAltNameDnsAllowed":true}} `), "(?i)WEB.{0,99}\n\\*.*\na_b\n\\pL")
	o, req := ordered(f, "web.example.com", "*.example.com", "a_b", "example")
	f.Fuzz(func(t *testing.T, body []byte, expressions string) {
		zone, err := zoneOf(string(body))
		if err != nil || checkBounds(body) != nil {
			return
		}
		for _, list := range [][]string{zone.SubjectCNRegexes, zone.DnsSanRegExs, zone.SubjectOURegexes, zone.SubjectLRegexes} {
			if len(list) > limits.PolicyEntries || slices.ContainsFunc(list, func(e string) bool { return len(e) > 2*limits.PolicyEntryBytes+30 }) {
				t.Errorf("%d entries: %.300q", len(list), list)
			}
		}
		other := *zone
		other.DnsSanRegExs = strings.Split(expressions, "\n")
		for _, z := range []*endpoint.ZoneConfiguration{zone, &other} {
			want, got, unfit := z.ValidateCertificateRequest(req), permits(t.Context(), enough(), z, req, o.csr), new(unfitError)
			if !errors.As(got, &unfit) && (got == nil) != (want == nil) {
				t.Errorf("%q: %v, the library says %v", z.DnsSanRegExs, got, want)
			}
		}
	})
}

// FuzzVenafiFailure: what a user reads of an answer is short and printable, and an answer that is not in Certificate
// Manager's form is not quoted.
func FuzzVenafiFailure(f *testing.F) {
	f.Add([]byte(`{"error_description":"no\u0000","Status":"x","Stage":500}`), 400, "9999999999", 4)
	f.Add([]byte("<html>an internal page</html>"), 500, "-1", 2)
	f.Add([]byte(`{"errors":[{"message":""}],"message":"m"}`), 404, "", 5)
	f.Fuzz(func(t *testing.T, body []byte, status int, retryAfter string, at int) {
		a := &session{access: access{product: productTPP, server: "https://tpp.example", zone: "z", secret: "s"}}
		asked := retryafter.Read(http.Header{"Retry-After": {retryAfter}}, time.Now())
		x := &exchange{status: status, retryAfter: asked, body: body, step: step(at)}
		got := fault.Of(a.classify(x, errors.New("unexpected status: "+string(body))))
		if got == nil || got.Delay < 0 || got.Delay > max(retryafter.Most, zoneAgain) {
			t.Fatalf("%+v", got)
		}
		text := got.Error()
		if len(text) > 300+fault.MaxQuote+fault.MaxQuotedLink || strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("%d bytes: %q", len(text), text)
		}
		const long = 40
		if page := strings.TrimSpace(string(body)); status >= http.StatusBadRequest && !json.Valid(body) && len(page) > long && strings.Contains(text, page) {
			t.Errorf("a page is quoted: %q", text)
		}
	})
}

// FuzzVenafiToken: a token that is granted is a bearer token, and does not end before it is granted.
func FuzzVenafiToken(f *testing.F) {
	f.Add([]byte(`{"access_token":"t","token_type":"bearer","expires_in":3600}`))
	f.Add([]byte(`{"access_token":"t","token_type":"Bearer","expires_in":9223372036854775807}`))
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := readGrant(body, now)
		if err == nil && (got.token == "" || !got.expires.IsZero() && !got.expires.After(now)) {
			t.Errorf("%q: %+v", body, got)
		}
	})
}
