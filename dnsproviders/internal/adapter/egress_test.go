package adapter

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/solver/dns01/wire"
)

// confined returns clients on a confined transport, on a copy of it, and on a copy of the copy.
func confined(t *testing.T, limits *wire.Egress) []*http.Client {
	t.Helper()
	transport := &http.Transport{}
	if err := confine(transport, limits); err != nil {
		t.Fatal(err)
	}
	copied := transport.Clone()
	return []*http.Client{{Transport: transport}, {Transport: copied}, {Transport: copied.Clone()}}
}

// TestConnectionsAreJudged: by the address, whatever the name, also through copies of the transport.
func TestConnectionsAreJudged(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(server.Close)
	byName := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	for _, limits := range []*wire.Egress{{}, {Allow: []string{"192.0.2.0/24"}}, {Allow: []string{"127.0.0.0/8", "::1/128"}, Deny: []string{"127.0.0.0/8", "::1/128"}}} {
		for _, client := range confined(t, limits) {
			for _, address := range []string{server.URL, byName} {
				resp, err := client.Get(address)
				if denied := new(egress.Denied); !errors.As(err, &denied) {
					t.Errorf("%+v: %s: %v, want that it is off limits", limits, address, err)
				}
				if err == nil {
					_ = resp.Body.Close()
				}
			}
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the server was asked %d times", asked.Load())
	}
	for _, limits := range []*wire.Egress{nil, {Allow: []string{"0.0.0.0/0", "::/0", "127.0.0.0/8"}}} {
		for _, client := range confined(t, limits) {
			resp, err := client.Get(server.URL)
			if err != nil {
				t.Fatalf("%+v: %v", limits, err)
			}
			_ = resp.Body.Close()
		}
	}
	if err := confine(&http.Transport{}, &wire.Egress{Deny: []string{"everything"}}); err == nil {
		t.Error("limits that cannot be read are none")
	}
}

// TestNoRedirectToAnotherHost: what a request carries is for the host that the provider's code names.
func TestNoRedirectToAnotherHost(t *testing.T) {
	var asked atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(target.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/elsewhere":
			http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(server.Close)
	for _, client := range confined(t, nil) {
		for path, follows := range map[string]bool{"/elsewhere": false, "/here": true} {
			resp, err := client.Get(server.URL + path)
			if err == nil {
				_ = resp.Body.Close()
			}
			if (err == nil) != follows || !follows && !strings.Contains(err.Error(), "redirects to another host") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the other host was asked %d times", asked.Load())
	}
}
