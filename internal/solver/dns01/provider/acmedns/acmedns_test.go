package acmedns_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/solver/conformance"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/acmedns"
	"chancery.dev/internal/solver/dns01/provider/limit"
)

const password = "p4ssw0rd-of-the-account"

// server does what an acme-dns server does with updates: it checks the account, and
// keeps the last two values.
type server struct {
	*httptest.Server
	mu        sync.Mutex
	values    []string
	updates   int
	throttled bool
	slow      chan struct{}
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.update))
	t.Cleanup(s.Close)
	return s
}

func (s *server) update(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	slow := s.slow
	s.mu.Unlock()
	if slow != nil {
		<-slow
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var body struct{ Subdomain, Txt string }
	switch err := json.NewDecoder(r.Body).Decode(&body); {
	case s.throttled:
		http.Error(w, `{"error": "slow down"}`, http.StatusTooManyRequests)
	case r.Method != http.MethodPost, r.URL.Path != "/update", err != nil, len(body.Txt) != 43, r.UserAgent() != "chancery/test":
		http.Error(w, `{"error": "malformed"}`, http.StatusBadRequest)
	case r.Header.Get("X-Api-User") != "user", r.Header.Get("X-Api-Key") != password, body.Subdomain != "sub":
		http.Error(w, `{"error": "forbidden: `+r.Header.Get("X-Api-Key")+`"}`, http.StatusUnauthorized)
	default:
		s.updates++
		s.values = append(s.values, body.Txt)
		s.values = s.values[max(0, len(s.values)-2):]
		_, _ = w.Write([]byte(`{"txt": "` + body.Txt + `"}`))
	}
}

// secrets holds one Secret.
type secrets map[string][]byte

func (s secrets) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	if name != "accounts" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return &corev1.Secret{Data: s}, nil
}

func accounts(pass string) secrets {
	return secrets{"accounts.json": []byte(`{"example.test": {"username": "user", "password": "` + pass +
		`", "fulldomain": "sub.auth.test", "subdomain": "sub", "allowfrom": []}}`)}
}

func config(host string) *acmev1.AcmeDNSProvider {
	return &acmev1.AcmeDNSProvider{Host: host, AccountSecretRef: cmmeta.SecretKeySelector{Name: "accounts", Key: "accounts.json"}}
}

func record(domain string, n int) dns01.Record {
	return dns01.Record{Domain: domain, Value: strings.Repeat(string(rune('a'+n)), 43)}
}

func TestConformance(t *testing.T) {
	s := serve(t)
	var client *acmedns.Client
	present := func(ctx context.Context, pass string, n int) error {
		p, err := client.Provider(ctx, config(s.URL), "ns", accounts(pass))
		if err != nil {
			return err
		}
		return p.Present(ctx, record("Example.test", n))
	}
	client = acmedns.New(s.Client(), "chancery/test", nil)
	conformance.RunProvider(t, conformance.ProviderHarness{
		Forgets: true, Secret: password,
		Present: func(ctx context.Context, n int) error { return present(ctx, password, n) },
		CleanUp: func(ctx context.Context, n int) error {
			p, err := client.Provider(ctx, config(s.URL), "ns", accounts(password))
			if err != nil {
				return err
			}
			return p.CleanUp(ctx, record("example.test", n))
		},
		Denied: func(ctx context.Context) error { return present(ctx, "wrong-"+password, 2) },
		Count: func(n int) (times int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, v := range s.values {
				if v == record("", n).Value {
					times++
				}
			}
			return times
		},
		Throttle: func(on bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.throttled = on
			client = acmedns.New(s.Client(), "chancery/test", nil) // which has sent nothing yet
		},
		Slow: func(on bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			client = acmedns.New(s.Client(), "chancery/test", nil)
			if on {
				s.slow = make(chan struct{})
				return
			}
			close(s.slow)
			s.slow, s.values = nil, nil
		},
	})
}

// A value that is there must not push the other one out.
func TestPresentAgainKeepsTheOther(t *testing.T) {
	s := serve(t)
	client := acmedns.New(s.Client(), "chancery/test", nil)
	for _, n := range []int{0, 1, 1, 0, 1} {
		p, err := client.Provider(t.Context(), config(s.URL), "ns", accounts(password))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Present(t.Context(), record("example.test", n)); err != nil {
			t.Fatal(err)
		}
	}
	if s.updates != 2 {
		t.Errorf("%d updates for two values", s.updates)
	}
}

