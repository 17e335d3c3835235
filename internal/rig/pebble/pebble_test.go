package pebble_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/rig/pebble"
)

// lines is a log that may be written and read at once.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Servers that start side by side each get their own options, although Pebble takes them from
// the environment; and the environment is afterwards as it was.
func TestOptionsOfServersSideBySide(t *testing.T) {
	t.Setenv("PEBBLE_AUTHZREUSE", "77")
	var wg sync.WaitGroup
	for i := range 8 {
		quick := i%2 == 0
		o := pebble.Options{NonceRejectPercent: 1, AuthzReusePercent: 2, MaxSleep: 3 * time.Second}
		want := "reject 1% of good nonces|identifier 2% of the time|sleep time to 3 seconds"
		if quick {
			o = pebble.Options{NonceRejectPercent: 4, AlwaysValid: true}
			want = "reject 4% of good nonces|identifier 0% of the time|Disabling random VA sleeps|always returns valid"
		}
		log := new(lines)
		o.Log = log
		wg.Go(func() {
			s, err := pebble.Start(t.Context(), o)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for line := range strings.SplitSeq(want, "|") {
				if !strings.Contains(log.String(), line) {
					t.Errorf("the log lacks %q", line)
				}
			}
		})
	}
	wg.Wait()
	if got := os.Getenv("PEBBLE_AUTHZREUSE"); got != "77" {
		t.Errorf("PEBBLE_AUTHZREUSE is %q", got)
	}
	if got, ok := os.LookupEnv("PEBBLE_WFE_NONCEREJECT"); ok {
		t.Errorf("PEBBLE_WFE_NONCEREJECT is left as %q", got)
	}
}

func TestServesUntilClosed(t *testing.T) {
	t.Parallel()
	s, err := pebble.Start(t.Context(), pebble.Options{AlternateRoots: 1, Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Wrapped", "yes")
			h.ServeHTTP(w, r)
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	client := s.HTTPClient()
	res, err := client.Get(s.DirectoryURL)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || !bytes.Contains(body, []byte("newOrder")) || res.Header.Get("X-Wrapped") != "yes" {
		t.Errorf("%s, %v", body, err)
	}
	if n := len(s.Roots()); n != 2 || bytes.Count(s.RootsPEM(), []byte("BEGIN")) != 2 {
		t.Errorf("%d roots", n)
	}
	s.Close()
	s.Close()
	if res, err := client.Get(s.DirectoryURL); err == nil {
		_ = res.Body.Close()
		t.Error("it still answers")
	}
	if _, err := pebble.Start(t.Context(), pebble.Options{EABKeys: map[string]string{"a": "no base64!"}}); err == nil {
		t.Error("a broken EAB key is taken")
	}
}

// An authorization that is deactivated while a validation of it is under way: Pebble by itself
// keeps a lock then, and answers no more.
func TestDeactivatedInTheMiddleOfAValidation(t *testing.T) {
	t.Parallel()
	asked, goOn := make(chan struct{}, 16), make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-goOn
	}))
	t.Cleanup(site.Close)
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release) // or the site would not close
	s, err := pebble.Start(t.Context(), pebble.Options{HTTPPort: site.Listener.Addr().(*net.TCPAddr).Port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // as rig.Patience
	defer cancel()
	c, challenge, authz := pending(ctx, t, s)
	if err := c.AcceptChallenge(ctx, challenge); err != nil {
		t.Fatal(err)
	}
	<-asked
	for range 3 {
		if a, err := c.DeactivateAuthorization(ctx, authz); err != nil || a.Status != acme.StatusDeactivated {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	release()
	for {
		a, err := c.GetAuthorization(ctx, authz)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Challenges) > 0 && a.Challenges[0].Status == acme.StatusInvalid {
			break
		}
	}
	if a, err := c.GetAuthorization(ctx, authz); err != nil || a.Status != acme.StatusInvalid {
		t.Errorf("%+v, %v", a, err)
	}
}

// pending is an authorization for 127.0.0.1 of a new account, and its http-01 challenge.
func pending(ctx context.Context, t *testing.T, s *pebble.Server) (c *acmeclient.Client, challenge, authz string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c, err = acmeclient.New(acmeclient.Options{DirectoryURL: s.DirectoryURL, HTTPClient: s.HTTPClient(), UserAgent: "test", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.NewAccount(ctx, acme.NewAccountRequest{TermsOfServiceAgreed: true}); err != nil {
		t.Fatal(err)
	}
	order, err := c.NewOrder(ctx, acme.NewOrderRequest{Identifiers: []acme.Identifier{{Type: acme.IdentifierIP, Value: "127.0.0.1"}}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.GetAuthorization(ctx, order.Authorizations[0])
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(a.Challenges, func(ch acme.Challenge) bool { return ch.Type == acme.ChallengeHTTP01 })
	return c, a.Challenges[i].URL, order.Authorizations[0]
}
