package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/growth"
)

// someChain is a certificate in PEM.
func someChain(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestAnswersCostNoSquare: a server sends as much as it may, in the form that costs the most. Four times as much costs
// about four times as much.
func TestAnswersCostNoSquare(t *testing.T) {
	at := &url.URL{Scheme: "https", Host: "ca.example.com", Path: "/order/1"}
	answer := func(body string) *response { return &response{url: at, header: http.Header{}, body: []byte(body)} }
	list := func(n int, element string) string {
		return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
	}
	for name, c := range map[string]struct {
		bound   int
		prepare func(n int) func()
	}{
		"authorizations of an order": {2 * maxNames, func(n int) func() {
			r := answer(`{"authorizations":[` + list(n, `"a"`) + `]}`)
			return func() { _, _ = r.order("") }
		}},
		"names of an order": {maxNames, func(n int) func() {
			r := answer(`{"identifiers":[` + list(n, `{"type":"dns","value":"a"}`) + `]}`)
			return func() { _, _ = r.order("") }
		}},
		"more authorizations than there may be": {limits.ACMEOrder / 3, func(n int) func() {
			r := answer(`{"authorizations":[` + list(n, `""`) + `]}`)
			return func() { _, _ = r.order("") }
		}},
		"profiles of a directory": {limits.ACMEBody / 8, func(n int) func() {
			profiles := make([]string, n)
			for i := range profiles {
				profiles[i] = fmt.Sprintf(`"%x":""`, i)
			}
			r := answer(`{"meta":{"profiles":{` + strings.Join(profiles, ",") + `}}}`)
			return func() { _ = r.decode(new(acme.Directory)) }
		}},
		"a deep order": {limits.ACMEOrder / 2, func(n int) func() {
			r := answer(strings.Repeat("[", n))
			return func() { _, _ = r.order("") }
		}},
		"a chain": {limits.ChainPEM, func(n int) func() {
			one := string(someChain(t))
			text := []byte(strings.Repeat(one, n/len(one)))
			return func() { _, _ = parseChain(text) }
		}},
		"beginnings of certificates": {limits.ChainPEM, func(n int) func() {
			text := []byte(strings.Repeat("-----BEGIN CERTIFICATE-----\n", n/28))
			return func() { _, _ = parseChain(text) }
		}},
		"a problem": {limits.ACMEBody, func(n int) func() {
			r := answer(`{"type":"` + acme.ProblemNamespace + `compound","detail":"` + strings.Repeat("<>\t", n/12) + `","subproblems":[` + list(n/60, `{"type":"a","detail":"b"}`) + `]}`)
			r.header.Set("Content-Type", "application/problem+json")
			return func() { _ = r.failure(400).Error() }
		}},
		"links": {limits.Headers, func(n int) func() {
			r := answer("")
			r.header.Set("Link", strings.Repeat(`<a>;rel="b c d";;,`, n/18))
			return func() { r.alternates(maxAlternates) }
		}},
		"half a link": {limits.Headers, func(n int) func() {
			r := answer("")
			r.header.Set("Link", strings.Repeat(`<`, n/2)+strings.Repeat(`"`, n/2))
			return func() { r.alternates(maxAlternates) }
		}},
		"many links": {limits.Headers / 8, func(n int) func() {
			r := answer("")
			for i := range n {
				r.header.Add("Link", fmt.Sprintf("<%d>;rel=index", i))
			}
			return func() { r.alternates(maxAlternates) }
		}},
	} {
		t.Run(name, func(t *testing.T) { growth.Linear(t, c.bound, c.prepare) })
	}
}