// A value that is missed was pushed out by somebody else: it is sent again, and known as the newest.
func TestMissedValuesAreSentAgain(t *testing.T) {
	s := serve(t)
	p, err := acmedns.New(s.Client(), "chancery/test", nil).Provider(t.Context(), config(s.URL), "ns", accounts(password))
	if err != nil {
		t.Fatal(err)
	}
	missed := record("example.test", 0)
	missed.Missed = true
	for i, r := range []dns01.Record{record("example.test", 0), record("example.test", 1), missed, record("example.test", 1), missed} {
		s.mu.Lock()
		if i == 2 {
			s.values = []string{"x", "y"} // another cluster's
		}
		s.mu.Unlock()
		if err := p.Present(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if want := record("", 0).Value; s.updates != 4 || s.values[1] != want {
		t.Errorf("%d updates, the server has %q", s.updates, s.values)
	}
}

// A server must not send the account's password elsewhere.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s was asked, with the password %q", r.URL, r.Header.Get("X-Api-Key"))
	}))
	defer elsewhere.Close()
	s := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	p, err := acmedns.New(nil, "chancery/test", nil).Provider(t.Context(), config(s.URL), "ns", accounts(password))
	if err != nil {
		t.Fatal(err)
	}
	err = p.Present(t.Context(), record("example.test", 0))
	if f := fault.Of(err); f == nil || f.Reason != dns01.ReasonRefused || !strings.Contains(err.Error(), "status 307") {
		t.Errorf("got %v (%+v)", err, f)
	}
}

// A server in trouble is left alone after three failures: neither a clean-up, which asks
// nothing, nor an account that it does not take changes that, a changed Secret does.
func TestPause(t *testing.T) {
	s := serve(t)
	asked := 0
	code := http.StatusUnauthorized
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked++; w.WriteHeader(code) })
	client := acmedns.New(s.Client(), "chancery/test", limit.New(limit.Options{}))
	present := func(data secrets) *fault.Fault {
		t.Helper()
		p, err := client.Provider(t.Context(), config(s.URL), "ns", data)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.CleanUp(t.Context(), record("example.test", 0)); err != nil {
			t.Fatal(err)
		}
		f := fault.Of(p.Present(t.Context(), record("example.test", 0)))
		if f == nil {
			t.Fatal("Present went well")
		}
		return f
	}
	for range 4 {
		if f := present(accounts(password)); f.Reason != dns01.ReasonRefused {
			t.Fatalf("got %+v", f)
		}
	}
	code = http.StatusBadGateway
	for range 3 {
		if f := present(accounts(password)); f.Reason != dns01.ReasonRefused {
			t.Fatalf("got %+v", f)
		}
	}
	if f := present(accounts(password)); f.Reason != limit.ReasonPaused || asked != 7 || !strings.Contains(f.Error(), "status 502") {
		t.Errorf("after three failures: %+v, asked %d times", f, asked)
	}
	if f := present(accounts("changed")); f.Reason != dns01.ReasonRefused || asked != 8 {
		t.Errorf("with a changed Secret: %+v, asked %d times", f, asked)
	}
}

func TestMistakes(t *testing.T) {
	s := serve(t)
	for _, c := range []struct {
		name   string
		config *acmev1.AcmeDNSProvider
		data   secrets
		domain string
		kind   fault.Kind
		says   string
	}{
		{"no account", config(s.URL), accounts(password), "other.test", fault.KindAfter, `no account for "other.test"`},
		{"no JSON", config(s.URL), secrets{"accounts.json": []byte(password)}, "example.test", fault.KindAfter, "not a JSON object"},
		{"no entry", config(s.URL), secrets{}, "example.test", fault.KindAfter, `no entry "accounts.json"`},
		{"no server", config("ftp://x"), accounts(password), "example.test", fault.KindTerminal, "not the address of a server"},
		{"line break", config(s.URL), accounts(password + `\n`), "example.test", fault.KindAfter, "line break"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := acmedns.New(s.Client(), "chancery/test", nil).Provider(t.Context(), c.config, "ns", c.data)
			if err == nil {
				err = p.Present(t.Context(), record(c.domain, 0))
			}
			if f := fault.Of(err); f == nil || f.Kind != c.kind || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), password) {
				t.Errorf("got %v (%+v), want kind %v and %q", err, f, c.kind, c.says)
			}
		})
	}
}
