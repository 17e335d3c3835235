package ca

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// TestNamesThatNoClientMatches: they are refused in the words in which they are refused before an order at an ACME CA.
func TestNamesThatNoClientMatches(t *testing.T) {
	root := newAuthority(t, "root", true, nil)
	store := &secrets{}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key})
	label := strings.Repeat("x", 63)
	for name, good := range map[string]bool{
		"td.example.test.":                        false,
		label + "x.example.test":                  false,
		"joe@example.test":                        false,
		".example.test":                           false,
		"a..example.test":                         false,
		"a.*.example.test":                        false,
		"https://example.test":                    false,
		"example.test:443":                        false,
		"a.example.test b.example.test":           false,
		" example.test":                           false,
		strings.Repeat("xxxxxxx.", 31) + "xx.xx":  true,
		strings.Repeat("xxxxxxx.", 31) + "xx.xxx": false,
		label + ".example.test":                   true,
		"*.example.test":                          true,
		"w*.example.test":                         true,
		"_sip.example.test":                       true,
		"localhost":                               true,
		"A.Example.Test":                          true,
		"xn--bcher-kva.example.test":              true,
	} {
		r := newRequest(t)
		key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
		if err != nil {
			t.Fatal(err)
		}
		if r.CSR, err = pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"a.example.test", name}}}, key); err != nil {
			t.Fatal(err)
		}
		_, err = newSigner(store).Sign(t.Context(), issuerIn("team"), r)
		f := fault.Of(err)
		if good != (err == nil) || !good && (f == nil || f.Reason != "SigningError" || !strings.Contains(err.Error(), strconv.Quote(name)+" is no DNS name: a name has 253 characters at most, and each label 1 to 63")) {
			t.Errorf("%q: %v", name, err)
		}
		beforehand := preflight.Names(&certmanagerv1.CertificateSpec{DNSNames: []string{name}})
		if good != (beforehand.Outcome == preflight.OK) || !good && !strings.HasSuffix(fmt.Sprint(err), beforehand.Message) {
			t.Errorf("%q: before an order %+v, here %v", name, beforehand, err)
		}
	}
}

// TestKeyAlone: a request with a key and no PKCS#10 request has a certificate with that key and the names that it asks
// for; without a CSR and a key there is none.
func TestKeyAlone(t *testing.T) {
	t.Parallel()
	root, store := newAuthority(t, "root", true, nil), &secrets{}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key})
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	r := newRequest(t)
	r.CSR, r.Key, r.Names = nil, key.Public(), &pki.AltNames{URIs: []string{"spiffe://prod.example.com/ns/shop/sa/web"}}
	result, err := newSigner(store).Sign(t.Context(), issuerIn("team"), r)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := pki.DecodeChain(result.Bundle.Chain)
	if err != nil || !pki.PublicKeysEqual(chain[0].PublicKey, key.Public()) || len(chain[0].Subject.Names) > 0 || !pki.HasNames(chain[0], *r.Names) {
		t.Errorf("%v: %+v", err, chain[0])
	}
	r.Key = nil
	if _, err := newSigner(store).Sign(t.Context(), issuerIn("team"), r); err == nil {
		t.Error("a request without a key is signed")
	}
}
