package venafi

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Venafi/vcert/v5/pkg/certificate"
	"github.com/Venafi/vcert/v5/pkg/endpoint"
	"github.com/Venafi/vcert/v5/pkg/venafi/tpp"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/growth"
	"chancery.dev/internal/rig/tppserver"
	"chancery.dev/internal/signer"
)

// entries are n different entries of a list of a policy, each of so many bytes, which allow no name but the last.
func entries(n, size int) []string {
	out := make([]string, n)
	for i := range out {
		domain := fmt.Sprintf("d%d.example", i)
		out[i] = strings.Repeat("x", size-len(domain)) + domain
	}
	return out
}

// policyOf is the answer of TPP with a policy whose lists and values are these.
func policyOf(domains, units []string, city string) string {
	locked := map[string]any{"Locked": true, "Values": units}
	if units == nil {
		locked = nil
	}
	text, _ := json.Marshal(map[string]any{"Policy": map[string]any{ //nolint:errchkjson // strings
		"SubjAltNameDnsAllowed": true, "WildcardsAllowed": true, "WhitelistedDomains": domains,
		"Subject": map[string]any{"OrganizationalUnit": locked, "City": map[string]any{"Locked": city != "", "Value": city}},
	}})
	return string(text)
}

// templateOf is the answer of SaaS with a template that allows all, but for one list.
func templateOf(list string, entries any) string {
	all, template := []string{".*"}, map[string]any{}
	for _, name := range policyLists()[3:13] {
		template[name] = all
	}
	template["keyTypes"] = []any{map[string]any{"keyType": "EC", "keyCurves": []string{"P256"}}}
	template[list] = entries
	text, _ := json.Marshal(template) //nolint:errchkjson // strings
	return string(text)
}

// TestPolicyIsBounded: a tenant names a server of their own, which answers with as large a policy as an answer may be.
// What is above the bounds of a policy does not reach the library. It ends no request, and the issuer says what is
// wrong.
func TestPolicyIsBounded(t *testing.T) {
	const most, longest, good = limits.PolicyEntries, limits.PolicyEntryBytes, "example.com"
	const tooMany, tooLong = "has more than 1000 entries in its list ", "has an entry of more than 255 bytes in its list "
	type attempt struct{ name, policy, says string }
	onTPP, onSaaS := []attempt{
		{"an answer full of domains", policyOf(slices.Repeat([]string{"a"}, 260_000), nil, ""), tooMany + "WhitelistedDomains"},
		{"in another case", strings.Replace(policyOf(append(entries(most, 20), good), nil, ""), "Whitelisted", "whiteLISTED", 1), tooMany + "WhitelistedDomains"},
		{"a unit more", policyOf([]string{good}, entries(most+1, 20), ""), tooMany + "Values"},
		{"a long city", policyOf([]string{good}, nil, strings.Repeat("x", longest+1)), tooLong + "Value"},
	}, []attempt{
		{"too many keys", templateOf("keyTypes", slices.Repeat([]any{map[string]any{"keyType": "EC"}}, most+1)), tooMany + "keyTypes"},
		{"an expression of large classes", templateOf("sanRegexes", []string{strings.Repeat(`\pL`, 80)}), fmt.Sprintf("has the expression %q, ", "^"+strings.Repeat(`\pL`, 80)+"$") + "which has too many classes of characters or repeats too often"},
		{"a hungry expression", templateOf("sanRegexes", []string{`.{0,999}.{0,999}`}), "has the expression \"^.{0,999}.{0,999}$\", which has too many classes of characters or repeats too often"},
	}
	for _, list := range policyLists()[3:13] {
		onSaaS = append(onSaaS,
			attempt{list + " with as many as may be", templateOf(list, append(entries(most-1, longest), ".*")), ""},
			attempt{list + " with one more", templateOf(list, append(entries(most, 20), ".*")), tooMany + list},
			attempt{list + " with a longer one", templateOf(list, []string{".*", strings.Repeat("x", longest+1)}), tooLong + list})
	}
	server, cloud := tppserver.Start(t), newSaaS(t, "")
	try := func(t *testing.T, c attempt, spec certmanagerv1.VenafiIssuer) {
		t.Helper()
		w, i := newWorld(t), issuer("venafi", spec)
		w.secrets.put("ns/venafi", "access-token", "good", "api-key", "key")
		says := fmt.Sprintf("%s: have it shortened at the server, or name another zone in spec.venafi.zone", c.says)
		if !strings.Contains(c.says, "expression") { // those are looked at once there are names
			if _, f := w.probe(i); (f != nil) != (c.says != "") || f != nil && (f.Reason != "ErrorSetup" || f.Delay != zoneAgain || !strings.Contains(f.Error(), says)) {
				t.Errorf("Probe: %+v, want %q", f, says)
			}
		}
		for kind, reason := range map[string]string{requestKind: "VenafiInitError", signingKind: "ErrorVenafiInit"} {
			_, err := w.look(i, w.web(kind))
			f := fault.Of(err)
			if (err != nil) != (c.says != "") || err != nil && (f == nil || f.Kind != fault.KindAfter || f.Reason != reason || f.Delay != zoneAgain || !strings.HasSuffix(f.Error(), says)) {
				t.Errorf("%s: %v, want %q", kind, err, says)
			}
		}
	}
	policed := func(policy string) limits.Outcome {
		w := newWorld(t)
		w.secrets.put("ns/venafi", "access-token", "good")
		server.Answers("/vedsdk/certificates/checkpolicy", http.StatusOK, policy)
		_, err := w.look(issuer("venafi", server.Spec("venafi")), w.web(requestKind))
		return bounds.Refusal(t, err, "in its list WhitelistedDomains: have it shortened at the server")
	}
	bounds.Holds(t, "entries of a policy", func(n int) limits.Outcome { return policed(policyOf(append(entries(n-1, longest), good), nil, "")) })
	bounds.Holds(t, "entry of a policy", func(n int) limits.Outcome { return policed(policyOf(append(entries(1, n), good), nil, "")) })
	bounds.Holds(t, "steps of an expression", func(n int) limits.Outcome {
		literal := strings.Repeat("x", n)
		err := compare(t.Context(), enough(), []*rule{{"names", "is", []string{literal}, []string{literal}}})
		return bounds.Refusal(t, err, "too many classes of characters or repeats too often")
	})
	for _, c := range onTPP {
		server.Answers("/vedsdk/certificates/checkpolicy", http.StatusOK, c.policy)
		t.Run("TPP: "+c.name, func(t *testing.T) { try(t, c, server.Spec("venafi")) })
	}
	for _, c := range onSaaS {
		cloud.answers("/outagedetection/v1/applications/Web Apps/certificateissuingtemplates/Short", http.StatusOK, c.policy)
		t.Run("SaaS: "+c.name, func(t *testing.T) { try(t, c, cloud.cloud()) })
	}
}

