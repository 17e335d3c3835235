package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/netns"
	"chancery.dev/internal/rig/solver/conformance"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/limit"
	"chancery.dev/internal/solver/dns01/provider/webhook"
)

const (
	solverName = "example-solver"
	password   = "p4ssw0rd-in-a-message"
)

// server is a minimal aggregated API server with one solver, as webhooks made for
// cert-manager are: it takes a ChallengePayload and knows nothing of us.
type server struct {
	group string
	mu    sync.Mutex
	// answer decides about a request; nil keeps records.
	answer  func(request map[string]any) map[string]any
	records []string
	seen    []map[string]any
	slow    chan struct{}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	root := "/apis/" + s.group
	var out any
	switch {
	case r.URL.Path == "/apis":
		out = metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	case r.URL.Path == root+"/v1alpha1" && r.Method == http.MethodGet:
		out = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: s.group + "/v1alpha1",
			APIResources: []metav1.APIResource{{Name: solverName, Kind: "ChallengePayload", Verbs: metav1.Verbs{"create"}}}}
	case r.URL.Path == root+"/v1alpha1/"+solverName && r.Method == http.MethodPost:
		out = s.solve(r)
	default:
		w.WriteHeader(http.StatusNotFound)
		out = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: http.StatusNotFound, Message: "no " + r.URL.Path}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // a client that is gone does not want it
}

func (s *server) solve(r *http.Request) any {
	s.mu.Lock()
	slow := s.slow
	s.mu.Unlock()
	if slow != nil {
		<-slow
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var in map[string]any
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		return nil
	}
	s.seen = append(s.seen, in)
	request, _ := in["request"].(map[string]any)
	response := map[string]any{"uid": request["uid"], "success": true}
	if s.answer != nil {
		response = s.answer(request)
	} else {
		record := fmt.Sprint(request["resolvedFQDN"], " ", request["key"])
		s.records = slices.DeleteFunc(s.records, func(r string) bool { return r == record })
		if request["action"] == "Present" {
			s.records = append(s.records, record)
		}
	}
	return map[string]any{"kind": "ChallengePayload", "apiVersion": "webhook.acme.cert-manager.io/v1alpha1", "response": response}
}

// certificate is one for a service name, its own CA.
func certificate(t *testing.T, name string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// manifests register a server with the API server, and let the controller ask it.
const manifests = `
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: %[1]s}
spec: {type: ExternalName, externalName: "%[4]s"}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1alpha1.%[3]s}
spec:
  group: %[3]s
  version: v1alpha1
  groupPriorityMinimum: 1000
  versionPriority: 15
  service: {name: webhook, namespace: %[1]s, port: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "%[3]s"}
rules: [{apiGroups: ["%[3]s"], resources: ["*"], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "%[3]s"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "%[3]s"}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: "system:serviceaccount:cert-manager:cert-manager"}]
`

// address is where the server listens, and what the Service names.
const address = "10.89.1.1"

func TestMain(m *testing.M) { os.Exit(netns.Run(m, address+"/32")) }

// install registers a server at the real API server, and returns a Client with the
// rights of the controller.
func install(t *testing.T, s *server) *webhook.Client {
	t.Helper()
	admin := rig.Cluster(t)
	c, err := client.New(admin, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"generateName": "webhook-"},
	}}
	if err := c.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	s.group = namespace.GetName() + ".example.com"
	host := address
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	tlsServer := httptest.NewUnstartedServer(s)
	if err := tlsServer.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	tlsServer.Listener = listener
	pair, ca := certificate(t, "webhook."+namespace.GetName()+".svc")
	tlsServer.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)
	_, port, err := net.SplitHostPort(tlsServer.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(fmt.Sprintf(manifests, namespace.GetName(), port, s.group, host), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		if object.GetKind() == "APIService" {
			if err := unstructured.SetNestedField(object.Object, encode(t, ca), "spec", "caBundle"); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
	}
	asController, err := webhook.New(rig.As(admin, rig.Controller), nil)
	if err != nil {
		t.Fatal(err)
	}
	return asController
}

func encode(t *testing.T, b []byte) string {
	t.Helper()
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(text), `"`)
}

