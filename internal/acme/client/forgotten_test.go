package client_test

import (
	"context"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"chancery.dev/internal/acme/client"
)

// restarting is an ACME server that forgets its nonces when it starts anew.
type restarting struct {
	mu   sync.Mutex
	n    int
	good map[string]bool
	// stale answers a request whose nonce is not known.
	stale func(w http.ResponseWriter)
	// gate makes the requests of a burst wait for one another.
	gate *sync.WaitGroup
}

func (s *restarting) give(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	nonce := fmt.Sprintf("n%d", s.n)
	s.good[nonce] = true
	w.Header().Set("Replay-Nonce", nonce)
}

// takes reports whether the nonce of a request is known, and uses it up.
func (s *restarting) takes(r *http.Request) (known bool, gate *sync.WaitGroup) {
	var jws struct{ Protected string }
	_ = json.NewDecoder(r.Body).Decode(&jws)
	head, _ := base64.RawURLEncoding.DecodeString(jws.Protected)
	var p struct{ Nonce string }
	_ = json.Unmarshal(head, &p)
	s.mu.Lock()
	defer s.mu.Unlock()
	known = s.good[p.Nonce]
	delete(s.good, p.Nonce)
	return known, s.gate
}

func (s *restarting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/dir":
		_, _ = io.WriteString(w, `{"newNonce":"/nonce","newAccount":"/account","newOrder":"/order"}`)
		return
	case "/nonce":
		s.give(w)
		return
	}
	known, gate := s.takes(r)
	if !known {
		s.stale(w)
		return
	}
	if gate != nil {
		gate.Done()
		gate.Wait()
	}
	s.give(w)
	_, _ = io.WriteString(w, `{"status":"pending","finalize":"/f"}`)
}

// TestForgottenNonces: a server that starts anew knows none of the nonces that it gave, and gives none with its
// refusals. All that are kept are dropped with the first one that is refused.
func TestForgottenNonces(t *testing.T) {
	const burst = 20
	answer := func(status int, contentType, body string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, stale := range map[string]func(w http.ResponseWriter){
		"a page":    answer(http.StatusInternalServerError, "text/html", "<html>Invalid nonce</html>"),
		"a problem": answer(http.StatusBadRequest, "application/problem+json", `{"type":"urn:ietf:params:acme:error:badNonce"}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := &restarting{good: map[string]bool{}, stale: stale, gate: new(sync.WaitGroup)}
			server := httptest.NewServer(s)
			defer server.Close()
			c, err := client.New(client.Options{DirectoryURL: server.URL + "/dir"})
			if err == nil {
				c, err = c.WithKey(ecKey(t, elliptic.P256()), server.URL+"/acct/1")
			}
			if err != nil {
				t.Fatal(err)
			}
			s.gate.Add(burst)
			var calls sync.WaitGroup
			for range burst {
				calls.Go(func() { _, _ = c.GetOrder(context.Background(), server.URL+"/order/1") })
			}
			calls.Wait()
			s.mu.Lock()
			s.good, s.gate = map[string]bool{}, nil
			s.mu.Unlock()
			failed := 0
			for ; failed < burst; failed++ {
				if _, err = c.GetOrder(context.Background(), server.URL+"/order/1"); err == nil {
					break
				}
			}
			if failed > 1 {
				t.Errorf("%d calls fail, the last with %v", failed, err)
			}
		})
	}
}

// TestWildcardsOfOtherSpelling: RFC 8555 §7.1.4 has the identifier of an authorization without "*.", and some servers
// send it. Both are the same.
func TestWildcardsOfOtherSpelling(t *testing.T) {
	for body, want := range map[string]bool{
		`{"type":"dns","value":"example.com"},"wildcard":true`:   true,
		`{"type":"dns","value":"*.example.com"},"wildcard":true`: true,
		`{"type":"dns","value":"*.example.com"}`:                 true,
		`{"type":"dns","value":"example.com"}`:                   false,
	} {
		f := startFake(t, reply(http.StatusOK, "application/json", `{"status":"pending","challenges":[],"identifier":`+body+`}`))
		a, err := f.client(t, client.Options{}).GetAuthorization(t.Context(), f.URL+"/authz/1")
		if err != nil || a.Identifier.Value != "example.com" || a.Wildcard != want {
			t.Errorf("%s: %+v, %v", body, a, err)
		}
	}
}
