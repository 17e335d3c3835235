// Package tppserver replaces CyberArk Certificate Manager, Self-Hosted (formerly Trust Protection Platform) in tests: a
// real server of this product is not available.
//
// The server answers the requests that the vcert library makes for an issuance, with real certificates by a CA of its
// own, and records the requests. The server shows policies to clients, but applies no policy. Only tests import it.
package tppserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

const (
	// Token is the access token that is good at first.
	Token = "good"
	// Zone is open to every name.
	Zone = `Dev Ops\Web`
	// ZoneDN is what the server calls it.
	ZoneDN = `\VED\Policy\` + Zone
	// LimitedZone is for names below corp.example.
	LimitedZone = "Limited"
)

// State is what a server goes by.
type State struct {
	// Tokens are accepted. Passwords, by username, give one, and so does what is in
	// Refresh: then that one token alone is good, and one that refreshes it.
	Tokens    map[string]bool
	Passwords map[string]string
	Refresh   map[string]bool
	// Expires is when tokens say that they end.
	Expires time.Time
	// Pending is how often the next retrievals are told to wait.
	Pending int
	// Overrides answer a path in another way.
	Overrides map[string]http.HandlerFunc

	zones  map[string]string // policy by DN
	csrs   map[string]string // by DN
	minted int
}

// Server is one.
type Server struct {
	Journal
	*httptest.Server

	// Root is the CA that the server's certificate, and those that it issues, lead to.
	Root *Authority

	t     testing.TB
	ca    *Authority
	mu    sync.Mutex
	state State
}

// Start starts a server on the loopback address until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	const names = `"SubjAltNameDnsAllowed":true`
	s := &Server{t: t, state: State{
		Tokens: map[string]bool{Token: true}, Passwords: map[string]string{"me": "secret"}, Refresh: map[string]bool{},
		Expires: time.Now().Add(90 * 24 * time.Hour), Overrides: map[string]http.HandlerFunc{}, csrs: map[string]string{},
		zones: map[string]string{
			ZoneDN:                       `{"Policy":{` + names + `,"SubjAltNameIpAllowed":true,"SubjAltNameUriAllowed":true,"SubjAltNameEmailAllowed":true,"WildcardsAllowed":true}}`,
			`\VED\Policy\` + LimitedZone: `{"Policy":{` + names + `,"WhitelistedDomains":["corp.example"],"Subject":{"Organization":{"Value":"Acme","Locked":false}}}}`,
		},
	}}
	var err error
	if s.Root, err = NewAuthority("private root", nil); err == nil {
		s.ca, err = NewAuthority("private intermediate", s.Root)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Server = s.Root.Serve(t, s)
	return s
}

// Spec is that of an issuer by this server in Zone, with the credentials in a Secret.
func (s *Server) Spec(secret string) certmanagerv1.VenafiIssuer {
	return certmanagerv1.VenafiIssuer{Zone: Zone, TPP: &certmanagerv1.VenafiTPP{
		URL: s.URL + "/vedsdk", CredentialsRef: cmmeta.LocalObjectReference{Name: secret}, CABundle: pki.EncodeCertificates(s.Root.Certificate),
	}}
}

// Change changes the state between two answers.
func (s *Server) Change(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// Silence makes the server answer nothing until the function that it returns is called.
func (s *Server) Silence() (end func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// Answers makes a path answer the same until the test ends.
func (s *Server) Answers(path string, status int, body string, header ...string) {
	s.Change(func(state *State) {
		state.Overrides[path] = func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			Answer(w, status, body)
		}
	})
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := s.Note(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	switch {
	case s.state.Overrides[path] != nil:
		s.state.Overrides[path](w, r)
	case strings.HasPrefix(path, "/vedauth/authorize/") && path != "/vedauth/authorize/verify":
		s.authorize(w, path, e)
	case !s.state.Tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]:
		Answer(w, http.StatusUnauthorized, `{"error":"invalid_token","error_description":"The access token is expired"}`)
	default:
		s.serve(w, path, e)
	}
}

func (s *Server) serve(w http.ResponseWriter, path string, e Exchange) {
	switch path {
	case "/vedauth/authorize/verify":
		Answer(w, http.StatusOK, fmt.Sprintf(`{"application":"chancery","expires_ISO8601":%q,"scope":"certificate:manage"}`, s.state.Expires.UTC().Format(time.RFC3339Nano)))
	case "/vedsdk/certificates/checkpolicy":
		dn := e.Text("PolicyDN")
		if policy, ok := s.state.zones[dn]; ok {
			Answer(w, http.StatusOK, policy)
			return
		}
		Answer(w, http.StatusBadRequest, fmt.Sprintf(`{"Error":"PolicyDN: %s does not exist"}`, strings.ReplaceAll(dn, `\`, `\\`)))
	case "/vedsdk/certificates/reset":
		Answer(w, http.StatusBadRequest, `{"Error":"The certificate does not exist or you do not have sufficient rights to the object."}`)
	case "/vedsdk/certificates/request":
		dn := e.Text("PolicyDN") + `\` + e.Text("ObjectName")
		s.state.csrs[dn] = e.Text("PKCS10")
		out, _ := json.Marshal(map[string]string{"CertificateDN": dn}) //nolint:errchkjson // strings
		Answer(w, http.StatusOK, string(out))
	case "/vedsdk/metadata/get":
		Answer(w, http.StatusOK, `{"Data":[{"Key":{"Label":"Team"},"Value":["web"]},{"Key":{"Label":"Cost center"},"Value":["42"]}]}`)
	case "/vedsdk/certificates/retrieve":
		s.retrieve(w, e.Text("CertificateDN"))
	default:
		s.t.Errorf("unexpected %s", e.Call)
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *Server) retrieve(w http.ResponseWriter, dn string) {
	csr, ok := s.state.csrs[dn]
	if !ok {
		Answer(w, http.StatusBadRequest, `{"Error":"Certificate does not exist"}`)
		return
	}
	if s.state.Pending > 0 {
		s.state.Pending--
		Answer(w, http.StatusAccepted, `{"Stage":400,"Status":"Waiting for approval"}`)
		return
	}
	chain, err := s.ca.Issue(csr)
	if err != nil {
		s.t.Error(err)
	}
	Answer(w, http.StatusOK, fmt.Sprintf(`{"CertificateData":%q,"Format":"base64"}`, base64.StdEncoding.EncodeToString(chain)))
}

// authorize gives tokens.
func (s *Server) authorize(w http.ResponseWriter, path string, e Exchange) {
	password := e.Text("password")
	good := path == "/vedauth/authorize/oauth" && password != "" && s.state.Passwords[e.Text("username")] == password ||
		path == "/vedauth/authorize/token" && s.state.Refresh[e.Text("refresh_token")]
	if !good {
		Answer(w, http.StatusBadRequest, `{"error":"invalid_grant","error_description":"Username/password combination not valid"}`)
		return
	}
	s.state.minted++
	token, refresh := fmt.Sprintf("token-%d", s.state.minted), fmt.Sprintf("refresh-%d", s.state.minted)
	s.state.Tokens, s.state.Refresh = map[string]bool{token: true}, map[string]bool{refresh: true}
	Answer(w, http.StatusOK, fmt.Sprintf(`{"access_token":%q,"refresh_token":%q,"expires":%d,"scope":"certificate:manage"}`, token, refresh, s.state.Expires.Unix()))
}
