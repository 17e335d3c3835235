package egress_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

func get(t *testing.T, via http.RoundTripper, address string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: via}).Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// A server that a tenant names is not reached at a denied address: neither by its name, nor by a redirect.
func TestTransportJudgesEachRequest(t *testing.T) {
	var asked atomic.Int32
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "secret")
	}))
	defer inner.Close()
	if _, err := get(t, egress.New(nil, nil).Transport(&http.Transport{}, net.Dialer{}, 1<<10), inner.URL); err == nil || !strings.Contains(err.Error(), "127.0.0.1 is off limits") {
		t.Errorf("%v", err)
	}
	outer, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	public := httptest.NewUnstartedServer(http.RedirectHandler(inner.URL, http.StatusFound))
	public.Listener = outer
	public.Start()
	defer public.Close()
	p := egress.New(prefixes("127.0.0.2/32"), nil)
	if _, err := get(t, p.Transport(&http.Transport{}, net.Dialer{}, 1<<10), public.URL); err == nil || !strings.Contains(err.Error(), "127.0.0.1 is off limits") {
		t.Errorf("%v", err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
	if body, err := get(t, (*egress.Policy)(nil).Transport(&http.Transport{}, net.Dialer{}, 1<<10), inner.URL); err != nil || body != "secret" {
		t.Errorf("without a policy: %q, %v", body, err)
	}
}

// A proxy is the operator's, wherever it is. What it is asked for is judged first.
func TestTransportByProxy(t *testing.T) {
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Host)
		if r.Method == http.MethodConnect {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, "proxied")
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	via := egress.New(nil, nil).Transport(&http.Transport{Proxy: http.ProxyURL(address)}, net.Dialer{}, 1<<10)
	if body, err := get(t, via, "http://203.0.113.1/"); err != nil || body != "proxied" {
		t.Errorf("%q, %v", body, err)
	}
	if _, err := get(t, via, "https://203.0.113.1/"); err == nil || !strings.Contains(err.Error(), "the proxy answers 403 Forbidden") {
		t.Errorf("%v", err)
	}
	asked.Store("")
	for _, target := range []string{"http://169.254.169.254/latest", "https://[::1]/", "http://localhost:1/"} {
		if _, err := get(t, via, target); err == nil || !strings.Contains(err.Error(), "off limits") || asked.Load() != "" {
			t.Errorf("%s: %v, the proxy was asked for %q", target, err, asked.Load())
		}
	}
	// The proxy's own address is a target like any other.
	direct := egress.New(nil, nil).Transport(&http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}, net.Dialer{}, 1<<10)
	if _, err := get(t, direct, proxy.URL); err == nil || !strings.Contains(err.Error(), "off limits") {
		t.Errorf("%v", err)
	}
}

// What a server sends is in no error: a tenant could read with it what only the controller can reach.
func TestErrorsQuoteNothing(t *testing.T) {
	for _, says := range []string{
		"SSH-2.0-secret\r\n",
		"HTTP/1.1 secret\r\n\r\n",
		"HTTP/1.1 200 OK\r\nsecret\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: secret\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: secret\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsecret\r\n",
		"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://[secret\r\n\r\n",
	} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1<<10))
			_, _ = io.WriteString(conn, says)
			_ = conn.Close()
		}()
		body, err := get(t, (*egress.Policy)(nil).Transport(&http.Transport{}, net.Dialer{}, 1<<10), "http://"+listener.Addr().String())
		if err != nil && strings.Contains(err.Error(), "secret") || err == nil && body != "" {
			t.Errorf("after %q: %q, %v", says, body, err)
		}
		_ = listener.Close()
	}
}

// TestAnswersHaveBounds: what a server sends beyond a bound is not read, whoever makes the transport; and where nobody
// has set a bound, nothing is. An answer that is an error ends at its bound instead, for its status counts.
func TestAnswersHaveBounds(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/headers" {
			for n := range 16 << 10 {
				w.Header().Set("X-"+strconv.Itoa(n), "")
			}
		}
		if r.URL.Path == "/error" {
			w.WriteHeader(http.StatusForbidden)
		}
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		_, _ = io.WriteString(w, strings.Repeat("x", n))
	}))
	defer server.Close()
	for name, c := range map[string]struct {
		path    string
		maxBody int
		// read is how much of the answer is read.
		read  int
		fails string
	}{
		"up to the bound":          {path: "/?n=2048", maxBody: 2 << 10, read: 2 << 10},
		"beyond the bound":         {path: "/?n=2049", maxBody: 2 << 10, read: 2 << 10, fails: "longer than 2 KiB"},
		"without a bound":          {path: "/?n=1", fails: "longer than 0 KiB"},
		"nothing, without a bound": {path: "/"},
		"headers":                  {path: "/headers", maxBody: 1 << 20, fails: "the server does not answer in HTTP"},
		"an error, less may be":    {path: "/error?n=1000000", maxBody: 1 << 10, read: 1 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			for by, via := range map[string]http.RoundTripper{
				"Transport": (*egress.Policy)(nil).Transport(&http.Transport{}, net.Dialer{}, c.maxBody),
				"Client":    (*egress.Policy)(nil).Client(time.Minute, c.maxBody).Transport,
			} {
				body, err := get(t, via, server.URL+c.path)
				if len(body) != c.read || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%s: %d bytes, %v", by, len(body), err)
				}
			}
		})
	}
	via := (*egress.Policy)(nil).Transport(&http.Transport{}, net.Dialer{}, 1<<20)
	bounds.Holds(t, "error", func(n int) limits.Outcome {
		body, err := get(t, via, server.URL+"/error?n="+strconv.Itoa(n))
		if err != nil {
			t.Error(err)
		}
		return bounds.Without(n, len(body))
	})
	bounds.Holds(t, "headers", func(n int) limits.Outcome {
		const before, after = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: ", "\r\n\r\n"
		raw := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, before+strings.Repeat("x", n-len(before)-len(after))+after)
			_ = conn.Close()
		}))
		defer raw.Close()
		_, err := get(t, via, raw.URL)
		return bounds.Refusal(t, err, "the server does not answer in HTTP")
	})
}

// TestServersOfTenantsHaveNoFrames: a server that a tenant names is not asked by HTTP/2, by which it could send frames
// without end beside answers, and after them. One that the operator names is.
func TestServersOfTenantsHaveNoFrames(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for want, policy := range map[string]*egress.Policy{"HTTP/1.1": egress.New(prefixes("127.0.0.0/8"), nil), "HTTP/2.0": nil} {
		via := policy.Transport(&http.Transport{
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, ForceAttemptHTTP2: true,
			HTTP2: &http.HTTP2Config{SendPingTimeout: time.Minute},
		}, net.Dialer{}, 1<<10)
		if got, err := get(t, via, server.URL); err != nil || got != want {
			t.Errorf("asked by %q, %v, want %s", got, err, want)
		}
		via.CloseIdleConnections()
	}
}
