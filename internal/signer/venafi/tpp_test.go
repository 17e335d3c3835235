package venafi

import (
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/tppserver"
)

// TestPartsOfABundleInASecret: what of a CA bundle in a Secret is no certificate is left out, and said.
func TestPartsOfABundleInASecret(t *testing.T) {
	w, tpp := newWorld(t), tppserver.Start(t)
	w.secrets.put("ns/venafi", "access-token", "good\n")
	spec := tpp.Spec("venafi")
	i := issuer("venafi", spec)
	bundle := string(i.Spec.Venafi.TPP.CABundle)
	i.Spec.Venafi.TPP.CABundle, i.Spec.Venafi.TPP.CABundleSecretRef = nil, &cmmeta.SecretKeySelector{Name: "roots"}
	for more, want := range map[string]string{
		"": "", "-----BEGIN CERTIFICATE-----\nx": "entry ca.crt of Secret ns/roots is used without what is no certificate in it: PEM block 2 cannot be read",
	} {
		w.secrets.put("ns/roots", "ca.crt", bundle+more)
		if facts := w.inOrder(i); facts.LeftOut != want {
			t.Errorf("left out: %q, want %q", facts.LeftOut, want)
		}
	}
}

// What a TPP server is sent, header by header and field by field, from the login to the
// certificate (spec appendix D).
func TestTPPIssuance(t *testing.T) {
	for _, kind := range []string{requestKind, signingKind} {
		t.Run(kind, func(t *testing.T) {
			w, tpp := newWorld(t), tppserver.Start(t)
			tpp.Change(func(s *tppserver.State) { s.Pending = 2 })
			w.secrets.put("ns/venafi", "access-token", "good\n")
			i := issuer("venafi", tpp.Spec("venafi"))
			i.Annotations = map[string]string{certmanagerv1.VenafiCustomFieldsAnnotation: `[{"name":"Team","value":"everyone"},{"name":"Cost center","value":"42"}]`}
			if facts := w.inOrder(i); facts.Until.IsZero() {
				t.Error("the end of the token is not said")
			}
			setup := []string{"GET /vedauth/authorize/verify", "POST /vedsdk/certificates/checkpolicy"}
			if got := calls(tpp.Take()); !slices.Equal(got, setup) {
				t.Fatalf("Probe called %v, want %v", got, setup)
			}

			r := w.web(kind)
			words := wordsOf(kind)
			r.Source.GetAnnotations()[words.customFieldKeys[0]] = `[{"name":"Team","value":"web","type":"Plain"}]`
			result, said, err := w.finish(i, r)
			if err != nil {
				t.Fatal(err)
			}
			verify(t, result.Bundle, tpp.Root.Certificate, r)
			if result.Warning != "" {
				t.Errorf("warning %q", result.Warning)
			}
			if len(said) != 2 || !strings.Contains(said[0], "Waiting for approval") {
				t.Errorf("said while pending: %q", said)
			}
			if got, want := r.Source.GetAnnotations()[words.pickupID], tppserver.ZoneDN+`\web.example.com`; got != want {
				t.Errorf("pickup id %q, want %q", got, want)
			}
			seen := tpp.Take()
			retrieve := "POST /vedsdk/certificates/retrieve"
			want := []string{
				"POST /vedsdk/certificates/checkpolicy", "POST /vedsdk/certificates/reset", "POST /vedsdk/certificates/request",
				"POST /vedsdk/metadata/get", retrieve, retrieve, retrieve,
			}
			if got := calls(seen); !slices.Equal(got, want) {
				t.Errorf("called %v, want %v", got, want)
			}
			for _, e := range seen {
				if e.Header.Get("Authorization") != "Bearer good" || e.Header.Get("User-Agent") != "chancery-test" {
					t.Errorf("%s with %v", e.Call, e.Header)
				}
			}
			checkTPPRequest(t, find(t, seen, "POST /vedsdk/certificates/request").Body, string(r.CSR))
			reset := find(t, seen, "POST /vedsdk/certificates/reset").Body
			if reset["CertificateDN"] != tppserver.ZoneDN+`\web.example.com` || reset["Restart"] != nil {
				t.Errorf("reset %v", reset)
			}
			got := find(t, seen, retrieve).Body
			if got["CertificateDN"] != tppserver.ZoneDN+`\web.example.com` || got["IncludeChain"] != true || got["RootFirstOrder"] != nil || got["IncludePrivateKey"] != nil {
				t.Errorf("retrieve %v", got)
			}
		})
	}
}

