package inspect

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/kubectl/internal/plugin"
)

// run runs the command, and says whether it found something wrong.
func run(ctx context.Context, in string, args ...string) (said string, wrong bool, err error) {
	var out bytes.Buffer
	root := plugin.New(plugin.Streams{In: strings.NewReader(in), Out: &out, ErrOut: &out})
	root.AddCommand(New(plugin.Streams{In: strings.NewReader(in), Out: &out, ErrOut: &out}))
	root.SetArgs(append([]string{"inspect"}, args...))
	err = root.ExecuteContext(ctx)
	var exit plugin.ExitError
	if errors.As(err, &exit) && exit.Code == found {
		return out.String(), true, nil
	}
	return out.String(), false, err
}

func write(t *testing.T, certs ...*x509.Certificate) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chain.pem")
	if err := os.WriteFile(path, pki.EncodeCertificates(certs...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines says which of some lines, each given as "result about|part", a report lacks.
func lines(said string, want ...string) (missing []string) {
	for _, w := range want {
		begin, part, _ := strings.Cut(w, "|")
		result, about, _ := strings.Cut(begin, " ")
		found := false
		for line := range strings.Lines(said) {
			fields := strings.Fields(line)
			found = found || len(fields) > 1 && fields[0] == result && strings.HasPrefix(strings.Join(fields[1:], " "), about+":") && strings.Contains(line, part)
		}
		if !found {
			missing = append(missing, w)
		}
	}
	return missing
}

// TestChain: what is wrong with a chain is said, and what to do.
func TestChain(t *testing.T) {
	t.Parallel()
	root := newAuthority(t, "root", nil)
	middle := newAuthority(t, "middle", root)
	stranger := newAuthority(t, "stranger", nil)
	key := newKey(t).Public()
	leaf := middle.issue(t, host("www.example.com"), key)
	odd := host("\x1b[31mred")
	old := host("old.example.com")
	old.NotBefore, old.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	long, aged := host("long.example.com"), newAuthority(t, "aged", nil)
	long.NotAfter = time.Now().Add(200 * time.Hour)
	aged.cert.NotBefore, aged.cert.NotAfter = time.Now().Add(-90*24*time.Hour), time.Now().Add(20*24*time.Hour)
	aged.cert = sign(t, aged.cert, aged.cert, aged.key, aged.key.Public())
	early := host("early.example.com")
	early.NotBefore = time.Now().Add(time.Hour)
	older, oldest, link := newAuthority(t, "older", nil), newAuthority(t, "oldest", nil), *root.cert
	link.NotAfter = time.Now().Add(time.Minute)
	linked, further := sign(t, &link, older.cert, older.key, root.key.Public()), *older.cert
	linkedTwice := sign(t, &further, oldest.cert, oldest.key, older.key.Public())
	cases := map[string]struct {
		chain []*x509.Certificate
		args  string
		wrong bool
		want  []string
	}{
		"good": {chain: []*x509.Certificate{leaf, middle.cert}, want: []string{
			"ok chain|in order", "ok trust|it leads to", "ok validity|the first to expire", "ok revocation|\"CN=www.example.com\" is not revoked, says the OCSP responder",
			"ok revocation|\"CN=middle\" is not revoked",
		}},
		"with its root": {chain: []*x509.Certificate{leaf, middle.cert, root.cert}, want: []string{"ok chain|which no client needs", "ok trust|"}},
		"root alone":    {chain: []*x509.Certificate{root.cert}, want: []string{"ok chain|in order", "ok trust|"}},
		"for its host":  {chain: []*x509.Certificate{leaf, middle.cert}, args: "--server-name www.example.com", want: []string{"ok names|it is for www.example.com"}},
		"for another":   {chain: []*x509.Certificate{leaf, middle.cert}, args: "--server-name example.org", wrong: true, want: []string{"wrong names|not example.org"}},
		"out of order": {chain: []*x509.Certificate{leaf, root.cert, middle.cert}, wrong: true, want: []string{
			`wrong chain|it is not in order, which is "CN=www.example.com", "CN=middle", "CN=root"`, "ok trust|",
		}},
		"a stranger": {chain: []*x509.Certificate{leaf, middle.cert, stranger.cert}, wrong: true, want: []string{"wrong chain|do not belong to one chain", "ok trust|"}},
		"incomplete": {chain: []*x509.Certificate{leaf}, wrong: true, want: []string{
			`wrong trust|only some clients find what is missing: "CN=middle"`, "ok revocation|www.example.com",
		}},
		"incomplete, and nobody is asked": {chain: []*x509.Certificate{leaf}, args: "--no-network", wrong: true, want: []string{
			`wrong trust|CN=middle, which has signed "CN=www.example.com", is not among them`, "unknown revocation|--no-network",
		}},
		"ended": {chain: []*x509.Certificate{middle.issue(t, old, key), middle.cert}, wrong: true, want: []string{`wrong validity|"CN=old.example.com" expired on`, "ok trust|"}},
		"outlives its CA": {chain: []*x509.Certificate{middle.issue(t, long, key), middle.cert}, wrong: true, want: []string{
			`wrong validity|"CN=middle" expires on`, "ok trust|",
		}},
		"of a CA that expires soon": {chain: []*x509.Certificate{aged.issue(t, host("aged.example.com"), key), aged.cert}, wrong: true, want: []string{
			`wrong validity|"CN=aged" expires on`,
		}},
		"with links to older roots, of which one expires": {chain: []*x509.Certificate{root.issue(t, host("linked.example.com"), key), linked, linkedTwice}, want: []string{
			"ok chain|in order", "ok trust|", "ok validity|the first to expire",
		}},
		"too new": {chain: []*x509.Certificate{middle.issue(t, early, key), middle.cert}, wrong: true, want: []string{"wrong validity|is not valid before"}},
		"another root": {chain: []*x509.Certificate{stranger.issue(t, host("s.example.com"), key)}, wrong: true, want: []string{
			"wrong trust|it does not lead to", "ok revocation|s.example.com",
		}},
		"orders to the terminal": {chain: []*x509.Certificate{middle.issue(t, odd, key), middle.cert}},
	}
	trusted := write(t, root.cert, older.cert)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, wrong, err := run(t.Context(), "", append([]string{"chain", write(t, c.chain...), "--allow-local", "--ca-file", trusted}, strings.Fields(c.args)...)...)
			if missing := lines(said, c.want...); err != nil || wrong != c.wrong || len(missing) > 0 || strings.Contains(said, "\x1b") {
				t.Errorf("%v, wrong: %t, missing: %q\n%s", err, wrong, missing, said)
			}
		})
	}
}

