package client_test

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/acme/client"
	"chancery.dev/internal/fault"
)

// serveHTTP serves on loopback and returns the port.
func serveHTTP(t *testing.T, h http.Handler) int {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// fake is the least ACME server that lets a client come to the point: a directory and nonces.
// Everything else is next's.
type fake struct {
	*httptest.Server
	nonces, directories atomic.Int64
	noNonce             bool
	extra               string
	next                func(w http.ResponseWriter, r *http.Request)
}

func startFake(t *testing.T, next func(w http.ResponseWriter, r *http.Request)) *fake {
	t.Helper()
	f := &fake{next: next}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.noNonce && r.URL.Path != "/dir" {
		w.Header().Set("Replay-Nonce", fmt.Sprintf("nonce-%d", f.nonces.Add(1)))
	}
	switch r.URL.Path {
	case "/dir":
		f.directories.Add(1)
		// Relative URLs are resolved against the directory's.
		_, _ = io.WriteString(w, `{"newNonce":"/nonce","newAccount":"/account","newOrder":"/order"`+f.extra+`}`)
	case "/nonce":
	default:
		f.next(w, r)
	}
}

func (f *fake) client(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	key := o.Key
	if key == nil {
		key = ecKey(t, elliptic.P256())
	}
	o.DirectoryURL = f.URL + "/dir"
	c, err := client.New(o)
	if err == nil {
		c, err = c.WithKey(key, f.URL+"/acct/1")
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func reply(status int, contentType, body string, header ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestErrorAnswers(t *testing.T) {
	t.Parallel()
	page := "<html>\n<title>secret</title><h1>secret</h1></html>"
	date := "Mon, 02 Jan 2040 15:04:05 GMT"
	problem := `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many\n orders","status":999,` +
		`"subproblems":[{"type":"urn:ietf:params:acme:error:caa","detail":"no","identifier":{"type":"dns","value":"a.example"}}]}`
	for name, tc := range map[string]struct {
		answer  func(http.ResponseWriter, *http.Request)
		status  int
		problem bool
		after   time.Duration
		text    string
	}{
		"problem": {reply(429, "application/problem+json", problem, "Retry-After", "17"), 429, true, 17 * time.Second,
			"429 urn:ietf:params:acme:error:rateLimited: too many orders; a.example: urn:ietf:params:acme:error:caa: no"},
		"HTML with a date": {reply(503, "text/html", page, "Retry-After", date, "Date", "Mon, 02 Jan 2040 15:02:05 GMT"),
			503, false, 2 * time.Minute, "503 Service Unavailable without an ACME problem document"},
		"new terms": {reply(403, "application/problem+json", `{"type":"urn:ietf:params:acme:error:userActionRequired","detail":"new terms","instance":"https://ca.example/terms"}`),
			403, true, 0, "new terms: visit https://ca.example/terms"},
		"429 of a proxy":    {reply(429, "text/plain", "secret"), 429, false, 0, "429 Too Many Requests"},
		"empty 404":         {reply(404, "", ""), 404, false, 0, "404 Not Found"},
		"JSON, no problem":  {reply(500, "application/json", `{"a":"secret"}`), 500, false, 0, "500"},
		"another API's":     {reply(404, "application/json", `{"detail":"secret","type":"secret"}`), 404, false, 0, "404"},
		"broken problem":    {reply(500, "application/problem+json", `{"type":`), 500, false, 0, "500"},
		"redirected POST":   {reply(307, "", "", "Location", "/elsewhere"), 307, false, 0, "307"},
		"problem untyped":   {reply(400, "application/problem+json", `{"detail":"x"}`), 400, true, 0, "400 about:blank: x"},
		"oversized problem": {reply(500, "application/problem+json", `{"detail":"`+strings.Repeat("x", 2<<20)), 500, false, 0, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, tc.answer)
			c := f.client(t, client.Options{})
			_, err := c.GetOrder(t.Context(), f.URL+"/order/1")
			if err == nil {
				t.Fatal("no error")
			}
			if got := client.StatusOf(err); got != tc.status {
				t.Errorf("status %d", got)
			}
			if got := acme.ProblemOf(err) != nil; got != tc.problem {
				t.Errorf("a problem: %v", got)
			}
			if got := client.RetryAfter(err); got != tc.after {
				t.Errorf("retry after %v", got)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("it quotes a server that is not an ACME server: %s", err)
			}
			if !strings.Contains(err.Error(), tc.text) || strings.ContainsAny(err.Error(), "\x00\n") || len(err.Error()) > 400 {
				t.Errorf("text: %s", err)
			}
		})
	}
}

// Against a fake: Pebble answers a second replacement as it should, but with a data race of its own.
func TestRejectsReplaces(t *testing.T) {
	t.Parallel()
	const typ = `{"type":"urn:ietf:params:acme:error:`
	for body, want := range map[string]bool{
		typ + `alreadyReplaced","detail":"x"}`:                true,
		typ + `malformed","detail":"unknown field replaces"}`: true,
		typ + `malformed","detail":"no CSR"}`:                 false,
		typ + `serverInternal","detail":"replaces"}`:          false,
	} {
		f := startFake(t, reply(409, "application/problem+json", body))
		f.extra = `,"renewalInfo":"/ari"`
		_, err := f.client(t, client.Options{}).NewOrder(t.Context(), acme.NewOrderRequest{Replaces: "a.b"})
		if got := client.RejectsReplaces(err); err == nil || got != want {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
}

func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	type call func(ctx context.Context, c *client.Client, base string) error
	order := func(ctx context.Context, c *client.Client, base string) error {
		_, err := c.GetOrder(ctx, base+"/order/1")
		return err
	}
	newOrder := func(ctx context.Context, c *client.Client, _ string) error {
		_, err := c.NewOrder(ctx, acme.NewOrderRequest{})
		return err
	}
	account := func(ctx context.Context, c *client.Client, _ string) error {
		_, err := c.LookupAccount(ctx)
		return err
	}
	authorization := func(ctx context.Context, c *client.Client, base string) error {
		_, err := c.GetAuthorization(ctx, base+"/authz")
		return err
	}
	fetch := func(ctx context.Context, c *client.Client, base string) error {
		_, err := c.FetchCertificate(ctx, base+"/cert")
		return err
	}
	truncated := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"status":`)
	}
	const pemType = "application/pem-certificate-chain"
	for name, tc := range map[string]struct {
		call   call
		answer func(http.ResponseWriter, *http.Request)
		cut    bool
	}{
		"truncated order":        {order, truncated, true},
		"truncated certificate":  {fetch, truncated, true},
		"aborted":                {order, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"no JSON":                {order, reply(200, "text/html", "<html>"), false},
		"endless order":          {order, reply(200, "application/json", strings.Repeat(" ", 1<<20+1)), false},
		"order without URL":      {newOrder, reply(201, "application/json", "{}"), false},
		"account without URL":    {account, reply(200, "application/json", "{}"), false},
		"endless certificate":    {fetch, reply(200, pemType, strings.Repeat("\n", 16<<20+1)), false},
		"empty certificate":      {fetch, reply(200, pemType, ""), false},
		"a key, no certificate":  {fetch, reply(200, pemType, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), false},
		"not PEM":                {fetch, reply(200, pemType, "hello"), false},
		"not a DER certificate":  {fetch, reply(200, pemType, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), false},
		"a token that is a path": {authorization, reply(200, "application/json", `{"challenges":[{"type":"http-01","token":"../../admin"}]}`), false},
		"a time of another kind": {order, reply(200, "application/json", `{"expires":"tomorrow"}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, tc.answer)
			err := tc.call(t.Context(), f.client(t, client.Options{}), f.URL)
			var transport *client.TransportError
			var protocol *client.ProtocolError
			if errors.As(err, &transport) != tc.cut || errors.As(err, &protocol) == tc.cut {
				t.Errorf("%T: %v", err, err)
			}
		})
	}
}