func checkTPPRequest(t *testing.T, body map[string]any, csr string) {
	t.Helper()
	for key, want := range map[string]any{
		"PolicyDN": tppserver.ZoneDN, "ObjectName": "web.example.com", "PKCS10": csr, "Origin": "cert-manager",
		"KeyAlgorithm": "ECC", "EllipticCurve": "P256", "DisableAutomaticRenewal": true, "Reenable": true, "WorkToDoTimeout": nil,
	} {
		if body[key] != want {
			t.Errorf("request: %s is %v, want %v", key, body[key], want)
		}
	}
	fields := map[string]string{}
	for _, f := range body["CustomFields"].([]any) {
		f := f.(map[string]any)
		fields[f["Name"].(string)] = f["Values"].([]any)[0].(string)
	}
	if len(fields) != 2 || fields["Team"] != "web" || fields["Cost center"] != "42" {
		t.Errorf("custom fields %v", fields)
	}
	attributes := map[string]string{}
	for _, a := range body["CASpecificAttributes"].([]any) {
		a := a.(map[string]any)
		attributes[a["Name"].(string)] = a["Value"].(string)
	}
	end, err := time.Parse(time.RFC3339, attributes["Specific End Date"])
	if off := time.Until(end) - 36*time.Hour; err != nil || off.Abs() > time.Minute || attributes["Origin"] != "cert-manager" {
		t.Errorf("attributes %v: the end is %s off (%v)", attributes, off, err)
	}
}

// A username and password are exchanged for a token, once, and again by what renews it.
func TestTPPPassword(t *testing.T) {
	w, tpp := newWorld(t), tppserver.Start(t)
	seenCalls := map[string]int{}
	w.signer.Observe = func(call string, status int, took time.Duration) {
		seenCalls[fmt.Sprint(call, " ", status)]++
		if took < 0 {
			t.Errorf("%s took %s", call, took)
		}
	}
	defer func() {
		for _, call := range []string{"oauth_token 200", "oauth_token 400", "read_zone_configuration 401", "request_certificate 200", "retrieve_certificate 200"} {
			if seenCalls[call] == 0 {
				t.Errorf("no request %s among %v", call, seenCalls)
			}
		}
	}()
	w.secrets.put("ns/venafi", "username", "me", "password", "secret", "client-id", "my-client")
	i := issuer("venafi", tpp.Spec("venafi"))
	w.inOrder(i)
	login := find(t, tpp.Take(), "POST /vedauth/authorize/oauth")
	if b, _ := json.Marshal(login.Body); string(b) != `{"client_id":"my-client","password":"secret","scope":"certificate:manage","username":"me"}` {
		t.Errorf("login %s", b)
	}
	issue := func(want ...string) {
		t.Helper()
		r := w.web(requestKind)
		result, _, err := w.finish(i, r)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, result.Bundle, tpp.Root.Certificate, r)
		seen := calls(tpp.Take())
		seen = slices.DeleteFunc(seen, func(call string) bool { return !strings.Contains(call, "/vedauth/") })
		if !slices.Equal(seen, want) {
			t.Errorf("logins %v, want %v", seen, want)
		}
	}
	issue()
	w.step(91 * 24 * time.Hour)
	tpp.Change(func(s *tppserver.State) { s.Expires = s.Expires.Add(90 * 24 * time.Hour) })
	issue("POST /vedauth/authorize/token")
	tpp.Change(func(s *tppserver.State) { s.Tokens = nil }) // revoked
	issue("POST /vedauth/authorize/token")
	tpp.Change(func(s *tppserver.State) { s.Tokens, s.Refresh = nil, nil })
	issue("POST /vedauth/authorize/token", "POST /vedauth/authorize/oauth")
	tpp.Change(func(s *tppserver.State) { s.Tokens, s.Refresh, s.Passwords = nil, nil, nil })
	_, err := w.look(i, w.web(requestKind))
	if f := fault.Of(err); f == nil || f.Kind != fault.KindAfter || f.Reason != "VenafiInitError" || !strings.Contains(f.Error(), "Username/password combination not valid") {
		t.Errorf("with a changed password: %v", err)
	}
}

