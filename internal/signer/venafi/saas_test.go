package venafi

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/tppserver"
)

// saasServer stands in for Certificate Manager, SaaS, and for NGTS with the service
// that gives its tokens.
type saasServer struct {
	tppserver.Journal
	*httptest.Server

	t      *testing.T
	ca     *tppserver.Authority
	root   *x509.Certificate
	prefix string

	mu sync.Mutex
	// keys are API keys, tokens bearer tokens that are good.
	keys, tokens map[string]bool
	minted       int
	csr          string
	// statuses are what a request goes through before ISSUED.
	statuses []string
	// early is how often the certificate is not there although it is issued.
	early    int
	override map[string]http.HandlerFunc
}

func newSaaS(t *testing.T, prefix string) *saasServer {
	t.Helper()
	s := &saasServer{
		t: t, prefix: prefix, keys: map[string]bool{"key": true}, tokens: map[string]bool{}, override: map[string]http.HandlerFunc{},
	}
	root, err := public()
	if err == nil {
		s.ca, err = tppserver.NewAuthority("public intermediate", root)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.root = root.Certificate
	s.Server = root.Serve(t, s)
	return s
}

func (s *saasServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := s.Note(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, s.prefix)
	if answer := s.override[path]; answer != nil {
		answer(w, r)
		return
	}
	if path == "/oauth2/access_token" {
		s.token(w, r, e)
		return
	}
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !(ok && s.tokens[bearer]) && !s.keys[r.Header.Get("tppl-api-key")] {
		tppserver.Answer(w, http.StatusUnauthorized, `{"errors":[{"code":10501,"message":"Unable to find user for key"}]}`)
		return
	}
	switch path {
	case "/v1/useraccounts":
		tppserver.Answer(w, http.StatusOK, `{"user":{"username":"me"},"company":{"id":"c1"}}`)
	case "/outagedetection/v1/applications/Web Apps/certificateissuingtemplates/Short":
		tppserver.Answer(w, http.StatusOK, `{"id":"t1","subjectCNRegexes":[".*"],"subjectORegexes":[".*"],"subjectOURegexes":[".*"],"subjectSTRegexes":[".*"],"subjectLRegexes":[".*"],"subjectCValues":[".*"],"sanRegexes":[".*"],
			"keyTypes":[{"keyType":"EC","keyCurves":["P256","P384"]}]}`)
	case "/outagedetection/v1/applications/name/Web Apps":
		tppserver.Answer(w, http.StatusOK, `{"id":"a1","name":"Web Apps","certificateIssuingTemplateAliasIdMap":{"Short":"t1"}}`)
	case "/outagedetection/v1/certificaterequests":
		s.csr, _ = e.Body["certificateSigningRequest"].(string)
		tppserver.Answer(w, http.StatusCreated, `{"certificateRequests":[{"id":"r1","status":"REQUESTED"}]}`)
	case "/outagedetection/v1/certificaterequests/r1":
		status := "ISSUED"
		if len(s.statuses) > 0 {
			status, s.statuses = s.statuses[0], s.statuses[1:]
		}
		tppserver.Answer(w, http.StatusOK, fmt.Sprintf(`{"id":"r1","status":%q,"certificateIds":["c1"]}`, status))
	case "/outagedetection/v1/certificates/c1/contents":
		if s.early > 0 {
			s.early--
			tppserver.Answer(w, http.StatusConflict, `{}`)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		chain, err := s.ca.Issue(s.csr)
		if err != nil {
			s.t.Error(err)
		}
		_, _ = w.Write(chain)
	default:
		tppserver.Answer(w, http.StatusNotFound, `{"errors":[{"code":10051,"message":"not found"}]}`)
	}
}

// token is RFC 6749 §4.4.
func (s *saasServer) token(w http.ResponseWriter, r *http.Request, e tppserver.Exchange) {
	form, _ := url.ParseQuery(e.Form)
	user, password, _ := r.BasicAuth()
	if user != "svc@1000000001" || password != "secret" || form.Get("grant_type") != "client_credentials" || form.Get("scope") != "tsg_id:1000000001" {
		tppserver.Answer(w, http.StatusBadRequest, `{"error":"invalid_client","error_description":"Client authentication failed"}`)
		return
	}
	s.minted++
	token := fmt.Sprintf("token-%d", s.minted)
	s.tokens = map[string]bool{token: true}
	tppserver.Answer(w, http.StatusOK, fmt.Sprintf(`{"access_token":%q,"token_type":"Bearer","expires_in":900}`, token))
}

func (s *saasServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *saasServer) answers(path string, status int, body string) {
	s.set(func() {
		s.override[path] = func(w http.ResponseWriter, _ *http.Request) { tppserver.Answer(w, status, body) }
	})
}

func (s *saasServer) cloud() certmanagerv1.VenafiIssuer {
	return certmanagerv1.VenafiIssuer{Zone: `Web Apps\Short`, Cloud: &certmanagerv1.VenafiCloud{
		URL: s.URL, APITokenSecretRef: cmmeta.SecretKeySelector{Name: "venafi"},
	}}
}

func (s *saasServer) ngts() certmanagerv1.VenafiIssuer {
	return certmanagerv1.VenafiIssuer{Zone: `Web Apps\Short`, NGTS: &certmanagerv1.VenafiNGTS{
		URL: s.URL + s.prefix, TokenEndpoint: s.URL + s.prefix + "/oauth2/access_token", TSGID: "1000000001",
		CredentialsRef: cmmeta.LocalObjectReference{Name: "venafi"},
	}}
}

// The exchanges of an issuance by SaaS, without those of a login.
func saasExchanges(prefix string) []string {
	const at = "/outagedetection/v1"
	status, contents := "GET "+prefix+at+"/certificaterequests/r1", "GET "+prefix+at+"/certificates/c1/contents?chainOrder=EE_FIRST&format=PEM"
	return []string{
		"GET " + prefix + at + "/applications/Web%20Apps/certificateissuingtemplates/Short",
		"GET " + prefix + at + "/applications/name/Web%20Apps",
		"POST " + prefix + at + "/certificaterequests",
		status, status, contents, status, contents,
	}
}

func (s *saasServer) check(t *testing.T, seen []tppserver.Exchange, csr string, authorized func(http.Header) bool) {
	t.Helper()
	if got, want := calls(seen), saasExchanges(s.prefix); !slices.Equal(got, want) {
		t.Errorf("called\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, e := range seen {
		if !authorized(e.Header) || e.Header.Get("User-Agent") != "chancery-test" {
			t.Errorf("%s with %v", e.Call, e.Header)
		}
	}
	body := find(t, seen, "POST "+s.prefix+"/outagedetection/v1/certificaterequests").Body
	client, _ := body["apiClientInformation"].(map[string]any)
	if body["certificateSigningRequest"] != csr || body["applicationId"] != "a1" || body["certificateIssuingTemplateId"] != "t1" ||
		body["validityPeriod"] != "PT36H0M0S" || client["type"] != "cert-manager" {
		t.Errorf("request %v", body)
	}
}

// What SaaS is sent, with an API key that is proved once.
func TestCloudIssuance(t *testing.T) {
	for _, kind := range []string{requestKind, signingKind} {
		t.Run(kind, func(t *testing.T) {
			w, cloud := newWorld(t), newSaaS(t, "")
			cloud.statuses, cloud.early = []string{"PENDING_APPROVAL"}, 1
			w.secrets.put("ns/venafi", "api-key", "key")
			i := issuer("venafi", cloud.cloud())
			w.inOrder(i)
			if got, want := calls(cloud.Take()), []string{"GET /v1/useraccounts", saasExchanges("")[0]}; !slices.Equal(got, want) {
				t.Fatalf("Probe called %v, want %v", got, want)
			}
			r := w.web(kind)
			r.Source.GetAnnotations()[certmanagerv1.VenafiCustomFieldsAnnotation] = `[{"name":"Team","value":"web"}]`
			result, said, err := w.finish(i, r)
			if err != nil {
				t.Fatal(err)
			}
			verify(t, result.Bundle, cloud.root, r)
			if result.WarningReason != "CustomFieldsIgnored" || !strings.Contains(result.Warning, "custom fields") {
				t.Errorf("custom fields that SaaS does not know: %q", result.Warning)
			}
			if r.Source.GetAnnotations()[wordsOf(kind).pickupID] != "r1" || len(said) != 2 || !strings.Contains(said[0], "PENDING_APPROVAL") {
				t.Errorf("annotations %v, said %q", r.Source.GetAnnotations(), said)
			}
			cloud.check(t, cloud.Take(), string(r.CSR), func(h http.Header) bool { return h.Get("tppl-api-key") == "key" && h.Get("Authorization") == "" })
		})
	}
}

// NGTS gives a token for client credentials, and another when it has ended.
func TestNGTSIssuance(t *testing.T) {
	w, ngts := newWorld(t), newSaaS(t, "/ngts")
	ngts.keys = nil
	w.secrets.put("ns/venafi", "client-id", "svc@1000000001", "client-secret", "secret")
	i := issuer("venafi", ngts.ngts())
	w.inOrder(i)
	login := "POST /ngts/oauth2/access_token"
	seen := ngts.Take()
	if got, want := calls(seen), []string{login, saasExchanges("/ngts")[0]}; !slices.Equal(got, want) {
		t.Fatalf("Probe called %v, want %v", got, want)
	}
	if h := seen[0].Header; h.Get("Content-Type") != "application/x-www-form-urlencoded" || h.Get("User-Agent") != "chancery-test" {
		t.Errorf("login with %v", h)
	}
	issue := func(token string, logins int) {
		t.Helper()
		ngts.set(func() { ngts.statuses, ngts.early = []string{"REQUESTED"}, 1 })
		r := w.web(requestKind)
		result, _, err := w.finish(i, r)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, result.Bundle, ngts.root, r)
		if result.Warning != "" {
			t.Errorf("warning %q", result.Warning)
		}
		seen := ngts.Take()
		rest := slices.DeleteFunc(slices.Clone(seen), func(e tppserver.Exchange) bool { return e.Call == login })
		if len(seen)-len(rest) != logins {
			t.Errorf("%d logins, want %d: %v", len(seen)-len(rest), logins, calls(seen))
		}
		ngts.check(t, rest, string(r.CSR), func(h http.Header) bool { return h.Get("Authorization") == "Bearer "+token })
	}
	issue("token-1", 0)
	w.step(time.Hour)
	issue("token-2", 1)
	w.secrets.put("ns/venafi", "client-id", "svc@1000000001", "client-secret", "wrong")
	if _, f := w.probe(i); f == nil || f.Reason != "AuthFailed" || f.Class != fault.ClassCredential || !strings.Contains(f.Error(), "Client authentication failed") {
		t.Errorf("with a wrong secret: %+v", f)
	}
}

// What SaaS answers, and what becomes of a request.
func TestCloudFailures(t *testing.T) {
	const requests = "/outagedetection/v1/certificaterequests"
	for _, c := range []struct {
		name, path, body string
		status           int
		kind             fault.Kind
		reason, says     string
	}{
		{name: "refused", path: requests, status: 400, body: `{"errors":[{"code":10705,"message":"CSR violates the issuing template"}]}`, kind: fault.KindTerminal, reason: "RequestError", says: "CSR violates the issuing template"},
		{name: "no list", path: requests, status: 201, body: `{}`, kind: fault.KindTerminal, reason: "RequestError", says: "not one that can be handled"},
		{name: "no application", path: "/outagedetection/v1/applications/Web Apps/certificateissuingtemplates/Short", status: 404, body: `{"errors":[{"code":10051,"message":"no"}]}`, kind: fault.KindAfter, reason: "VenafiInitError", says: "correct spec.venafi.zone"},
		{name: "key revoked", path: "/v1/useraccounts", status: 401, body: `{"errors":[{"message":"API key revoked"}]}`, kind: fault.KindAfter, reason: "VenafiInitError", says: "API key revoked"},
		{name: "failed", path: requests + "/r1", status: 200, body: `{"status":"FAILED"}`, kind: fault.KindTerminal, reason: "RetrieveError", says: "FAILED"},
		{name: "rejected", path: requests + "/r1", status: 200, body: `{"status":"REJECTED_APPROVAL"}`, kind: fault.KindTerminal, reason: "RetrieveError", says: "REJECTED_APPROVAL"},
		{name: "issued, and no certificate", path: requests + "/r1", status: 200, body: `{"status":"ISSUED"}`, kind: fault.KindTerminal, reason: "RetrieveError", says: "not one that can be handled"},
		{name: "out of order", path: requests + "/r1", status: 502, body: ``, kind: fault.KindAfter, reason: "IssuancePending", says: "answers 502"},
		{name: "no right to the certificate", path: "/outagedetection/v1/certificates/c1/contents", status: 400, body: `{"errors":[{"message":"revoked"}]}`, kind: fault.KindTerminal, reason: "RetrieveError", says: "400 Bad Request"},
		{name: "not a certificate", path: "/outagedetection/v1/certificates/c1/contents", status: 200, body: "", kind: fault.KindTerminal, reason: "RetrieveError", says: "invalid pem"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, cloud := newWorld(t), newSaaS(t, "")
			w.secrets.put("ns/venafi", "api-key", "key")
			cloud.answers(c.path, c.status, c.body)
			_, err := w.look(issuer("venafi", cloud.cloud()), w.web(requestKind))
			if f := fault.Of(err); f == nil || f.Kind != c.kind || f.Reason != c.reason || !strings.Contains(f.Error(), c.says) {
				t.Fatalf("got %v, want %s %s with %q", err, c.kind, c.reason, c.says)
			}
		})
	}
}