func TestNoConnection(t *testing.T) {
	t.Parallel()
	f := startFake(t, nil)
	c := f.client(t, client.Options{})
	f.Close()
	var first string
	for range 3 {
		_, err := c.GetOrder(t.Context(), f.URL+"/order/1")
		if _, ok := errors.AsType[*client.TransportError](err); !ok {
			t.Fatalf("%T: %v", err, err)
		}
		if first == "" {
			first = err.Error()
		}
		if err.Error() != first { // it stands in a status: it must not change without cause
			t.Errorf("%q, then %q", first, err)
		}
	}
}

func TestNonces(t *testing.T) {
	t.Parallel()
	badNonce := reply(400, "application/problem+json", `{"type":"urn:ietf:params:acme:error:badNonce"}`)
	t.Run("retried with the refusal's own nonce", func(t *testing.T) {
		var used []string
		f := startFake(t, func(w http.ResponseWriter, r *http.Request) {
			used = append(used, header(t, r).Nonce)
			if len(used) < 4 {
				badNonce(w, r)
				return
			}
			_, _ = io.WriteString(w, `{"status":"valid"}`)
		})
		c := f.client(t, client.Options{})
		if _, err := c.GetOrder(t.Context(), f.URL+"/order/1"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(used, " "); got != "nonce-1 nonce-2 nonce-3 nonce-4" {
			t.Errorf("nonces %s", got)
		}
	})
	t.Run("not for ever", func(t *testing.T) {
		var n atomic.Int64
		f := startFake(t, func(w http.ResponseWriter, r *http.Request) { n.Add(1); badNonce(w, r) })
		_, err := f.client(t, client.Options{}).GetOrder(t.Context(), f.URL+"/order/1")
		if !acme.HasCode(err, acme.CodeBadNonce) || n.Load() != 10 {
			t.Errorf("after %d tries: %v", n.Load(), err)
		}
	})
	t.Run("not after the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := startFake(t, func(w http.ResponseWriter, r *http.Request) { cancel(); badNonce(w, r) })
		if _, err := f.client(t, client.Options{}).GetOrder(ctx, f.URL+"/order/1"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	t.Run("missing", func(t *testing.T) {
		f := startFake(t, nil)
		f.noNonce = true
		var protocol *client.ProtocolError
		if _, err := f.client(t, client.Options{}).GetOrder(t.Context(), f.URL+"/order/1"); !errors.As(err, &protocol) {
			t.Errorf("%v", err)
		}
	})
}

// header is the protected header of a request, its signature unchecked.
func header(t *testing.T, r *http.Request) jose.Header {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	jws, err := jose.ParseSignedJSON(string(body), []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA})
	if err != nil {
		t.Error(err)
		return jose.Header{}
	}
	return jws.Signatures[0].Protected
}

// Pebble takes no Ed25519 keys, so that the signature is checked here.
func TestEd25519(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var f *fake
	f = startFake(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		jws, err := jose.ParseSignedJSON(string(body), []jose.SignatureAlgorithm{jose.EdDSA})
		if err != nil {
			t.Error(err)
			return
		}
		payload, err := jws.Verify(public)
		h := jws.Signatures[0].Protected
		if err != nil || len(payload) != 0 || h.KeyID != f.URL+"/acct/1" || h.ExtraHeaders["url"] != f.URL+"/order/1" || h.JSONWebKey != nil {
			t.Errorf("payload %q, header %+v, %v", payload, h, err)
		}
		_, _ = io.WriteString(w, `{"status":"processing"}`)
	})
	c := f.client(t, client.Options{Key: private})
	if o, err := c.GetOrder(t.Context(), f.URL+"/order/1"); err != nil || o.Status != acme.StatusProcessing {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	f := startFake(t, reply(200, "application/json", `{"status":"valid"}`, "Retry-After", "3"))
	c := f.client(t, client.Options{Now: func() time.Time { return time.Unix(clock.Load(), 0) }})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			o, err := c.GetOrder(t.Context(), f.URL+"/order/1")
			if err != nil || o.RetryAfter != 3*time.Second {
				t.Errorf("%+v, %v", o, err)
			}
		})
	}
	wg.Wait()
	if n := f.directories.Load(); n != 1 {
		t.Errorf("%d fetches for 20 callers", n)
	}
	clock.Add(3600)
	if _, err := c.Directory(t.Context()); err != nil || f.directories.Load() != 2 {
		t.Errorf("after an hour: %d fetches, %v", f.directories.Load(), err)
	}
	f.Close()
	clock.Add(3600)
	if d, err := c.Directory(t.Context()); err != nil || d.NewOrder != f.URL+"/order" {
		t.Errorf("a failing refresh: %+v, %v", d, err)
	}
	if _, err := c.NewOrder(t.Context(), acme.NewOrderRequest{Profile: "p"}); !errors.Is(err, acme.ErrProfilesUnsupported) {
		t.Errorf("a profile without profiles: %v", err)
	}
	_, err := c.NewOrder(t.Context(), acme.NewOrderRequest{Replaces: "a.b"})
	if !errors.Is(err, client.ErrRenewalInfoUnsupported) || !client.RejectsReplaces(err) {
		t.Errorf("replaces without ARI: %v", err)
	}
}

