package vault

import (
	"context"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

const (
	clusterNamespace = "cert-manager"
)

// call is a request as the stand-in got it.
type call struct {
	method, path, token, namespace string
	body                           map[string]any
	shown                          []*x509.Certificate
	header                         http.Header
}

// answering is what the stand-in says instead of its usual answer.
type answering struct {
	code int
	text string
}

// standIn speaks as much of Vault as a signer hears: health, logins, and a CA that signs.
type standIn struct {
	*httptest.Server

	root, sub *x509.Certificate

	mu      sync.Mutex
	calls   []call
	say     map[string]answering // by path
	lease   int
	logins  int
	valid   map[string]bool // tokens
	sealed  bool
	held    chan struct{} // while set, nothing is answered
	signing func(csr *x509.CertificateRequest) (*x509.Certificate, error)
}

func newStandIn(t *testing.T, start func(*httptest.Server)) *standIn {
	t.Helper()
	v := &standIn{say: map[string]answering{}, valid: map[string]bool{"s.fixed": true}, lease: 3600}
	v.Server = httptest.NewUnstartedServer(v)
	start(v.Server)
	t.Cleanup(v.Close)
	rootKey, subKey := newKey(t), newKey(t)
	v.root = issue(t, "root", true, rootKey, nil, rootKey)
	v.sub = issue(t, "sub", true, subKey, v.root, rootKey)
	v.signing = func(csr *x509.CertificateRequest) (*x509.Certificate, error) {
		return issueFor(csr, false, v.sub, subKey)
	}
	return v
}

func (v *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	held := v.held
	v.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	c := call{method: r.Method, path: r.URL.Path, token: r.Header.Get("X-Vault-Token"), namespace: r.Header.Get("X-Vault-Namespace"), header: r.Header}
	if r.TLS != nil {
		c.shown = r.TLS.PeerCertificates
	}
	_ = json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&c.body)
	v.calls = append(v.calls, c)
	said, scripted := v.say[c.path]
	switch {
	case c.path == "/v1/sys/health" && !scripted:
		reply(w, 200, map[string]any{"initialized": true, "sealed": v.sealed})
	case v.sealed && c.path != "/v1/sys/health":
		reply(w, 503, map[string]any{"errors": []string{"Vault is sealed"}})
	case scripted && strings.HasPrefix(said.text, "<"): // not Vault's own words
		w.WriteHeader(said.code)
		_, _ = io.WriteString(w, said.text)
	case scripted && said.code == 200:
		_, _ = io.WriteString(w, said.text)
	case scripted:
		reply(w, said.code, map[string]any{"errors": []string{said.text}})
	case strings.HasSuffix(c.path, "/login"):
		v.logins++
		token := fmt.Sprintf("s.login%d", v.logins)
		v.valid[token] = true
		reply(w, 200, map[string]any{"auth": map[string]any{"client_token": token, "lease_duration": v.lease}})
	case !v.valid[c.token]:
		reply(w, 403, map[string]any{"errors": []string{"permission denied"}})
	default:
		v.sign(w, c)
	}
}