// TestPolicyIsBoundedWhateverTheStatus: the library reads the template of a new application from an answer of any
// status.
func TestPolicyIsBoundedWhateverTheStatus(t *testing.T) {
	body := policyOf(append(entries(limits.PolicyEntries, 20), "example.com"), nil, "")
	for _, status := range []int{http.StatusOK, http.StatusCreated, http.StatusNotFound, http.StatusInternalServerError} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		defer server.Close()
		x := &exchange{ctx: t.Context(), transport: http.DefaultTransport, now: time.Now, step: stepZone}
		resp, err := x.client().Get(server.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		if x.unfit == nil || err == nil {
			t.Errorf("status %d: the library reads the policy", status)
		}
	}
}

// zoneOf is what the library makes of TPP's answer with a policy.
func zoneOf(policy string) (zone *endpoint.ZoneConfiguration, err error) {
	c, err := tpp.NewConnector("https://tpp.example.com/vedsdk/", "zone", false, nil)
	if err != nil {
		return nil, err
	}
	c.SetHTTPClient(&http.Client{Transport: answering(policy)})
	err = guarded(func() error {
		zone, err = c.ReadZoneConfiguration()
		return err
	})
	return zone, err
}

// answering answers each request with the same text.
type answering string

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(a)))}, nil
}

// ordered is an order with the names, and what the library is given of it.
func ordered(t testing.TB, names ...string) (order, *certificate.Request) {
	t.Helper()
	return orderOf(t, pki.CSRTemplate{Subject: pkix.Name{CommonName: names[0]}, AltNames: pki.AltNames{DNSNames: names}})
}

// orderOf is an order of a request, and what the library is given of it.
func orderOf(t testing.TB, template pki.CSRTemplate) (order, *certificate.Request) {
	t.Helper()
	csr, err := pki.CreateCSR(template, newKey(t, pki.KeySpec{Algorithm: pki.ECDSA}))
	if err != nil {
		t.Fatal(err)
	}
	o, err := newOrder(signer.Request{CSR: csr}, nil)
	if err != nil {
		t.Fatal(err)
	}
	req, err := o.wire()
	if err != nil {
		t.Fatal(err)
	}
	return o, req
}

