package client_test

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/acme/client"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

// TestAnswersAreBounded lets a hostile server answer with as much as it likes. Each answer is refused
// as too large: the same call would bring the same.
func TestAnswersAreBounded(t *testing.T) {
	order := func(ctx context.Context, c *client.Client, base string) error {
		_, err := c.GetOrder(ctx, base+"/order/1")
		return err
	}
	far := func(ctx context.Context, c *client.Client, base string) error {
		_, err := c.GetOrder(ctx, base+"/"+strings.Repeat("x", 3000)+"/order/1")
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
	times := func(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	for name, tc := range map[string]struct {
		call func(context.Context, *client.Client, string) error
		body string
	}{
		"an order of 350,000 authorizations": {order, `{"authorizations":[` + times(`""`, 340_000) + `]}`},
		"an order of 300,000 names":          {order, `{"identifiers":[` + times(`{}`, 300_000) + `]}`},
		"an order of 2 MiB":                  {order, `{"status":"` + strings.Repeat("x", 2<<20) + `"}`},
		"short authorizations of a long URL": {far, `{"authorizations":[` + times(`"a"`, 1000) + `]}`},
		"an authorization of 1,000 ways":     {authorization, `{"challenges":[` + times(`{}`, 1000) + `]}`},
		"an authorization of 1 MiB":          {authorization, `{"status":"` + strings.Repeat("x", 1<<20) + `"}`},
		"a chain of 15 MiB":                  {fetch, strings.Repeat("\n", 15<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, reply(200, "", tc.body))
			err := tc.call(t.Context(), f.client(t, client.Options{}), f.URL)
			if !errors.Is(err, client.ErrTooLarge) {
				t.Errorf("%v", err)
			}
		})
	}
	pad := func(text string, n int) string { return text + strings.Repeat("\n", n-len(text)) }
	attempt := func(call func(context.Context, *client.Client, string) error, body string) limits.Outcome {
		f := startFake(t, reply(200, "", body))
		err := call(t.Context(), f.client(t, client.Options{}), f.URL)
		if err != nil && !errors.Is(err, client.ErrTooLarge) {
			t.Error(err)
		}
		return bounds.Refusal(t, err, "the body is longer than")
	}
	chain := string(chainPEM(t))
	bounds.Holds(t, "ACME order", func(n int) limits.Outcome { return attempt(order, pad(`{"status":"pending"}`, n)) })
	bounds.Holds(t, "ACME answer", func(n int) limits.Outcome { return attempt(authorization, pad(`{"status":"pending"}`, n)) })
	bounds.Holds(t, "ACME chain", func(n int) limits.Outcome { return attempt(fetch, pad(chain, n)) })
}

// TestADirectoryIsBounded: it is kept for as long as an issuer uses the server.
func TestADirectoryIsBounded(t *testing.T) {
	for name, extra := range map[string]string{
		"a long website": `,"meta":{"website":"` + strings.Repeat("x", 100_000) + `"}`,
	} {
		f := startFake(t, nil)
		f.extra = extra
		if _, err := f.client(t, client.Options{}).Directory(t.Context()); !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bounds.Holds(t, "profiles", func(n int) limits.Outcome {
		f := startFake(t, nil)
		f.extra = `,"meta":{"profiles":{` + numbered(`"p%d":"https://ca.example/about/profiles"`, n) + `}}`
		d, err := f.client(t, client.Options{}).Directory(t.Context())
		if err == nil && len(d.Meta.Profiles) != n || err != nil && !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("%d profiles: %+v, %v", n, d, err)
		}
		return bounds.Refusal(t, err, "the directory lists more than 100 profiles")
	})
}

func numbered(format string, n int) string {
	var texts []string
	for i := range n {
		texts = append(texts, fmt.Sprintf(format, i))
	}
	return strings.Join(texts, ",")
}

// TestChainIsWhatWasChecked: what is stored is PEM of the certificates that were checked, whatever else the server
// sends.
func TestChainIsWhatWasChecked(t *testing.T) {
	leaf, above := chainPEM(t), chainPEM(t)
	want := string(leaf) + string(above)
	block, _ := pem.Decode(leaf)
	oneLine := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(block.Bytes) + "\n-----END CERTIFICATE-----\n"
	for name, body := range map[string]string{
		"clean":              want,
		"CRLF":               strings.ReplaceAll(want, "\n", "\r\n"),
		"text before":        "Subject: leaf\n" + want,
		"text between":       string(leaf) + "\n# the intermediate\nkey = value\n" + string(above),
		"no last line end":   strings.TrimSuffix(want, "\n"),
		"empty lines":        "\n\n" + string(leaf) + "\n\n" + string(above) + "\n\n",
		"headers":            strings.Replace(want, "-----\n", "-----\nfriendlyName: leaf\n\n", 1),
		"lines of any width": oneLine + string(above),
	} {
		f := startFake(t, reply(200, "application/pem-certificate-chain", body))
		chain, err := f.client(t, client.Options{}).FetchCertificate(t.Context(), f.URL+"/cert")
		if err != nil || string(chain.PEM) != want || len(chain.Certificates) != 2 {
			t.Errorf("%s: %v\n%+v", name, err, chain)
		}
	}
}

// TestAlternatesAreBounded: each of them may be downloaded.
func TestAlternatesAreBounded(t *testing.T) {
	bounds.Holds(t, "alternates", func(n int) limits.Outcome {
		f := startFake(t, func(w http.ResponseWriter, _ *http.Request) {
			for i := range n {
				w.Header().Add("Link", fmt.Sprintf(`</alternate/%d>;rel="alternate"`, i))
			}
			_, _ = w.Write(chainPEM(t))
		})
		chain, err := f.client(t, client.Options{}).FetchCertificate(t.Context(), f.URL+"/cert")
		if err != nil {
			t.Fatal(err)
		}
		return bounds.Without(n, len(chain.Alternates))
	})
}

// TestHeadersAreBounded: Go's own bound is 10 MiB for each answer.
func TestHeadersAreBounded(t *testing.T) {
	f := startFake(t, reply(200, "", "{}", "Link", "</"+strings.Repeat("x", 1<<20)+`>;rel="alternate"`))
	_, err := f.client(t, client.Options{}).GetOrder(t.Context(), f.URL+"/order/1")
	if _, ok := errors.AsType[*client.TransportError](err); !ok {
		t.Errorf("%v", err)
	}
}

// chainPEM is a chain of one certificate.
func chainPEM(t *testing.T) []byte {
	t.Helper()
	key := ecKey(t, elliptic.P256())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestADatabaseIsNotQuoted: what speaks no HTTP at all is not quoted either, as Go's client would.
func TestADatabaseIsNotQuoted(t *testing.T) {
	database, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = database.Close() }()
	go func() {
		for conn, err := database.Accept(); err == nil; conn, err = database.Accept() {
			_, _ = conn.Write([]byte("-ERR secret\n\n"))
			_ = conn.Close()
		}
	}()
	c, err := client.New(client.Options{DirectoryURL: "http://" + database.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Directory(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// TestABundleIsBounded: a bundle that is too large is not decoded.
func TestABundleIsBounded(t *testing.T) {
	bundle := chainPEM(t)
	bounds.Holds(t, "CA bundle", func(n int) limits.Outcome {
		_, err := client.NewHTTPClient(client.HTTPOptions{CABundle: append(bytes.Clone(bundle), bytes.Repeat([]byte("\n"), n-len(bundle))...)})
		return bounds.Refusal(t, err, "more than 330000 bytes")
	})
}
