package client

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"chancery.dev/internal/acme"
)

// says is a transport that answers everything but the directory with a body and a header.
type says struct {
	directory, body string
	header          http.Header
}

func (s *says) RoundTrip(req *http.Request) (*http.Response, error) {
	r := &http.Response{StatusCode: http.StatusOK, Header: s.header.Clone(), Request: req}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	body := s.body
	if req.URL.Path == "/dir" {
		body = s.directory
	}
	if r.Header.Get("Replay-Nonce") == "" {
		r.Header.Set("Replay-Nonce", "nonce")
	}
	r.Body = io.NopCloser(strings.NewReader(body))
	return r, nil
}

const someDirectory = `{"newNonce":"/nonce","newAccount":"/account","newOrder":"/order"}`

// asking is a client with an account at a server that answers with s.
func asking(tb testing.TB, s *says) *Client {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := New(Options{DirectoryURL: "https://ca.example/dir", HTTPClient: &http.Client{Transport: s}, Key: key})
	if err != nil {
		tb.Fatal(err)
	}
	c.account = "https://ca.example/account/1"
	return c
}

// isAddress reports whether something is an absolute URL, or nothing.
func isAddress(s string) bool {
	u, err := url.Parse(s)
	return s == "" || err == nil && u.IsAbs() && len(s) <= maxURL
}

// FuzzDirectory: what is taken of a directory is addresses, and no more profiles than the bound.
func FuzzDirectory(f *testing.F) {
	f.Add(someDirectory)
	f.Add(`{"newNonce":"//x/y","newAccount":"?","newOrder":"http:a","renewalInfo":"\u0000","meta":{"profiles":{"a":""}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		d, err := asking(t, &says{directory: body}).Directory(t.Context())
		if err != nil {
			return
		}
		for _, u := range []string{d.NewNonce, d.NewAccount, d.NewOrder, d.RevokeCert, d.KeyChange, d.RenewalInfo} {
			if !isAddress(u) {
				t.Errorf("%q is no address", u)
			}
		}
		if d.NewNonce == "" || d.NewAccount == "" || d.NewOrder == "" || len(d.Meta.Profiles) > maxProfiles {
			t.Errorf("%+v", d)
		}
	})
}

// FuzzOrder: all that an order leads to is addresses; there are no more of them than the bound, and no longer ones.
func FuzzOrder(f *testing.F) {
	f.Add(`{"status":"pending","identifiers":[{"type":"dns","value":"a"}],"authorizations":["/authz/1","x"],"finalize":"/f"}`)
	f.Add(`{"identifiers":null,"authorizations":[null],"error":{"type":"urn:ietf:params:acme:error:dns"}}`)
	f.Add(`{"Authorizations":["/a"],"AUTHORIZATIONS":["/b"],"certificate":"https://["}`)
	at, err := url.Parse("https://ca.example/order/1?x")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := &response{call: call{url: at.String()}, url: at, body: []byte(body)}
		o, err := r.order(at.String())
		if err != nil {
			return
		}
		size := 0
		for _, a := range append(o.Authorizations, o.Finalize, o.Certificate) {
			if size += len(a); !isAddress(a) {
				t.Errorf("%q is no address", a)
			}
		}
		if size > maxOrderBody+2*maxURL || len(o.Identifiers) > maxNames {
			t.Errorf("%d bytes of addresses, %d identifiers", size, len(o.Identifiers))
		}
	})
}

// FuzzAuthorization: a token that becomes a path, a file or a record is base64url, and a challenge leads to an
// address.
func FuzzAuthorization(f *testing.F) {
	f.Add(`{"status":"pending","challenges":[{"type":"http-01","url":"/c","token":"abc_-"},{"type":"dns-01","token":"../x"}]}`)
	f.Add(`{"challenges":[{"type":"tls-alpn-01","token":"a b"}],"Challenges":[{"type":"http-01","token":"/"}]}`)
	s := &says{directory: someDirectory}
	c := asking(f, s)
	f.Fuzz(func(t *testing.T, body string) {
		s.body = body
		a, err := c.GetAuthorization(t.Context(), "https://ca.example/authz/1")
		if err != nil {
			return
		}
		if len(a.Challenges) > maxChallenges {
			t.Errorf("%d challenges", len(a.Challenges))
		}
		for _, ch := range a.Challenges {
			proof := slices.Contains([]acme.ChallengeType{acme.ChallengeHTTP01, acme.ChallengeDNS01, acme.ChallengeDNSAccount01}, ch.Type)
			if !isAddress(ch.URL) || proof && strings.ContainsAny(ch.Token, "/.\\ \x00%?#") {
				t.Errorf("%+v", ch)
			}
		}
	})
}

// FuzzRenewalInfo: a window that is taken ends after its start (RFC 9773 §4.2), and what explains it is an address.
func FuzzRenewalInfo(f *testing.F) {
	f.Add(`{"suggestedWindow":{"start":"2026-01-01T00:00:00Z","end":"2026-01-02T00:00:00Z"},"explanationURL":"/why"}`)
	f.Add(`{"suggestedWindow":{"start":"0000-01-01T00:00:00Z","end":"9999-12-31T23:59:60+23:59"}}`)
	s := &says{directory: strings.Replace(someDirectory, "{", `{"renewalInfo":"/ari",`, 1)}
	c := asking(f, s)
	f.Fuzz(func(t *testing.T, body string) {
		s.body = body
		info, err := c.RenewalInfo(t.Context(), "a.b")
		if err == nil && (!info.SuggestedWindow.Start.Before(info.SuggestedWindow.End) || !isAddress(info.ExplanationURL)) {
			t.Errorf("%+v", info)
		}
	})
}

// links reads a Link header by the letter of RFC 8288 appendix B.2, as far as the relation and the target: a second
// reading beside alternates. The list ends at the first link that is malformed.
func links(header string) (targets [][2]string) {
	rest := header
	space := func() { rest = strings.TrimLeft(rest, " \t") }
	for {
		rest = strings.TrimLeft(rest, " \t,")
		if !strings.HasPrefix(rest, "<") || !strings.Contains(rest, ">") {
			return targets
		}
		target, after, _ := strings.Cut(rest[1:], ">")
		relation, seen := "", false
		for rest = after; ; {
			if space(); !strings.HasPrefix(rest, ";") {
				break
			}
			rest = rest[1:]
			space()
			end := strings.IndexAny(rest+";", " \t=;,")
			name, value := strings.ToLower(rest[:end]), ""
			rest = rest[end:]
			if space(); strings.HasPrefix(rest, "=") {
				rest = rest[1:]
				space()
				value, rest = parameter(rest)
			}
			if name == "rel" && !seen { // further ones are ignored (RFC 8288 §3.3)
				relation, seen = value, true
			}
		}
		targets = append(targets, [2]string{target, strings.ToLower(relation)})
		if space(); rest != "" && !strings.HasPrefix(rest, ",") {
			return targets
		}
	}
}

// parameter reads a token or a quoted string (RFC 9110 §5.6.4).
func parameter(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s+";", ";,")
		return strings.TrimRight(s[:end], " \t"), s[end:]
	}
	var out strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return out.String(), s[i+1:]
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		out.WriteByte(s[i])
	}
	return out.String(), ""
}

// FuzzLinks: the alternate chains are those that a reader by the letter of RFC 8288 finds, in its order.
func FuzzLinks(f *testing.F) {
	f.Add(`</a>; rel="alternate", <https://ca.example/b>;rel=alternate;title="x, <y>; rel=alternate"`)
	f.Add(`</a>; title="; rel=alternate"`)
	f.Add(`</a>; title="a\"; rel=alternate; b=\""`)
	f.Add(`</a>; rel=index; rel=alternate`)
	f.Add(`</a>; rel="index ALTERNATE", </dir>;rel="index"`)
	at, err := url.Parse("https://ca.example/cert/1")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, header string) {
		r := &response{url: at, header: http.Header{"Link": {header}}}
		var want []string
		for _, link := range links(header) {
			if u := r.absolute(link[0]); u != "" && slices.Contains(strings.Fields(link[1]), "alternate") && len(want) < maxAlternates {
				want = append(want, u)
			}
		}
		if got := r.alternates(maxAlternates); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	})
}