// Who writes http:// for https:// is told so, whatever the server makes of it.
func TestDirectoryByHTTP(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	c, err := client.New(client.Options{DirectoryURL: "http://" + server.Listener.Addr().String() + "/dir"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Directory(t.Context()); err == nil || !strings.Contains(err.Error(), "the address begins with http://") {
		t.Errorf("%v", err)
	}
}

// One caller who gives up does not take the others with him.
func TestDirectoryFetcherGivesUp(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 2), make(chan struct{})
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		if n.Add(1) == 1 {
			select {
			case <-release:
			case <-r.Context().Done():
			}
			return
		}
		_, _ = io.WriteString(w, `{"newNonce":"/n","newAccount":"/a","newOrder":"/o"}`)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	c, err := client.New(client.Options{DirectoryURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := c.Directory(ctx); first <- err }()
	<-arrived
	go func() { _, err := c.Directory(t.Context()); second <- err }()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the second: %v", err)
	}
}

func TestHTTPSStays(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/down" {
			http.Redirect(w, r, "http://"+r.Host+"/dir", http.StatusFound)
			return
		}
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/dir", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, `{"newNonce":"http://`+r.Host+`/n","newAccount":"/a","newOrder":"/o"}`)
	}))
	t.Cleanup(s.Close)
	clientFor := func(path string) *client.Client {
		c, err := client.New(client.Options{DirectoryURL: s.URL + path, HTTPClient: s.Client(),
			Key: ecKey(t, elliptic.P256())})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if _, err := clientFor("/moved").Directory(t.Context()); err != nil {
		t.Errorf("a redirected GET: %v", err)
	}
	if _, err := clientFor("/down").Directory(t.Context()); client.StatusOf(err) != http.StatusFound {
		t.Errorf("a redirect to http: %v", err)
	}
	var protocol *client.ProtocolError
	if _, err := clientFor("/dir").LookupAccount(t.Context()); !errors.As(err, &protocol) {
		t.Errorf("a newNonce on http: %v", err)
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	f := startFake(t, reply(404, "", ""))
	c := f.client(t, client.Options{UserAgent: "me/1", Observe: func(o client.Observation) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%s %s %s %d", o.Action, o.Method, o.Scheme, o.Status))
		if "http://"+o.Host != f.URL {
			t.Errorf("host %q", o.Host)
		}
	}})
	if _, err := c.GetAuthorization(t.Context(), f.URL+"/authz/1"); err == nil {
		t.Fatal("no error")
	}
	f.Close()
	if _, err := c.GetAuthorization(t.Context(), f.URL+"/authz/1"); err == nil {
		t.Fatal("no error")
	}
	want := "discover GET http 200, get_authorization HEAD http 200, get_authorization POST http 404, get_authorization POST http 0"
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "acme.example/dir", "ftp://acme.example/dir", "https://", "https://a b/"} {
		if _, err := client.New(client.Options{DirectoryURL: url}); err == nil {
			t.Errorf("directory URL %q is taken", url)
		}
	}
	for name, o := range map[string]client.HTTPOptions{
		"bundle and insecure": {CABundle: []byte("x"), InsecureSkipVerify: true}, "no certificate": {CABundle: []byte("x")},
	} {
		if _, err := client.NewHTTPClient(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := client.New(client.Options{DirectoryURL: "https://a.example/", Key: unsupported{}}); err == nil {
		t.Error("a key of an unknown kind is taken")
	}
	c, err := client.New(client.Options{DirectoryURL: "https://a.example/"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetOrder(t.Context(), "https://a.example/o"); !errors.Is(err, client.ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
}

type unsupported struct{ crypto.Signer }

func (unsupported) Public() crypto.PublicKey { return strconv.IntSize }

// TestABugLeavesTheDirectoryFree: whoever reads the directory first does so for all who wait for it. A
// panic there must not keep them waiting for good.
func TestABugLeavesTheDirectoryFree(t *testing.T) {
	t.Parallel()
	f := startFake(t, reply(200, "application/json", `{"status":"pending"}`))
	var panicked atomic.Bool
	c := f.client(t, client.Options{Observe: func(client.Observation) {
		if panicked.CompareAndSwap(false, true) {
			panic("a bug")
		}
	}})
	var bug *fault.Panic
	if _, err := c.Directory(t.Context()); !errors.As(err, &bug) {
		t.Errorf("it did not panic: %v", err)
	}
	if _, err := c.Directory(t.Context()); err != nil {
		t.Error(err)
	}
}