// An access token that ends makes the issuer say so, and holds requests up without
// failing them; a new one in the Secret mends both.
func TestTPPTokenEnds(t *testing.T) {
	w, tpp := newWorld(t), tppserver.Start(t)
	tpp.Change(func(s *tppserver.State) { s.Expires = w.signer.Now().Add(time.Hour) })
	w.secrets.put("ns/venafi", "access-token", "good")
	i := issuer("venafi", tpp.Spec("venafi"))
	if ends := w.inOrder(i).Until.Sub(w.signer.Now()); ends > time.Hour || ends < 59*time.Minute {
		t.Fatalf("to be looked at again after %s, want when the token ends", ends)
	}
	tpp.Change(func(s *tppserver.State) { s.Tokens = nil })
	r := w.web(requestKind)
	_, err := w.look(i, r)
	if f := fault.Of(err); f == nil || f.Kind != fault.KindAfter || f.Reason != "VenafiInitError" || !strings.Contains(f.Error(), "The access token is expired") {
		t.Fatalf("Sign with a token that has ended: %v", err)
	}
	if _, f := w.probe(i); f == nil || f.Reason != "AuthFailed" || f.Class != fault.ClassCredential || !strings.Contains(f.Error(), "Secret ns/venafi") || !strings.Contains(f.Error(), "get a new token") {
		t.Fatalf("with a token that has ended: %+v", f)
	}
	tpp.Change(func(s *tppserver.State) { s.Tokens = map[string]bool{"new": true} })
	w.secrets.put("ns/venafi", "access-token", "new")
	w.inOrder(i)
	result, _, err := w.finish(i, r)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, result.Bundle, tpp.Root.Certificate, r)
}

// RSA and ECDSA keys; the policy of the zone and what the library refuses are told
// before anything is handed in.
func TestTPPPolicy(t *testing.T) {
	limited := func(s *certmanagerv1.VenafiIssuer) { s.Zone = tppserver.LimitedZone }
	for _, c := range []struct {
		name    string
		zone    func(*certmanagerv1.VenafiIssuer)
		key     pki.KeySpec
		csr     pki.CSRTemplate
		refused string
	}{
		{name: "RSA", key: pki.KeySpec{Algorithm: "RSA"}, csr: webTemplate()},
		{name: "ECDSA P-384", key: pki.KeySpec{Algorithm: "ECDSA", Size: 384}, csr: webTemplate()},
		{name: "Ed25519", key: pki.KeySpec{Algorithm: "Ed25519"}, csr: webTemplate(), refused: "use RSA or ECDSA"},
		{name: "another domain", zone: limited, key: pki.KeySpec{Algorithm: "ECDSA"}, csr: webTemplate(), refused: "common name web.example.com is not allowed in this policy"},
		{name: "an address", zone: limited, key: pki.KeySpec{Algorithm: "ECDSA"}, csr: pki.CSRTemplate{
			Subject: pkix.Name{CommonName: "a.corp.example"}, AltNames: pki.AltNames{IPAddresses: []string{"192.0.2.1"}},
		}, refused: "IP addresses"},
		{name: "no subject", key: pki.KeySpec{Algorithm: "ECDSA"}, csr: pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"web.example.com"}}}, refused: "empty subject"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, tpp := newWorld(t), tppserver.Start(t)
			w.secrets.put("ns/venafi", "access-token", "good")
			spec := tpp.Spec("venafi")
			if c.zone != nil {
				c.zone(&spec)
			}
			r := w.request(requestKind, newKey(t, c.key), c.csr)
			result, _, err := w.finish(issuer("venafi", spec), r)
			if c.refused == "" {
				if err != nil {
					t.Fatal(err)
				}
				verify(t, result.Bundle, tpp.Root.Certificate, r)
				return
			}
			class := fault.ClassPermanent // only another request helps
			if c.zone != nil {
				class = fault.ClassPolicy // so does another policy
			}
			if f := fault.Of(err); f == nil || f.Kind != fault.KindTerminal || f.Class != class || f.Reason != "RequestError" || !strings.Contains(f.Error(), c.refused) {
				t.Fatalf("got %v, want a refusal with %q", err, c.refused)
			}
			if seen := calls(tpp.Take()); slices.Contains(seen, "POST /vedsdk/certificates/request") {
				t.Errorf("it was handed in: %v", seen)
			}
		})
	}
}

