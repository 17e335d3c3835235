package accounts_test

import (
	"crypto"
	"net/http"
	"strings"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/pki"
)

// issue has an account's CA issue a certificate for a key.
func issue(t *testing.T, a *accounts.Account, key crypto.Signer, name string) (der []byte) {
	t.Helper()
	csr, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{name}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	do := func(action order.Action) order.Outcome {
		t.Helper()
		out := order1(t, a, action)
		if out.Failure != nil {
			t.Fatalf("%s: %s", action.Step, out.Failure.Error())
		}
		return out
	}
	o := do(order.Action{Step: order.Create, NewOrder: ordering([]acme.Identifier{{Type: "dns", Value: name}})}).Order
	authz := do(order.Action{Step: order.FetchAuthorizations, URLs: o.Authorizations}).Authorizations[0]
	offered := authz.Challenges[0]
	spec := acmev1.ChallengeSpec{URL: offered.URL, Type: acmev1.ChallengeTypeHTTP01, Token: offered.Token}
	spec.Key = acmeflow.KeyToPresent(spec.Type, spec.Token, a.Thumbprint())
	if out := challenge1(t, a, challenge.Accept, spec); out.Failure != nil {
		t.Fatal(out.Failure.Error())
	}
	finalized := false
	for deadline := time.Now().Add(2 * time.Minute); o.Certificate == "" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // a real server
		if o.Status == "ready" && !finalized {
			finalized = true
			do(order.Action{Step: order.Finalize, URL: o.Finalize, CSR: order.CSRBytes(csr)})
		}
		o = do(order.Action{Step: order.Fetch, URL: o.URL}).Order
	}
	certs, err := pki.DecodeChain(do(order.Action{Step: order.Download, URL: o.Certificate}).Chain)
	if err != nil {
		t.Fatal(err)
	}
	return certs[0].Raw
}

// TestRevoke: by the account that has the certificate; by any other only with the certificate's own key; and once
// it is revoked, that is a success.
func TestRevoke(t *testing.T) {
	w := newWorld(t)
	owner, other := w.registered(t, w.server()), w.registered(t, w.server())
	var certs [][]byte
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.example.com", "b.example.com"} { // Pebble may reuse the authorization of a name
		certs = append(certs, issue(t, owner, key, name))
	}
	if f := fault.Of(owner.Revoke(t.Context(), certs[0], nil, acme.ReasonSuperseded)); f != nil {
		t.Fatalf("by its account: %+v", f)
	}
	if f := fault.Of(owner.Revoke(t.Context(), certs[0], nil, acme.ReasonSuperseded)); f != nil {
		t.Errorf("again: %+v", f)
	}
	if f := fault.Of(other.Revoke(t.Context(), certs[1], nil, acme.ReasonSuperseded)); f == nil || f.Class != fault.ClassRefused || !strings.Contains(f.Error(), "not associated with account") {
		t.Errorf("by another account: %+v", f)
	}
	stranger, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	if f := fault.Of(other.Revoke(t.Context(), certs[1], stranger, acme.ReasonKeyCompromise)); f == nil || f.Class != fault.ClassRefused {
		t.Errorf("by another key: %+v", f)
	}
	if f := fault.Of(other.Revoke(t.Context(), certs[1], key, acme.ReasonKeyCompromise)); f != nil {
		t.Errorf("by its own key: %+v", f)
	}
	w.answer.Store(&answer{at: "/revoke-cert", retryAfter: "60", status: 429, body: `{"type":"urn:ietf:params:acme:error:rateLimited"}`})
	if f := fault.Of(owner.Revoke(t.Context(), certs[1], key, acme.ReasonUnspecified)); f == nil || f.Class != fault.ClassRateLimited || f.Delay != time.Minute {
		t.Errorf("refused for now: %+v", f)
	}
	if until, _ := owner.Parked(); !until.Equal(w.now.Add(time.Minute)) {
		t.Errorf("parked until %s", until)
	}
	w.answer.Store(nil)
	if f := fault.Of(owner.Revoke(t.Context(), certs[1], key, acme.ReasonUnspecified)); f == nil || f.Class != fault.ClassNotProcessed {
		t.Errorf("while the account is parked: %+v", f)
	}
	without := ariServer(t, "", http.NotFound)
	if f := fault.Of(without.Revoke(t.Context(), certs[1], key, acme.ReasonUnspecified)); f == nil || f.Class != fault.ClassRefused {
		t.Errorf("where nothing can be revoked: %+v", f)
	}
}