// TestRevocation: OCSP is asked first, then the CRL; an answer that cannot be verified is none.
func TestRevocation(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		set   func(t *testing.T, a *authority, leaf *x509.Certificate)
		wrong bool
		want  string
	}{
		"good":    {func(*testing.T, *authority, *x509.Certificate) {}, false, "ok revocation|says the OCSP responder"},
		"revoked": {func(_ *testing.T, a *authority, leaf *x509.Certificate) { a.says(leaf, ocsp.Revoked) }, true, "wrong revocation|(key compromise), says the OCSP responder"},
		"by the list": {func(_ *testing.T, a *authority, leaf *x509.Certificate) {
			leaf.OCSPServer = nil
			a.says(leaf, ocsp.Revoked)
		}, true, "wrong revocation|(superseded), says the CRL"},
		"not in the list": {func(_ *testing.T, _ *authority, leaf *x509.Certificate) { leaf.OCSPServer = nil }, false, "ok revocation|says the CRL"},
		"the list knows":  {func(_ *testing.T, a *authority, leaf *x509.Certificate) { a.says(leaf, ocsp.Unknown) }, false, "ok revocation|says the CRL"},
		"unknown": {func(_ *testing.T, a *authority, leaf *x509.Certificate) {
			leaf.CRLDistributionPoints = nil
			a.says(leaf, ocsp.Unknown)
		}, false, "unknown revocation|does not know it"},
		"too old": {func(_ *testing.T, a *authority, _ *x509.Certificate) { a.late = true }, false, "unknown revocation|the answer is too old"},
		"silent":  {func(_ *testing.T, a *authority, _ *x509.Certificate) { a.silent = true }, false, "unknown revocation|503 Service Unavailable"},
		"none": {func(_ *testing.T, _ *authority, leaf *x509.Certificate) {
			leaf.OCSPServer, leaf.CRLDistributionPoints = nil, nil
		}, false, "none revocation|neither"},
		"ldap": {func(_ *testing.T, _ *authority, leaf *x509.Certificate) {
			leaf.OCSPServer, leaf.CRLDistributionPoints = nil, []string{"ldap://ldap.example.com/crl"}
		}, false, "unknown revocation|only http and https"},
		"delegated": {func(t *testing.T, a *authority, _ *x509.Certificate) {
			t.Helper()
			a.signer = a.issue(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning}}, a.key.Public())
		}, false, "ok revocation|says the OCSP responder"},
		"signed by another certificate of the CA": {func(t *testing.T, a *authority, leaf *x509.Certificate) {
			t.Helper()
			a.signer, leaf.CRLDistributionPoints = a.issue(t, host("mallory.example.com"), a.key.Public()), nil
		}, false, "unknown revocation|may not sign answers"},
		"signed by a stranger": {func(t *testing.T, a *authority, leaf *x509.Certificate) {
			t.Helper()
			other := newAuthority(t, "root", nil)
			leaf.OCSPServer, leaf.CRLDistributionPoints = []string{other.url + "/ocsp"}, []string{other.url + "/crl"}
		}, false, "unknown revocation|bad OCSP signature"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := newAuthority(t, "root", nil)
			leaf := root.issue(t, host("www.example.com"), newKey(t).Public())
			c.set(t, root, leaf)
			r := &Report{now: time.Now()}
			r.revocation(t.Context(), newWeb(nil, time.Minute, r.now), &judged{certs: []*x509.Certificate{leaf}, roots: []*x509.Certificate{root.cert}, at: r.now})
			var out bytes.Buffer
			r.print(&out)
			wrong := r.Checks[0].Result == Wrong
			if missing := lines(out.String(), c.want); wrong != c.wrong || len(missing) > 0 {
				t.Errorf("wrong: %t, missing: %q\n%s", wrong, missing, out.String())
			}
		})
	}
}