// TestBodiesAreNotReflected: a tenant names another server than Certificate Manager in an Issuer. What that server
// says is not told to the tenant, whatever the status is, in JSON or not. Only fields that Certificate Manager
// uses for its errors are quoted.
func TestBodiesAreNotReflected(t *testing.T) {
	for _, path := range []string{
		"/vedauth/authorize/verify", "/vedauth/authorize/oauth", "/vedsdk/certificates/checkpolicy",
		"/vedsdk/certificates/request", "/vedsdk/certificates/retrieve",
	} {
		for _, status := range []int{200, 204, 302, 400, 401, 404, 409, 500} {
			for _, body := range []string{`{"kind":"Secret","data":{"password":"aW5zaWRl"}}`, `["aW5zaWRl"]`, "\n password=aW5zaWRl \n"} {
				if status == 204 {
					body = ""
				}
				w, tpp := newWorld(t), tppserver.Start(t)
				w.secrets.put("ns/venafi", "username", "me", "password", "secret")
				if path == "/vedauth/authorize/verify" {
					w.secrets.put("ns/venafi", "access-token", "good")
				}
				tpp.Answers(path, status, body)
				i := issuer("venafi", tpp.Spec("venafi"))
				if _, err := w.signer.Probe(t.Context(), i); err != nil && strings.Contains(err.Error(), "aW5zaWRl") {
					t.Errorf("%s answers %d %s: %v", path, status, body, err)
				}
				if _, err := w.look(i, w.web(requestKind)); err != nil && strings.Contains(err.Error(), "aW5zaWRl") {
					t.Errorf("%s answers %d %s: %v", path, status, body, err)
				}
			}
		}
	}
}

