package client

import (
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"chancery.dev/internal/acme"
)

func unb64(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The examples of RFC 7638 §3.1 and RFC 8037 appendix A.3.
func TestThumbprintVectors(t *testing.T) {
	n := "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMs" +
		"tn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbI" +
		"SD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
	for want, key := range map[string]any{
		"NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs": &rsa.PublicKey{N: new(big.Int).SetBytes(unb64(t, n)), E: 65537},
		"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k": ed25519.PublicKey(unb64(t, "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")),
	} {
		got, err := Thumbprint(key)
		if err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	// SHA-256 of "a.b", computed apart.
	if got := acme.DNS01Value("a.b"); got != "LnM23I66h-9HLfVow1SCq_JXXcPl6sDFxiuP-urCyTQ" {
		t.Errorf("DNS-01 value %q", got)
	}
	if got := acme.HTTP01Path("t"); got != "/.well-known/acme-challenge/t" {
		t.Error(got)
	}
}

func TestLinks(t *testing.T) {
	base, err := url.Parse("https://ca.example/cert/1")
	if err != nil {
		t.Fatal(err)
	}
	r := &response{url: base, header: http.Header{"Link": {
		`<https://ca.example/dir>;rel="index"`,
		`<1/alternate/1>; rel="alternate", </2>; title="a, b"; rel=ALTERNATE`,
		`<https://other.example/3>;rel="up alternate"`,
		`<https://x.example/4>;title="rel=alternate"`,
		`<https://x.example/5>;title="; rel=alternate"`,
		`<https://x.example/6>;title="a\"; rel=alternate; \""`,
		`<https://x.example/7>;rel=index;rel=alternate`,
		`broken, <unclosed;rel="alternate"`,
	}}}
	want := []string{"https://ca.example/cert/1/alternate/1", "https://ca.example/2", "https://other.example/3"}
	if got := r.alternates(8); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if got := r.alternates(2); !slices.Equal(got, want[:2]) {
		t.Errorf("at most two: got %q", got)
	}
}

// TestNoHiddenBlock: a PEM block that our decoder cannot read may be a key to another reader (RFC 8555 §11.4).
func TestNoHiddenBlock(t *testing.T) {
	const hidden = "-----BEGIN PRIVATE KEY-----\nAA!A\n-----END PRIVATE KEY-----\n"
	text := string(someChain(t))
	for _, body := range []string{hidden + text, text + hidden + text} {
		if _, err := parseChain([]byte(body)); err == nil || !strings.Contains(err.Error(), "does not parse") {
			t.Errorf("%v: %q", err, body)
		}
	}
	if certs, err := parseChain([]byte("subject=a\n" + text + "\r\n" + text)); err != nil || len(certs) != 2 {
		t.Error(len(certs), err)
	}
}

func TestNoncePoolIsBounded(t *testing.T) {
	var p noncePool
	for i := range 3 * maxNonces {
		p.put(strings.Repeat("n", i+1))
	}
	if n := len(p.free); n != maxNonces {
		t.Errorf("%d nonces", n)
	}
	if got := p.take(); len(got) != 3*maxNonces {
		t.Errorf("not the youngest first: %d", len(got))
	}
	for _, bad := range []string{"a b", "a+b", "a=", strings.Repeat("a", maxNonceLength+1)} {
		h := http.Header{}
		h.Set("Replay-Nonce", bad)
		if nonceOf(h) != "" {
			t.Errorf("nonce %.20q is taken", bad)
		}
	}
}
