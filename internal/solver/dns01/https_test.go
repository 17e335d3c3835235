package dns01_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"chancery.dev/internal/solver/dns01"
)

// newHTTPS is a DNS over HTTPS server in front of a DNS server (RFC 8484).
func newHTTPS(t *testing.T, upstream func() string) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/dns-message" || r.UserAgent() != "chancery/test" {
			http.Error(w, "no DNS message", http.StatusUnsupportedMediaType)
			return
		}
		q, m := new(dns.Msg), (*dns.Msg)(nil)
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = q.Unpack(body)
		}
		if err == nil {
			m, _, err = new(dns.Client).ExchangeContext(r.Context(), q, upstream())
		}
		if err == nil {
			body, err = m.Pack()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/dns-message")
		// The client under test reads it, or its test fails.
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestDNSOverHTTPS(t *testing.T) {
	var w *world
	doh := newHTTPS(t, func() string { return w.dns.Addr() })
	w = newWorld(t, func(o *dns01.Options) {
		o.Nameservers = []string{doh.URL + "/dns-query"}
		o.HTTPClient = doh.Client()
		o.UserAgent = "chancery/test"
	})
	task := w.task("doh.example.test", "value")
	w.notYet(t, task, "2 of 2") // found by DoH, asked at the authoritative servers
	w.mustPresent(t, task)
	w.passes(t, task)
	task.Challenge.Spec.Solver.DNS01.Nameservers = []string{doh.URL}
	w.passes(t, task)

	broken := httptest.NewTLSServer(http.NotFoundHandler())
	defer broken.Close()
	r, err := dns01.NewResolver(dns01.Options{Nameservers: []string{broken.URL}, HTTPClient: broken.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Zone(t.Context(), "www.example.test.", nil); err == nil || !strings.Contains(err.Error(), "wrong status code '404'") {
		t.Errorf("Zone through a broken server: %v", err)
	}
}