// What TPP answers, and what becomes of a request: only a refusal ends it.
func TestTPPFailures(t *testing.T) {
	const (
		request, retrieve = "/vedsdk/certificates/request", "/vedsdk/certificates/retrieve"
		checkpolicy       = "/vedsdk/certificates/checkpolicy"
	)
	bounds.Holds(t, "answer of Venafi", func(n int) limits.Outcome {
		const none = `{"CertificateData":"bm8="}`
		w, tpp := newWorld(t), tppserver.Start(t)
		w.secrets.put("ns/venafi", "access-token", "good")
		tpp.Answers(retrieve, http.StatusOK, none+strings.Repeat(" ", n-len(none)))
		_, err := w.look(issuer("venafi", tpp.Spec("venafi")), w.web(requestKind))
		if err != nil && strings.Contains(err.Error(), "invalid pem") {
			return limits.Taken
		}
		return bounds.Refusal(t, err, "longer than 1024 KiB")
	})
	for _, c := range []struct {
		name, path, body string
		status           int
		header           []string
		kind             fault.Kind
		cr, csr, says    string
	}{
		{name: "refused by policy", path: request, status: 400, body: `{"Error":"The request violates policy: domain not allowed"}`, kind: fault.KindTerminal, cr: "RequestError", csr: "ErrorRequest", says: "answers 400: The request violates policy"},
		{name: "no right", path: request, status: 403, body: `{"error":"insufficient_scope","error_description":"Grant rejected scope"}`, kind: fault.KindAfter, cr: "VenafiInitError", csr: "ErrorVenafiInit", says: "Grant rejected scope"},
		{name: "out of order", path: request, status: 503, body: `<html>`, kind: fault.KindAfter, cr: "IssuancePending", csr: "IssuancePending", says: "answers 503"},
		{name: "too many", path: request, status: 429, header: []string{"Retry-After", "77"}, kind: fault.KindAfter, cr: "IssuancePending", csr: "IssuancePending", says: "answers 429"},
		{name: "no zone", path: checkpolicy, status: 400, body: `{"Error":"PolicyDN: x does not exist"}`, kind: fault.KindAfter, cr: "VenafiInitError", csr: "ErrorVenafiInit", says: "correct spec.venafi.zone"},
		{name: "a policy that the library panics about", path: checkpolicy, status: 200, body: `{"Policy":{"KeyPair":{"KeyAlgorithm":{"Locked":true,"Value":"ML-DSA"}}}}`, kind: fault.KindAfter, cr: "IssuancePending", csr: "IssuancePending", says: "ML-DSA"},
		{name: "no such path", path: checkpolicy, status: 404, body: `not here`, kind: fault.KindAfter, cr: "VenafiInitError", csr: "ErrorVenafiInit", says: "answers 404"},
		{name: "a redirect", path: checkpolicy, status: 302, header: []string{"Location", "/vedsdk/elsewhere"}, kind: fault.KindAfter, cr: "IssuancePending", csr: "IssuancePending", says: "302"},
		{name: "a proxy's word is no verdict", path: request, status: 404, body: `<html>`, kind: fault.KindAfter, cr: "IssuancePending", csr: "IssuancePending", says: "answers 404"},
		{name: "no pickup id", path: request, status: 200, body: `{}`, kind: fault.KindTerminal, cr: "RequestError", csr: "ErrorRequest", says: "no pickup id"},
		{name: "failed behind it", path: retrieve, status: 500, body: `{"Stage":500,"Status":"Post CSR failed with error: the template is disabled"}`, kind: fault.KindTerminal, cr: "RetrieveError", csr: "ErrorRetrieve", says: "the template is disabled"},
		{name: "out of order later", path: retrieve, status: 500, body: ``, kind: fault.KindAfter, cr: "IssuancePending", csr: "IssuancePending", says: "answers 500"},
		{name: "gone", path: retrieve, status: 400, body: `{"Error":"Certificate does not exist"}`, kind: fault.KindTerminal, cr: "RetrieveError", csr: "ErrorRetrieve", says: "Certificate does not exist"},
		{name: "no certificate", path: retrieve, status: 200, body: `{"CertificateData":"bm8="}`, kind: fault.KindTerminal, cr: "RetrieveError", csr: "ErrorRetrieve", says: "invalid pem"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, tpp := newWorld(t), tppserver.Start(t)
			w.secrets.put("ns/venafi", "access-token", "good")
			tpp.Answers(c.path, c.status, c.body, c.header...)
			for kind, reason := range map[string]string{requestKind: c.cr, signingKind: c.csr} {
				_, err := w.look(issuer("venafi", tpp.Spec("venafi")), w.web(kind))
				f := fault.Of(err)
				if f == nil || f.Kind != c.kind || f.Reason != reason || !strings.Contains(f.Error(), c.says) || strings.Contains(f.Error(), "\n") || strings.Contains(f.Error(), "<html>") {
					t.Fatalf("%s: got %v (%+v), want %s %s with %q", kind, err, f, c.kind, reason, c.says)
				}
				if c.kind == fault.KindTerminal && f.Class != fault.ClassPolicy {
					t.Errorf("class %q", f.Class)
				}
				if c.status == http.StatusTooManyRequests && f.Delay != 77*time.Second {
					t.Errorf("to come back after %s", f.Delay)
				}
			}
		})
	}
}