// counting counts what a server is asked, and answers nothing that is of use.
func counting(t *testing.T, answer http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	asked := &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server, asked
}

// naming returns a certificate that names n URLs of a server, of each kind that is asked.
func naming(t *testing.T, url string, n int) *x509.Certificate {
	t.Helper()
	template := host("www.example.com")
	for i := range n {
		at := fmt.Sprintf("%s/%d", url, i)
		template.OCSPServer = append(template.OCSPServer, at+"/ocsp")
		template.CRLDistributionPoints = append(template.CRLDistributionPoints, at+"/crl")
		template.IssuingCertificateURL = append(template.IssuingCertificateURL, at+"/ca")
	}
	ca := newAuthority(t, "elsewhere", nil)
	return sign(t, template, ca.cert, ca.key, newKey(t).Public())
}

// TestFewURLsAreAsked: who writes a certificate has the computer that inspects it ask a few URLs, however many it
// names.
func TestFewURLsAreAsked(t *testing.T) {
	t.Parallel()
	nothing, asked := counting(t, http.NotFound)
	one := naming(t, nothing.URL, 100)
	if said, _, err := run(t.Context(), "", "chain", write(t, one), "--allow-local"); err != nil || asked.Load() != maxURLs {
		t.Errorf("%v: %d URLs of one certificate were asked, want %d\n%s", err, asked.Load(), maxURLs, said)
	}
	asked.Store(0)
	w := newWeb(nil, time.Minute, time.Now())
	for range 10 {
		c := naming(t, nothing.URL, 3)
		_ = w.issuerOf(t.Context(), c)
		if _, err := w.ask(t.Context(), c, c); err == nil {
			t.Error("an answer that is none was taken")
		}
	}
	if asked.Load() != maxAllURLs {
		t.Errorf("%d URLs of ten certificates were asked, want %d", asked.Load(), maxAllURLs)
	}
}

