package acmeorder_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme/accounts"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/golden"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/signer/acmeorder"
)

// refusal is what a CA may answer: what the table calls it, its status, and its problem or page.
type refusal struct {
	name   string
	status int
	body   string
}

// refusals are named by their class, too, as in internal/acme/accounts, where a test holds the names to the code.
var refusals = []refusal{
	{"Permanent (400 badPublicKey)", 400, "badPublicKey"},
	{"Refused (403 unauthorized)", 403, "unauthorized"},
	{"RateLimited (429)", 429, "rateLimited"},
	{"Paused (429 with a link)", 429, `rateLimited","detail":"see https://ca.test/unpause?jwt=x`},
	{"Unavailable (503)", 503, "serverInternal"},
	{"Unavailable (502 with a page)", 502, "<html>"},
	{"NotProcessed (400 badNonce)", 400, "badNonce"},
	{"NotReady (403 orderNotReady)", 403, "orderNotReady"},
	{"NotFound (404)", 404, ""},
	{"Unsure (404 with a page)", 404, "<html>"},
}

// paper is a CA that is not there: it answers as one does, without a network. It checks no signature and no nonce.
type paper struct {
	// at is the path that it refuses, with which answer, and how long it asks to wait; empty for none.
	at    string
	with  refusal
	asked time.Duration
	// refused counts the requests that it has refused.
	refused int
}

// RoundTrip implements http.RoundTripper.
func (p *paper) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Replay-Nonce": {"bm9uY2U"}, "Content-Type": {"application/json"}}, Request: r}
	body := `{"status":"valid"}`
	refuse := func(status int, text string) {
		answer.StatusCode, body = status, text
		answer.Header.Set("Content-Type", "text/html")
		if text != "" && !strings.HasPrefix(text, "<") {
			answer.Header.Set("Content-Type", "application/problem+json")
			body = `{"type":"urn:ietf:params:acme:error:` + text + `"}`
		}
	}
	switch {
	case p.at != "" && strings.HasPrefix(r.URL.Path, p.at):
		p.refused++
		refuse(p.with.status, p.with.body)
		if p.asked > 0 {
			answer.Header.Set("Retry-After", strconv.Itoa(int(p.asked.Seconds())))
		}
	case r.URL.Path == "/dir":
		body = `{"newNonce":"/nonce","newAccount":"/new","newOrder":"/order","revokeCert":"/revoke","keyChange":"/change","renewalInfo":"/ari"}`
	case r.URL.Path == "/new" && looksUp(r):
		refuse(http.StatusBadRequest, "accountDoesNotExist")
	case r.URL.Path == "/new":
		answer.StatusCode = http.StatusCreated
		answer.Header.Set("Location", "https://ca.test/account/1")
	}
	answer.Body = io.NopCloser(strings.NewReader(body))
	return answer, nil
}

// looksUp reports whether a request asks for an account without making one (RFC 8555 §7.3.1).
func looksUp(r *http.Request) bool {
	var jws struct{ Payload string }
	if json.NewDecoder(r.Body).Decode(&jws) != nil {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(jws.Payload)
	return err == nil && strings.Contains(string(payload), "onlyReturnExisting")
}

// onPaper is a bench at a CA on paper, in a process that has asked nothing yet, with the key of an account.
func (b *bench) onPaper(t *testing.T) *paper {
	t.Helper()
	b.now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ca, config := &paper{}, b.signer.Config
	config.Accounts = accounts.New(accounts.Options{
		Now:        func() time.Time { return b.now },
		HTTPClient: func(acmeclient.HTTPOptions) (*http.Client, error) { return &http.Client{Transport: ca}, nil },
	})
	b.signer, b.accounts = acmeorder.New(config), config.Accounts
	text, err := pki.EncodePKCS8(b.key)
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "account"}}
	if err := b.api.Delete(t.Context(), account); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	b.secret(t, "account", "tls.key", text)
	return ca
}

// repeated is a call that the engine repeats after each failure.
type repeated struct {
	chance   float64
	class    fault.Class
	failures int
}

// wait is how long the engine waits after one more failure, by the count of those of the same class in a row.
func (r *repeated) wait(err error) time.Duration {
	f := fault.Of(err)
	if f == nil {
		f = &fault.Fault{}
	}
	if !f.Unsent {
		if f.Class != r.class {
			r.class, r.failures = f.Class, 0
		}
		r.failures++
	}
	return engine.BackOff(err, r.failures, r.chance)
}

// TestWaits is the table of the waits of an issuer for its account, and of those who revoke a certificate or ask
// when to renew it.
func TestWaits(t *testing.T) {
	t.Parallel()
	b := cheap(newBench(t))
	var waits golden.Waits
	for _, c := range []struct {
		name, at string
		// begin does what comes before the failures, and returns the call that fails, with when it is made again where it
		// says so by itself.
		begin func(*certmanagerv1.Issuer) func() (time.Time, error)
	}{
		{"registration", "/new", func(is *certmanagerv1.Issuer) func() (time.Time, error) {
			return func() (time.Time, error) { return b.probe(t, is) }
		}},
		{"contact", "/account/", func(is *certmanagerv1.Issuer) func() (time.Time, error) {
			b.rest(t, is)
			is.Spec.ACME.Email = "new@example.com"
			return func() (time.Time, error) { return b.probe(t, is) }
		}},
		{"key change", "/change", func(is *certmanagerv1.Issuer) func() (time.Time, error) {
			b.rest(t, is)
			ask(is, "1")
			return func() (time.Time, error) { return b.probe(t, is) }
		}},
		{"revocation", "/revoke", func(is *certmanagerv1.Issuer) func() (time.Time, error) {
			b.rest(t, is)
			r := signer.Revocation{Certificate: []byte("DER"), Reason: revocation.KeyCompromise}
			return func() (time.Time, error) { return time.Time{}, b.signer.Revoke(t.Context(), is, r) }
		}},
		{"ARI errors", "/ari", func(is *certmanagerv1.Issuer) func() (time.Time, error) {
			b.rest(t, is)
			chain := leaf(t, aki, b.key)
			return func() (time.Time, error) {
				_, err := b.signer.RenewalInfo(t.Context(), is, chain)
				if f := fault.Of(err); f != nil && f.Delay > 0 {
					return b.now.Add(f.Delay), nil
				}
				return time.Time{}, err
			}
		}},
	} {
		for _, with := range refusals {
			waits.Add(c.name, with.name, func(asked time.Duration, chance float64) func(int) string {
				ca := b.onPaper(t)
				is := (&watchedCA{Server: &pebble.Server{DirectoryURL: "https://ca.test/dir"}}).issuer("i", "")
				call, r := c.begin(is), repeated{chance: chance}
				ca.at, ca.with, ca.asked = c.at, with, asked
				again, err := call()
				return func(int) string {
					from, refused := b.now, ca.refused
					for ca.refused == refused {
						wait := again.Sub(b.now)
						if err != nil {
							wait = r.wait(err)
						}
						if wait <= 0 {
							return golden.Never
						}
						b.now = b.now.Add(wait)
						again, err = call()
					}
					return golden.Text(b.now.Sub(from))
				}
			})
		}
	}
	waits.Check(t, `A wait lasts until the next request is sent. Nothing is sent while the account is parked: see parks.
key change: the issuer stays ready meanwhile.
revocation: "never" becomes an hour in internal/controller/certificates.
ARI errors: what is more than 30s becomes the wait that ARI is asked for, in internal/machine/certificate.`)
}
