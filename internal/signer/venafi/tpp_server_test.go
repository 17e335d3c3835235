package venafi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// exchanged is one exchange that a stand-in server has seen.
type exchanged struct {
	call   string // method and path
	header http.Header
	body   map[string]any
	form   string
}

// journal is what a stand-in server has seen.
type journal struct {
	mu   sync.Mutex
	seen []exchanged
}

func (j *journal) note(r *http.Request) exchanged {
	body, _ := io.ReadAll(r.Body)
	e := exchanged{call: r.Method + " " + r.URL.RequestURI(), header: r.Header, form: string(body)}
	_ = json.Unmarshal(body, &e.body)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen = append(j.seen, e)
	return e
}

// take returns what was seen, and forgets it.
func (j *journal) take() []exchanged {
	j.mu.Lock()
	defer j.mu.Unlock()
	seen := j.seen
	j.seen = nil
	return seen
}

func calls(seen []exchanged) []string {
	var out []string
	for _, e := range seen {
		out = append(out, e.call)
	}
	return out
}

func find(t *testing.T, seen []exchanged, call string) exchanged {
	t.Helper()
	i := slices.IndexFunc(seen, func(e exchanged) bool { return e.call == call })
	if i < 0 {
		t.Fatalf("%s was not called: %v", call, calls(seen))
	}
	return seen[i]
}

// tppServer stands in for Certificate Manager, Self-Hosted.
type tppServer struct {
	journal
	*httptest.Server

	t    *testing.T
	root *authority
	ca   *authority

	mu sync.Mutex
	// tokens are accepted, passwords give one, refresh tokens another.
	tokens    map[string]bool
	passwords map[string]string
	refresh   map[string]bool
	expires   time.Time
	zones     map[string]string // policy by DN
	pending   int               // how often a retrieval is pending
	csrs      map[string]string
	minted    int
	// override answers a path in another way; it returns false to leave it.
	override map[string]func(w http.ResponseWriter) bool
}

const (
	zoneDN    = `\VED\Policy\Dev Ops\Web`
	openZone  = `{"Policy":{"SubjAltNameDnsAllowed":true,"SubjAltNameIpAllowed":true,"SubjAltNameUriAllowed":true,"SubjAltNameEmailAllowed":true,"WildcardsAllowed":true}}`
	limitZone = `{"Policy":{"SubjAltNameDnsAllowed":true,"WhitelistedDomains":["corp.example"],"Subject":{"Organization":{"Value":"Acme","Locked":false}}}}`
)

func newTPP(t *testing.T) *tppServer {
	t.Helper()
	s := &tppServer{
		t: t, tokens: map[string]bool{"good": true}, passwords: map[string]string{"me": "secret"}, refresh: map[string]bool{},
		expires: time.Now().Add(90 * 24 * time.Hour), zones: map[string]string{zoneDN: openZone, `\VED\Policy\Limited`: limitZone},
		csrs: map[string]string{}, override: map[string]func(http.ResponseWriter) bool{},
	}
	s.root = newAuthority(t, "private root", nil)
	s.ca = newAuthority(t, "private intermediate", s.root)
	s.Server = s.root.serve(t, s)
	return s
}

// spec is that of an issuer by this server, with credentials in the Secret "venafi".
func (s *tppServer) spec() certmanagerv1.VenafiIssuer {
	return certmanagerv1.VenafiIssuer{Zone: `Dev Ops\Web`, TPP: &certmanagerv1.VenafiTPP{
		URL: s.URL + "/vedsdk", CredentialsRef: cmmeta.LocalObjectReference{Name: "venafi"}, CABundle: pki.EncodeCertificates(s.root.cert),
	}}
}

func say(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func (s *tppServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := s.note(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer := s.override[r.URL.Path]; answer != nil && answer(w) {
		return
	}
	if strings.HasPrefix(r.URL.Path, "/vedauth/authorize/") && r.URL.Path != "/vedauth/authorize/verify" {
		s.authorize(w, r.URL.Path, e)
		return
	}
	if !s.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] {
		say(w, http.StatusUnauthorized, `{"error":"invalid_token","error_description":"The access token is expired"}`)
		return
	}
	text := func(key string) string { v, _ := e.body[key].(string); return v }
	switch r.URL.Path {
	case "/vedauth/authorize/verify":
		say(w, http.StatusOK, fmt.Sprintf(`{"application":"chancery","expires_ISO8601":%q,"scope":"certificate:manage"}`, s.expires.UTC().Format(time.RFC3339Nano)))
	case "/vedsdk/certificates/checkpolicy":
		if policy, ok := s.zones[text("PolicyDN")]; ok {
			say(w, http.StatusOK, policy)
			return
		}
		say(w, http.StatusBadRequest, fmt.Sprintf(`{"Error":"PolicyDN: %s does not exist"}`, strings.ReplaceAll(text("PolicyDN"), `\`, `\\`)))
	case "/vedsdk/certificates/reset":
		say(w, http.StatusBadRequest, `{"Error":"The certificate does not exist or you do not have sufficient rights to the object."}`)
	case "/vedsdk/certificates/request":
		dn := text("PolicyDN") + `\` + text("ObjectName")
		s.csrs[dn] = text("PKCS10")
		out, _ := json.Marshal(map[string]string{"CertificateDN": dn})
		say(w, http.StatusOK, string(out))
	case "/vedsdk/metadata/get":
		say(w, http.StatusOK, `{"Data":[{"Key":{"Label":"Team"},"Value":["web"]},{"Key":{"Label":"Cost center"},"Value":["42"]}]}`)
	case "/vedsdk/certificates/retrieve":
		csr, ok := s.csrs[text("CertificateDN")]
		switch {
		case !ok:
			say(w, http.StatusBadRequest, `{"Error":"Certificate does not exist"}`)
		case s.pending > 0:
			s.pending--
			say(w, http.StatusAccepted, `{"Stage":400,"Status":"Waiting for approval"}`)
		default:
			say(w, http.StatusOK, fmt.Sprintf(`{"CertificateData":%q,"Format":"base64"}`, base64.StdEncoding.EncodeToString(s.ca.issue(s.t, csr))))
		}
	default:
		s.t.Errorf("unexpected %s", e.call)
		w.WriteHeader(http.StatusNotFound)
	}
}

// authorize gives tokens, of which the last one is good.
func (s *tppServer) authorize(w http.ResponseWriter, path string, e exchanged) {
	text := func(key string) string { v, _ := e.body[key].(string); return v }
	good := path == "/vedauth/authorize/oauth" && text("password") != "" && s.passwords[text("username")] == text("password") ||
		path == "/vedauth/authorize/token" && s.refresh[text("refresh_token")]
	if !good {
		say(w, http.StatusBadRequest, `{"error":"invalid_grant","error_description":"Username/password combination not valid"}`)
		return
	}
	s.minted++
	token, refresh := fmt.Sprintf("token-%d", s.minted), fmt.Sprintf("refresh-%d", s.minted)
	s.tokens, s.refresh = map[string]bool{token: true}, map[string]bool{refresh: true}
	say(w, http.StatusOK, fmt.Sprintf(`{"access_token":%q,"refresh_token":%q,"expires":%d,"scope":"certificate:manage"}`, token, refresh, s.expires.Unix()))
}

// set changes the server under its lock.
func (s *tppServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// answers has a path answered with the same until the test ends.
func (s *tppServer) answers(path string, status int, body string, header ...string) {
	s.set(func() {
		s.override[path] = func(w http.ResponseWriter) bool {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			say(w, status, body)
			return true
		}
	})
}
