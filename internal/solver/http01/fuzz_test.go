package http01_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/solver/http01"
)

// FuzzResponder: whatever a request is, the answer to a challenge goes to its host and its path alone.
func FuzzResponder(f *testing.F) {
	for _, text := range []string{
		"GET /.well-known/acme-challenge/token-0 HTTP/1.1\r\nHost: www.example.test:80\r\n\r\n",
		"GET http://WWW.example.test./.well-known/acme-challenge/token-0 HTTP/1.1\r\nHost: x\r\n\r\n",
		"HEAD /.well-known/acme-challenge/%74oken-0?x HTTP/1.0\r\nHost: [www.example.test]\r\n\r\n",
		"GET /.well-known/acme-challenge/../acme-challenge/token-0 HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	x := http01.NewIndex()
	x.UpsertOrder(order("ns", "www.example.test"))
	x.UpsertChallenge(challenge("ns", "www.example.test", 0))
	responder := http01.NewResponder(http01.ResponderOptions{Index: x, Wait: time.Nanosecond})
	f.Fuzz(func(t *testing.T, text []byte) {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		responder.ServeHTTP(w, req.WithContext(t.Context()))
		host, _, _ := strings.Cut(strings.Trim(strings.ToLower(req.Host), "[]"), ":")
		right := strings.Trim(host, "].") == "www.example.test" && req.URL.Path == "/.well-known/acme-challenge/token-0"
		if body := w.Body.String(); strings.Contains(body, thumbprint) && !right || w.Code == http.StatusOK && !right && req.URL.Path != "/healthz" {
			t.Errorf("%q is answered %d %q", text, w.Code, body)
		}
	})
}

// FuzzHost: a name or an address is the same with a port, in brackets and in capital letters, and no server name of a
// handshake stands for two of them.
func FuzzHost(f *testing.F) {
	f.Add("www.example.test", "a.example.test")
	f.Add("2001:DB8::1", "::ffff:192.0.2.1")
	f.Add("192.0.2.1", "1.2.0.192.in-addr.arpa")
	f.Fuzz(func(t *testing.T, a, b string) {
		host := http01.Host(a)
		ip, err := netip.ParseAddr(a)
		name := err != nil && !strings.ContainsAny(a, ":[]") && !strings.HasSuffix(a, "..")
		if err == nil && host != ip.Unmap().String() || name && host != strings.ToLower(strings.TrimSuffix(a, ".")) {
			t.Errorf("%q: %q", a, host)
		}
		forms := []string{}
		switch {
		case err == nil && ip.Is4():
			forms = []string{a + ":80"}
		case err == nil:
			forms = []string{"[" + a + "]", "[" + a + "]:80"}
		case name:
			forms = []string{a + ":80", strings.TrimSuffix(a, ".") + "."}
		}
		for _, form := range forms {
			if got := http01.Host(form); got != host {
				t.Errorf("%q: %q, want %q", form, got, host)
			}
		}
		other, reverse := http01.Host(b), strings.HasSuffix(host, ".arpa") || strings.HasSuffix(http01.Host(b), ".arpa")
		if host != other && !reverse && http01.ServerName(a) == http01.ServerName(b) {
			t.Errorf("%q and %q have the server name %q", a, b, http01.ServerName(a))
		}
	})
}