func (v *standIn) sign(w http.ResponseWriter, c call) {
	text, _ := c.body["csr"].(string)
	csr, err := pki.DecodeCSR([]byte(text))
	if err != nil {
		reply(w, 400, map[string]any{"errors": []string{err.Error()}})
		return
	}
	leaf, err := v.signing(csr)
	if err != nil {
		reply(w, 500, map[string]any{"errors": []string{err.Error()}})
		return
	}
	text1 := func(certs ...*x509.Certificate) string {
		return strings.TrimSpace(string(pki.EncodeCertificates(certs...)))
	}
	reply(w, 200, map[string]any{"data": map[string]any{
		"certificate": text1(leaf), "issuing_ca": text1(v.sub), "ca_chain": []string{text1(v.sub), text1(v.root)},
	}})
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// seen returns the calls of a path since the start.
func (v *standIn) seen(path string) []call {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []call
	for _, c := range v.calls {
		if c.path == path {
			out = append(out, c)
		}
	}
	return out
}

// with changes the stand-in.
func (v *standIn) with(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

// secrets is a store of Secrets, by namespace/name.
type secrets map[string]*corev1.Secret

func (s secrets) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	if secret, ok := s[namespace+"/"+name]; ok {
		return secret, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

// put stores a Secret in a new version.
func (s secrets) put(namespace, name string, data map[string]string) {
	version := "1"
	if old := s[namespace+"/"+name]; old != nil {
		version = old.ResourceVersion + "1"
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: version}, Data: map[string][]byte{}}
	for k, v := range data {
		secret.Data[k] = []byte(v)
	}
	s[namespace+"/"+name] = secret
}

// tokens gives tokens that tell what they were asked for; err instead if set.
type tokens struct{ err error }

// Own says that the controller runs as the account cert-manager in the cluster resource namespace.
func (k *tokens) Own(_ context.Context, account types.NamespacedName) (bool, error) {
	return account == types.NamespacedName{Namespace: clusterNamespace, Name: "cert-manager"}, nil
}

func (k *tokens) Token(_ context.Context, account types.NamespacedName, audiences []string) (string, error) {
	return account.String() + " for " + strings.Join(audiences, " "), k.err
}

// world is a Signer with what it needs.
type world struct {
	*Signer

	t       *testing.T
	vault   *standIn
	secrets secrets
	tokens  *tokens

	mu  sync.Mutex
	now time.Time
}

func newWorld(t *testing.T, vault *standIn) *world {
	t.Helper()
	w := &world{t: t, vault: vault, secrets: secrets{}, tokens: &tokens{}, now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.Signer = New(Config{
		Secrets: w.secrets, Token: w.tokens.Token, Own: w.tokens.Own,
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
		ClusterResourceNamespace: clusterNamespace,
		AWS:                      AWSConfig{ClusterIssuerAmbient: true, Getenv: func(string) string { return "" }},
	})
	return w
}

// step moves the clock.
func (w *world) step(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// probe looks at an issuer.
func (w *world) probe(issuer certmanagerv1.GenericIssuer) (signer.Facts, *fault.Fault) {
	w.t.Helper()
	facts, err := w.Probe(w.t.Context(), issuer)
	f := fault.Of(err)
	if (facts.Reason != "") == (f != nil) || err != nil && f == nil {
		w.t.Fatalf("%+v, %v: want facts or a fault", facts, err)
	}
	return facts, f
}

// sign signs.
func (w *world) sign(issuer certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	w.t.Helper()
	return w.Sign(w.t.Context(), issuer, r)
}

// issuer returns an Issuer in the namespace team for the stand-in, by token unless
// changed; without a namespace it is a ClusterIssuer.
func (w *world) issuer(namespace string, change func(*certmanagerv1.VaultIssuer)) certmanagerv1.GenericIssuer {
	spec := certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{Server: w.vault.URL, Path: "pki/sign/web"}}
	change(spec.Vault)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "v", UID: types.UID("issuer-" + namespace), Generation: 2}
	if namespace == "" {
		return &certmanagerv1.ClusterIssuer{ObjectMeta: meta, Spec: spec}
	}
	return &certmanagerv1.Issuer{ObjectMeta: meta, Spec: spec}
}

// byToken lets an issuer log in with the token that the stand-in knows.
func (w *world) byToken(v *certmanagerv1.VaultIssuer) {
	w.secrets.put("team", "token", map[string]string{"token": " s.fixed\n"})
	v.Auth.TokenSecretRef = &cmmeta.SecretKeySelector{Name: "token"}
}

// byAppRole has an issuer log in by an AppRole.
func (w *world) byAppRole(v *certmanagerv1.VaultIssuer) {
	w.secrets.put("team", "approle", map[string]string{"id": "secret\n"})
	v.Auth.AppRole = &certmanagerv1.VaultAppRole{Path: "/approle/", RoleID: "role", SecretRef: cmmeta.SecretKeySelector{Name: "approle", Key: "id"}}
}

func request(t testing.TB, name, kind string) signer.Request {
	t.Helper()
	return requestFor(t, name, kind, newKey(t))
}

func requestFor(t testing.TB, name, kind string, key crypto.Signer) signer.Request {
	t.Helper()
	csr, err := pki.CreateCSR(pki.CSRTemplate{
		Subject:  pkix.Name{CommonName: "leaf"},
		AltNames: pki.AltNames{DNSNames: []string{"a.example.com", "b.example.com"}, IPAddresses: []string{"10.0.0.1", "fd00::1"}, URIs: []string{"spiffe://x/y"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	source := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
	return signer.Request{Source: source, SourceKind: kind, CSR: csr, Duration: 36 * time.Hour, Usages: certmanagerv1.DefaultKeyUsages()}
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func issue(t testing.TB, cn string, isCA bool, key crypto.Signer, parent *x509.Certificate, parentKey crypto.Signer) *x509.Certificate {
	t.Helper()
	names := pki.AltNames{DNSNames: []string{cn}, IPAddresses: []string{"127.0.0.1"}}
	if isCA {
		names = pki.AltNames{}
	}
	text, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: cn}, AltNames: names}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.DecodeCSR(text)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := issueFor(csr, isCA, parent, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func issueFor(csr *x509.CertificateRequest, isCA bool, parent *x509.Certificate, parentKey crypto.Signer) (*x509.Certificate, error) {
	usages, err := pki.ParseUsages([]certmanagerv1.KeyUsage{certmanagerv1.UsageServerAuth, certmanagerv1.UsageClientAuth}, isCA, nil)
	if err != nil {
		return nil, err
	}
	template, err := pki.NewTemplate(csr, pki.Issuance{NotBefore: time.Now().Add(-time.Hour), Duration: 24 * time.Hour, IsCA: isCA, Usages: usages})
	if err != nil {
		return nil, err
	}
	if parent == nil {
		parent = template
	}
	return pki.Sign(template, parent, parentKey)
}

func keyPEM(t *testing.T, key crypto.Signer) string {
	t.Helper()
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func certPEM(certs ...*x509.Certificate) string { return string(pki.EncodeCertificates(certs...)) }

func serverPEM(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}