// FuzzParseChain: a chain that is taken has no PEM block but the certificates, whichever reader looks: it becomes a
// file that servers load (RFC 8555 §11.4).
func FuzzParseChain(f *testing.F) {
	text := string(someChain(f))
	f.Add("", text, "")
	f.Add("", text+"\n"+text, "\r\n")
	f.Add("subject=a.example\n", text, "# end\n")
	f.Add("-----BEGIN PRIVATE KEY-----\nAA!A\n-----END PRIVATE KEY-----\n", text, "")
	f.Fuzz(func(t *testing.T, before, chain, after string) {
		body := []byte(before + chain + after)
		certs, err := parseChain(body)
		if err != nil {
			return
		}
		blocks := 0
		for line := range bytes.Lines(body) {
			if bytes.HasPrefix(line, []byte("-----BEGIN")) {
				blocks++
			}
		}
		if blocks != len(certs) {
			t.Errorf("%d blocks are taken for %d certificates: %q", blocks, len(certs), body)
		}
		again, err := parseChain(bytes.TrimSpace(body))
		if err != nil || !slices.EqualFunc(again, certs, (*x509.Certificate).Equal) {
			t.Errorf("%q is read another way without space around it: %v", body, err)
		}
	})
}

// FuzzNonce: a nonce that is taken is base64url of a bounded length (RFC 8555 §6.5.1), as the server has written it.
func FuzzNonce(f *testing.F) {
	f.Add("abc_-0")
	f.Add("a b")
	f.Fuzz(func(t *testing.T, value string) {
		n := nonceOf(http.Header{"Replay-Nonce": {value}})
		strange := func(r rune) bool {
			return !strings.ContainsRune("-_", r) && (r > 'z' || !isBase64URL(fmt.Sprintf("%c", r)))
		}
		if n != "" && (n != value || len(n) > maxNonceLength || strings.ContainsFunc(n, strange)) {
			t.Errorf("%q: %q", value, n)
		}
	})
}