// TestLongAnswersOfURLs: a URL in a certificate may lead to an answer of any length.
func TestLongAnswersOfURLs(t *testing.T) {
	t.Parallel()
	of := func(limit int64) func(n int) limits.Outcome {
		return func(n int) limits.Outcome {
			server, _ := counting(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, n)) })
			w := newWeb(nil, time.Minute, time.Now())
			answer, err := w.fetch(t.Context(), naming(t, server.URL, 1), server.URL, "", nil, limit)
			if err == nil && len(answer) != n {
				t.Errorf("%d bytes: %d were read", n, len(answer))
			}
			return bounds.Refusal(t, err, fmt.Sprintf("answers more than %d bytes", limit))
		}
	}
	bounds.Holds(t, "OCSP answer", of(maxAnswer))
	bounds.Holds(t, "issuing certificate", of(maxAnswer))
	bounds.Holds(t, "CRL", of(maxCRL))
}

// TestNoRedirectIsFollowed: a server that a certificate names sends nobody elsewhere.
func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	target, asked := counting(t, http.NotFound)
	from, _ := counting(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target.URL, http.StatusFound) })
	said, _, err := run(t.Context(), "", "chain", write(t, naming(t, from.URL, 1)), "--allow-local")
	if err != nil || asked.Load() != 0 {
		t.Errorf("%v: %d redirects were followed\n%s", err, asked.Load(), said)
	}
}

// TestThisComputerIsNotAsked: neither by its address nor by a name that leads there, unless the user says so.
func TestThisComputerIsNotAsked(t *testing.T) {
	t.Parallel()
	server, asked := counting(t, http.NotFound)
	root := newAuthority(t, "root", nil)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		template := host("www.example.com")
		template.OCSPServer = []string{"http://" + name + ":" + port}
		leaf := sign(t, template, root.cert, root.key, newKey(t).Public())
		said, _, err := run(t.Context(), "", "chain", write(t, leaf, root.cert), "--ca-file", write(t, root.cert))
		if missing := lines(said, "unknown revocation|--allow-local"); err != nil || len(missing) > 0 {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("this computer was asked %d times", asked.Load())
	}
}

// TestServer: a server's chain is seen as a client gets it, even from a server that wants a certificate of the client.
func TestServer(t *testing.T) {
	t.Parallel()
	root := newAuthority(t, "root", nil)
	key := newKey(t)
	leaf := root.issue(t, host("www.example.com"), key.Public())
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}},
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	address, trusted := server.Listener.Addr().String(), write(t, root.cert)
	said, wrong, err := run(t.Context(), "", "chain", address, "--server-name", "www.example.com", "--allow-local", "--ca-file", trusted)
	if missing := lines(said, "ok names|", "ok trust|", "ok revocation|"); err != nil || wrong || len(missing) > 0 {
		t.Errorf("%v, missing: %q\n%s", err, missing, said)
	}
	if said, wrong, err = run(t.Context(), "", "chain", address); err != nil || !wrong || len(lines(said, "wrong names|127.0.0.1", "wrong trust|the roots of this computer")) > 0 {
		t.Errorf("%v\n%s", err, said)
	}
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	if _, _, err := run(t.Context(), "", "chain", closed.Addr().String()); err == nil || !strings.Contains(err.Error(), "no server that sends certificates") {
		t.Error(err)
	}
	if _, _, err := run(t.Context(), "nothing", "chain", "-"); err == nil {
		t.Error("nothing was read as a chain")
	}
	if said, _, err = run(t.Context(), string(pki.EncodeCertificates(root.cert)), "chain", "-", "--no-network", "-o", "yaml"); err != nil || !strings.Contains(said, "subject: CN=root") {
		t.Errorf("%v\n%s", err, said)
	}
}