func provider(t *testing.T, c *webhook.Client, group string) *webhook.Provider {
	t.Helper()
	p, err := c.Provider(&acmev1.WebhookProvider{
		GroupName: group, SolverName: solverName, Config: &apiextensionsv1.JSON{Raw: []byte(`{"zone":"example.test","ttl":60}`)},
	}, dns01.Use{UID: "1234", Namespace: "team", Ambient: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func record(n int) dns01.Record {
	return dns01.Record{
		Domain: "www.example.test", FQDN: "_acme-challenge.www.example.test.", Zone: "example.test.",
		Value: strings.Repeat(string(rune('a'+n)), 43), Token: "token", TTL: 60,
	}
}

// await retries until the API server has noticed the webhook and the right to ask it.
func await(t *testing.T, p *webhook.Provider) {
	t.Helper()
	deadline := time.Now().Add(rig.Patience)
	for {
		err := p.CleanUp(t.Context(), record(9))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the API server's clock, not ours
	}
}

func TestAggregatedAPIServer(t *testing.T) {
	s := &server{}
	c := install(t, s)
	p := provider(t, c, s.group)
	await(t, p)
	denied := func(ctx context.Context) error {
		s.mu.Lock()
		s.answer = func(r map[string]any) map[string]any {
			return map[string]any{"uid": r["uid"], "success": false, "status": map[string]any{"status": "Failure", "message": "the API says 401 Unauthorized"}}
		}
		s.mu.Unlock()
		err := p.Present(ctx, record(2))
		s.mu.Lock()
		s.answer = nil
		s.mu.Unlock()
		return err
	}
	conformance.RunProvider(t, s.harness(p, denied))
	if err := denied(t.Context()); err == nil || !strings.Contains(err.Error(), "401 Unauthorized") || !strings.Contains(err.Error(), s.group+"/"+solverName) {
		t.Errorf("a failure says %v", err)
	}
	payload(t, s, p)
	unavailable(t, c, s)
}

// payload: what a webhook made for cert-manager gets (spec §5.9), to the field.
func payload(t *testing.T, s *server, p *webhook.Provider) {
	t.Helper()
	if err := p.Present(t.Context(), record(0)); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	got, err := json.Marshal(s.seen[len(s.seen)-1])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"webhook.acme.cert-manager.io/v1alpha1","kind":"ChallengePayload","request":{"action":"Present",` +
		`"allowAmbientCredentials":true,"config":{"ttl":60,"zone":"example.test"},"dnsName":"www.example.test","key":"` + record(0).Value +
		`","resolvedFQDN":"_acme-challenge.www.example.test.","resolvedZone":"example.test.","resourceNamespace":"team","type":"dns-01","uid":"1234"}}`
	if string(got) != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
}

// unavailable: what is missing is said, and who has to mend it.
func unavailable(t *testing.T, c *webhook.Client, s *server) {
	t.Helper()
	fails := func(c *webhook.Client, group, reason, says string) {
		t.Helper()
		err := provider(t, c, group).Present(t.Context(), record(0))
		if f := fault.Of(err); f == nil || f.Kind != fault.KindAfter || f.Reason != reason || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v (%+v), want reason %s and %q", err, f, reason, says)
		}
	}
	fails(c, "not-granted.example.com", webhook.ReasonForbidden, "ClusterRole")
	admin, err := webhook.New(rig.Cluster(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	fails(admin, "not-installed.example.com", webhook.ReasonUnavailable, "APIService v1alpha1.not-installed.example.com")
	s.mu.Lock()
	s.answer = func(map[string]any) map[string]any { return map[string]any{"success": false} }
	s.mu.Unlock()
	fails(c, s.group, webhook.ReasonFailed, "does not say why")
}

// What is not an answer is told from what is, without echoing it.
func TestAnswers(t *testing.T) {
	var status int
	var body string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer s.Close()
	c, err := webhook.New(&rest.Config{Host: s.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range []struct {
		status             int
		body, reason, says string
	}{
		{200, `{"response": {"success": true}}`, "", ""},
		{201, `{"response": {"success": true}}`, "", ""},
		{200, password, webhook.ReasonFailed, "not a ChallengePayload"},
		{200, `{}`, webhook.ReasonFailed, "not a ChallengePayload"},
		{200, `{"response": {"success": false, "status": {"message": "` + strings.Repeat("x", 4096) + `"}}}`, webhook.ReasonFailed, "xxx…"},
		{503, password, webhook.ReasonUnavailable, "Pods"},
		{500, `{"kind": "Status", "message": "it broke"}`, webhook.ReasonFailed, "status 500 it broke"},
		{500, password, webhook.ReasonFailed, "status 500"},
	} {
		status, body = answer.status, answer.body
		err := provider(t, c, "g.example.com").Present(t.Context(), record(0))
		f := fault.Of(err)
		if answer.reason == "" {
			if err != nil {
				t.Errorf("%+v: %v", answer, err)
			}
			continue
		}
		if f == nil || f.Reason != answer.reason || !strings.Contains(err.Error(), answer.says) || strings.Contains(err.Error(), password) || len(err.Error()) > 1200 {
			t.Errorf("%+v: %v (%+v)", answer, err, f)
		}
	}
}

// A webhook that says that it is throttled is left alone for as long as it says; one that
// fails three times because it is out of order, for half a minute. What it refuses pauses nothing.
func TestPause(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		asked  int
		pause  time.Duration
	}{
		"throttled":      {200, `{"response": {"status": {"message": "slow down", "code": 429, "details": {"retryAfterSeconds": 120}}}}`, 1, 2 * time.Minute},
		"throttled, too": {429, `{"message": "slow down"}`, 1, 30 * time.Second},
		"out of order":   {200, `{"response": {"status": {"message": "no backend", "reason": "ServiceUnavailable"}}}`, 3, 30 * time.Second},
		"unreachable":    {502, ``, 3, 30 * time.Second},
		"refused":        {200, `{"response": {"status": {"message": "no such zone"}}}`, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked++
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			defer s.Close()
			now := time.Now()
			client, err := webhook.New(&rest.Config{Host: s.URL}, limit.New(limit.Options{Now: func() time.Time { return now }}))
			if err != nil {
				t.Fatal(err)
			}
			for range 4 {
				_ = provider(t, client, "g.example.com").Present(t.Context(), record(0))
			}
			f := fault.Of(provider(t, client, "g.example.com").Present(t.Context(), record(0)))
			if f == nil || asked != c.asked || (f.Reason == limit.ReasonPaused) != (c.pause > 0) || c.pause > 0 && f.Delay != c.pause {
				t.Errorf("asked %d times, then %+v", asked, f)
			}
			_ = provider(t, client, "other.example.com").Present(t.Context(), record(0))
			if asked != c.asked+1 {
				t.Error("another webhook is paused too")
			}
		})
	}
}

// A webhook must not send the controller's token elsewhere.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s was asked, with authorization %q", r.URL, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	s := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	c, err := webhook.New(&rest.Config{Host: s.URL, BearerToken: "of-the-controller"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = provider(t, c, "g.example.com").Present(t.Context(), record(0))
	if f := fault.Of(err); f == nil || f.Reason != webhook.ReasonFailed || !strings.Contains(err.Error(), "status 307") {
		t.Errorf("got %v (%+v)", err, f)
	}
}

// An issuer names a group and a solver, not a path of the API server.
func TestNamesAreNoPaths(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s was asked", r.URL) }))
	defer s.Close()
	c, err := webhook.New(&rest.Config{Host: s.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range [][2]string{{"..", "x"}, {"x", ".."}, {"x/y", "z"}, {"x", "namespaces/ns/secrets"}, {"x", "."}, {"x", "%2e%2e"}} {
		_, err := c.Provider(&acmev1.WebhookProvider{GroupName: names[0], SolverName: names[1]}, dns01.Use{})
		if f := fault.Of(err); f == nil || f.Kind != fault.KindTerminal || f.Reason != dns01.ReasonInvalidConfig {
			t.Errorf("%q: %v (%+v)", names, err, f)
		}
	}
}

// harness is what the conformance suite needs to know of a provider that asks the server.
func (s *server) harness(p *webhook.Provider, denied func(context.Context) error) conformance.ProviderHarness {
	return conformance.ProviderHarness{
		Present: func(ctx context.Context, n int) error { return p.Present(ctx, record(n)) },
		CleanUp: func(ctx context.Context, n int) error { return p.CleanUp(ctx, record(n)) },
		Denied:  denied,
		Count: func(n int) (times int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, r := range s.records {
				if r == record(n).FQDN+" "+record(n).Value {
					times++
				}
			}
			return times
		},
		Slow: func(on bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if on {
				s.slow = make(chan struct{})
				return
			}
			close(s.slow)
			s.slow = nil
		},
	}
}