// namesBelow are so many names of 60 bytes below a domain: a request has no room for 1,000 that are longer.
func namesBelow(n int, domain string) (out []string) {
	for i := range n {
		name := fmt.Sprintf("n%d.%s", i, domain)
		out = append(out, strings.Repeat("y", 60-len(name))+name)
	}
	return out
}

// TestPolicyRefuses: of each list, what is not allowed is named, in the words of the library, which also refuses it.
func TestPolicyRefuses(t *testing.T) {
	o, req := orderOf(t, pki.CSRTemplate{
		Subject: pkix.Name{
			CommonName: "web.example.com", Organization: []string{"Acme", "Other"}, OrganizationalUnit: []string{"Web"},
			Country: []string{"CH"}, Locality: []string{"Bern"},
		},
		AltNames: pki.AltNames{
			DNSNames: []string{"web.example.com", "b.example", "a.example"}, EmailAddresses: []string{"me@example.com"},
			IPAddresses: []string{"192.0.2.1"}, URIs: []string{"spiffe://x/y"},
		},
	})
	for says, list := range map[string]func(*endpoint.Policy) *[]string{
		"common name web.example.com is not allowed in this policy":            func(p *endpoint.Policy) *[]string { return &p.SubjectCNRegexes },
		"DNS SANs web.example.com, b.example do not match regular expressions": func(p *endpoint.Policy) *[]string { return &p.DnsSanRegExs },
		"email addresses me@example.com do not match regular expressions":      func(p *endpoint.Policy) *[]string { return &p.EmailSanRegExs },
		"IP addresses 192.0.2.1 do not match regular expressions":              func(p *endpoint.Policy) *[]string { return &p.IpSanRegExs },
		"URIs spiffe://x/y do not match regular expressions":                   func(p *endpoint.Policy) *[]string { return &p.UriSanRegExs },
		"organization Acme, Other doesn't match regular expressions":           func(p *endpoint.Policy) *[]string { return &p.SubjectORegexes },
		"organization unit Web doesn't match regular expressions":              func(p *endpoint.Policy) *[]string { return &p.SubjectOURegexes },
		"country CH doesn't match regular expressions":                         func(p *endpoint.Policy) *[]string { return &p.SubjectCRegexes },
		"location Bern doesn't match regular expressions":                      func(p *endpoint.Policy) *[]string { return &p.SubjectLRegexes },
		"state (province)  doesn't match regular expressions":                  func(p *endpoint.Policy) *[]string { return &p.SubjectSTRegexes },
	} {
		all := []string{".*"}
		zone := &endpoint.ZoneConfiguration{Policy: endpoint.Policy{
			SubjectCNRegexes: all, SubjectORegexes: all, SubjectOURegexes: all, SubjectSTRegexes: all, SubjectLRegexes: all, SubjectCRegexes: all,
			DnsSanRegExs: all, IpSanRegExs: all, EmailSanRegExs: all, UriSanRegExs: all,
		}}
		if err := permits(t.Context(), enough(), zone, req, o.csr); err != nil {
			t.Errorf("%v, want it allowed", err)
		}
		*list(&zone.Policy) = []string{"^a", "(", "z"}
		if err := permits(t.Context(), enough(), zone, req, o.csr); err == nil || err.Error() != says+": [^a ( z]" || zone.ValidateCertificateRequest(req) == nil {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// TestPolicyIsCompiledOnce: a policy with as many entries as it may have, and as long, of which the last allows all
// names, costs as many compilations for a thousand names as for one. Nothing else allocates as much.
func TestPolicyIsCompiledOnce(t *testing.T) {
	growth.NotUnderRace(t)
	zone, err := zoneOf(policyOf(append(entries(limits.PolicyEntries-1, limits.PolicyEntryBytes), "zz.example"), nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	once := 0.0
	for _, n := range []int{1, 10, limits.CertificateNames} {
		o, req := ordered(t, namesBelow(n, "zz.example")...)
		cost := testing.AllocsPerRun(1, func() {
			if err := permits(t.Context(), enough(), zone, req, o.csr); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%d names: %.0f allocations", n, cost)
		if once == 0 {
			once = cost
		}
		if cost > 2*once {
			t.Fatalf("%d names cost %.0f allocations, one costs %.0f", n, cost, once)
		}
	}
}

// TestPolicyGrows: what a policy costs grows with its entries, and with the names of a request, while there are some of
// the other.
func TestPolicyGrows(t *testing.T) {
	const most, some = limits.PolicyEntries, 100
	for name, sizes := range map[string]func(n int) (entries, names int){
		"entries": func(n int) (int, int) { return n, some },
		"names":   func(n int) (int, int) { return some, n },
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, most, func(n int) func() {
				domains, names := sizes(n)
				const size = 50 // shorter than the names: a longer entry matches none of them at a glance
				body := policyOf(append(entries(domains-1, size), "zz.example"), nil, "")
				zone, err := zoneOf(body)
				if err != nil {
					t.Fatal(err)
				}
				o, req := ordered(t, namesBelow(names, "zz.example")...)
				return func() {
					if err := errors.Join(checkBounds([]byte(body)), permits(t.Context(), enough(), zone, req, o.csr)); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// enough is a budget for whatever a test compares.
func enough() *budget { return &budget{time.Hour, time.Now, newTurns()} }

// TestPoliciesAreComparedInTurn: while a request is compared with a policy that takes long, no other one is compared,
// and another is done meanwhile: they take turns after each name.
func TestPoliciesAreComparedInTurn(t *testing.T) {
	long, err := zoneOf(policyOf(entries(limits.PolicyEntries, 20), nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	short, err := zoneOf(policyOf(entries(1, 20), nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	o, req := ordered(t, namesBelow(20, "zz.example")...)
	synctest.Test(t, func(t *testing.T) {
		var at, most atomic.Int32
		one, finished := newTurns(), make(chan string, 2)
		clock := func() func() time.Time { // it is looked at when a turn begins, and when it ends
			begins := false
			return func() time.Time {
				if begins = !begins; begins {
					most.Store(max(most.Load(), at.Add(1)))
					time.Sleep(time.Nanosecond) //nolint:forbidigo // in the bubble, who has no turn to wait for goes on
				} else {
					at.Add(-1)
				}
				return time.Time{}
			}
		}
		one.room <- struct{}{} // both wait, the long one first
		for _, c := range []struct {
			name string
			zone *endpoint.ZoneConfiguration
		}{{"long", long}, {"short", short}} {
			go func() {
				_ = permits(t.Context(), &budget{time.Hour, clock(), one}, c.zone, req, o.csr)
				finished <- c.name
			}()
			synctest.Wait()
		}
		<-one.room
		if first := <-finished; first != "short" {
			t.Errorf("the %s one is finished first", first)
		}
		<-finished
		if most.Load() != 1 {
			t.Errorf("%d are compared at once", most.Load())
		}
	})
}

// endingAfter is a context that has ended once it was asked so often.
type endingAfter struct {
	context.Context
	asked, ends int
}

func (c *endingAfter) Err() error {
	if c.asked++; c.asked > c.ends {
		return context.DeadlineExceeded
	}
	return nil
}

// TestPolicyEndsWithTheContext: the context is asked before each match, and its end is no refusal.
func TestPolicyEndsWithTheContext(t *testing.T) {
	zone, err := zoneOf(policyOf(entries(limits.PolicyEntries, 20), nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	o, req := ordered(t, namesBelow(20, "zz.example")...)
	matches := 21*limits.PolicyEntries + 5 // and five fields of the subject
	for ends, want := range map[int]string{0: "deadline", 5: "deadline", matches - 1: "deadline", matches: "common name yyy"} {
		ctx := &endingAfter{Context: t.Context(), ends: ends}
		if err := permits(ctx, enough(), zone, req, o.csr); err == nil || !strings.Contains(err.Error(), want) || ctx.asked > matches {
			t.Errorf("ends after %d: %.100v, asked %d times", ends, err, ctx.asked)
		}
	}
	a := &session{access: access{product: productTPP, server: "https://tpp.example.com", zone: "z"}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name    string
		ctx     context.Context
		timeout time.Duration
		class   fault.Class
		says    string
	}{
		{"the call has ended", ended, time.Hour, fault.ClassUnavailable, "cannot be reached"},
		{"the policy takes too long", t.Context(), 0, fault.ClassPolicy, `the policy of zone "z" takes longer than 0s to compare with the request: have it shortened`},
	} {
		x := &exchange{ctx: c.ctx, now: time.Now, comparing: newTurns(), step: stepPolicy, status: http.StatusOK}
		f := fault.Of(a.classify(x, o.allow(x, zone, req, c.timeout)))
		if f == nil || f.Kind != fault.KindAfter || f.Class != c.class || !strings.Contains(f.Error(), c.says) {
			t.Errorf("%s: %+v, want %q", c.name, f, c.says)
		}
	}
}
