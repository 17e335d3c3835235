package client_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/miekg/dns"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/acme/client"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
)

func startPebble(t *testing.T, o pebble.Options) *pebble.Server {
	t.Helper()
	s, err := pebble.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func ecKey(t *testing.T, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newClient(t *testing.T, s *pebble.Server, key crypto.Signer) *client.Client {
	t.Helper()
	httpClient, err := client.NewHTTPClient(client.HTTPOptions{CABundle: s.TLSBundle})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{DirectoryURL: s.DirectoryURL, HTTPClient: httpClient, UserAgent: "test", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// registered is a client with a fresh account.
func registered(t *testing.T, s *pebble.Server) *client.Client {
	t.Helper()
	c := newClient(t, s, ecKey(t, elliptic.P256()))
	if _, err := c.NewAccount(t.Context(), acme.NewAccountRequest{TermsOfServiceAgreed: true}); err != nil {
		t.Fatal(err)
	}
	return c
}

// until polls: the wire client does not.
func until[T any](t *testing.T, what string, read func() (T, error), done func(T) bool) T {
	t.Helper()
	deadline := time.After(2 * time.Minute) // as rig.Patience
	for {
		v, err := read()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if done(v) {
			return v
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%s: still %+v after two minutes", what, v)
		}
	}
}

// issue takes an order to its certificate; present is called before each challenge of the type.
func issue(t *testing.T, c *client.Client, req acme.NewOrderRequest, typ acme.ChallengeType,
	present func(a *acme.Authorization, token, keyAuth string)) (*acme.Order, *client.Chain) {
	t.Helper()
	ctx := t.Context()
	order, err := c.NewOrder(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if order.URL == "" || order.Finalize == "" || len(order.Authorizations) != len(req.Identifiers) {
		t.Fatalf("an order without its URL, finalize URL or authorizations: %+v", order)
	}
	for _, url := range order.Authorizations {
		authz, err := c.GetAuthorization(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		if authz.Status != acme.StatusValid {
			prove(t, c, authz, typ, present)
		}
	}
	until(t, "order to be ready", func() (*acme.Order, error) { return c.GetOrder(ctx, order.URL) },
		func(o *acme.Order) bool { return o.Status == acme.StatusReady })
	template := &x509.CertificateRequest{}
	for _, id := range req.Identifiers {
		if id.Type == acme.IdentifierIP {
			template.IPAddresses = append(template.IPAddresses, netip.MustParseAddr(id.Value).AsSlice())
		} else {
			template.DNSNames = append(template.DNSNames, id.Value)
		}
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, template, ecKey(t, elliptic.P256()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.FinalizeOrder(ctx, order.Finalize, csr); err != nil {
		t.Fatal(err)
	}
	final := until(t, "order to be valid", func() (*acme.Order, error) { return c.GetOrder(ctx, order.URL) },
		func(o *acme.Order) bool { return o.Status == acme.StatusValid })
	chain, err := c.FetchCertificate(ctx, final.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	return final, chain
}

func prove(t *testing.T, c *client.Client, authz *acme.Authorization, typ acme.ChallengeType,
	present func(a *acme.Authorization, token, keyAuth string)) {
	t.Helper()
	i := slices.IndexFunc(authz.Challenges, func(ch acme.Challenge) bool { return ch.Type == typ })
	if i < 0 {
		t.Fatalf("no %s challenge for %s", typ, authz.Identifier.Value)
	}
	ch := authz.Challenges[i]
	present(authz, ch.Token, ch.Token+"."+c.Thumbprint())
	if err := c.AcceptChallenge(t.Context(), ch.URL); err != nil {
		t.Fatal(err)
	}
	until(t, "authorization", func() (*acme.Authorization, error) { return c.GetAuthorization(t.Context(), authz.URL) },
		func(a *acme.Authorization) bool {
			if a.Status == acme.StatusInvalid {
				t.Fatalf("authorization of %s: %v", a.Identifier.Value, a.Challenges[0].Error)
			}
			return a.Status == acme.StatusValid
		})
}

func noProof(*acme.Authorization, string, string) {}

func verify(t *testing.T, s *pebble.Server, chain *client.Chain, names ...string) {
	t.Helper()
	inter := x509.NewCertPool()
	for _, cert := range chain.Certificates[1:] {
		inter.AddCert(cert)
	}
	for _, name := range names {
		if _, err := chain.Certificates[0].Verify(x509.VerifyOptions{
			DNSName: name, Roots: s.RootPool(), Intermediates: inter}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The whole way for each solver, with every third good nonce refused and real validations.
func TestIssueHTTP01(t *testing.T) {
	t.Parallel()
	var answers sync.Map
	web := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v, ok := answers.Load(r.URL.Path); ok {
			_, _ = w.Write([]byte(v.(string)))
			return
		}
		http.NotFound(w, r)
	}))
	names, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{
		{Name: "example.com.", Records: []string{"example.com. 60 IN A 127.0.0.1", "www.example.com. 60 IN A 127.0.0.1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	s := startPebble(t, pebble.Options{DNSServer: names.Addr(), HTTPPort: web, NonceRejectPercent: 30})
	c := registered(t, s)
	_, chain := issue(t, c, acme.NewOrderRequest{Identifiers: []acme.Identifier{acme.DNS("example.com"), acme.DNS("www.example.com")}},
		acme.ChallengeHTTP01, func(_ *acme.Authorization, token, keyAuth string) {
			answers.Store(acme.HTTP01Path(token), keyAuth)
		})
	verify(t, s, chain, "example.com", "www.example.com")
}

func TestIssueDNS01(t *testing.T) {
	t.Parallel()
	const zone = "example.com."
	server, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: zone}}})
	if err != nil {
		t.Fatal(err)
	}
	s := startPebble(t, pebble.Options{DNSServer: server.Addr(), NonceRejectPercent: 30})
	c := registered(t, s)
	// Apex and wildcard prove themselves at the same name, with a record each.
	ids := []acme.Identifier{acme.DNS("example.com"), acme.DNS("*.example.com")}
	_, chain := issue(t, c, acme.NewOrderRequest{Identifiers: ids}, acme.ChallengeDNS01,
		func(a *acme.Authorization, _, keyAuth string) {
			txt := &dns.TXT{Hdr: dns.RR_Header{Name: acme.DNS01Label + a.Identifier.Value + ".", Rrtype: dns.TypeTXT,
				Class: dns.ClassINET, Ttl: 1}, Txt: []string{acme.DNS01Value(keyAuth)}}
			m := new(dns.Msg).SetUpdate(zone)
			m.Insert([]dns.RR{txt})
			if in, err := dns.ExchangeContext(t.Context(), m, server.Addr()); err != nil || in.Rcode != dns.RcodeSuccess {
				t.Errorf("update: %v, %v", in, err)
			}
		})
	verify(t, s, chain, "example.com", "any.example.com")
}

func TestIssueIPWithProfileAndAlternates(t *testing.T) {
	t.Parallel()
	s := startPebble(t, pebble.Options{AlwaysValid: true, NonceRejectPercent: 30, AlternateRoots: 2, ChainLength: 2,
		RetryAfterOrder: 7 * time.Second,
		Profiles: map[string]ca.Profile{
			"classic": {Description: "90 days"}, "shortlived": {Description: "6 days", ValidityPeriod: 518400}}})
	c := registered(t, s)
	addr := netip.MustParseAddr("127.0.0.1")
	order, chain := issue(t, c, acme.NewOrderRequest{Profile: "shortlived", Identifiers: []acme.Identifier{acme.IP(addr)}},
		acme.ChallengeHTTP01, noProof)
	verify(t, s, chain, "127.0.0.1")
	leaf := chain.Certificates[0]
	if order.Profile != "shortlived" || leaf.NotAfter.Sub(leaf.NotBefore) > 7*24*time.Hour {
		t.Errorf("profile %q, valid %v", order.Profile, leaf.NotAfter.Sub(leaf.NotBefore))
	}
	if len(chain.Certificates) != 3 || len(chain.Alternates) != 2 {
		t.Fatalf("%d certificates, alternates %q", len(chain.Certificates), chain.Alternates)
	}
	issuers := map[string]bool{chain.Certificates[2].Issuer.CommonName: true}
	for _, url := range chain.Alternates {
		alt, err := c.FetchCertificate(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		issuers[alt.Certificates[2].Issuer.CommonName] = true
	}
	if len(issuers) != 3 {
		t.Errorf("roots of the chains: %v", issuers)
	}
	for name, want := range map[string]error{"absent": acme.ErrProfileUnknown, "shortlived": nil} {
		dir, err := c.Directory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := dir.CheckProfile(name); !errors.Is(got, want) {
			t.Errorf("profile %s: %v, want %v", name, got, want)
		}
	}
	_, err := c.NewOrder(t.Context(), acme.NewOrderRequest{Profile: "absent", Identifiers: []acme.Identifier{acme.IP(addr)}})
	if err == nil || err.Error() != "acme: certificate authority does not advertise a profile with name absent" {
		t.Errorf("order with an unknown profile: %v", err)
	}
}

func TestRenewalInfoAndReplaces(t *testing.T) {
	t.Parallel()
	s := startPebble(t, pebble.Options{AlwaysValid: true, NonceRejectPercent: 30})
	c := registered(t, s)
	req := acme.NewOrderRequest{Identifiers: []acme.Identifier{acme.DNS("ari.example")}}
	_, chain := issue(t, c, req, acme.ChallengeDNS01, noProof)
	leaf := chain.Certificates[0]
	id, err := acme.CertID(leaf)
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.RenewalInfo(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	w := info.SuggestedWindow
	if w.Start.Before(leaf.NotBefore) || w.End.After(leaf.NotAfter) || info.RetryAfter != 6*time.Hour {
		t.Errorf("renewal information %+v", info)
	}
	if err := s.SetRenewalInfo(leaf.SerialNumber, `{"suggestedWindow":{"start":"2030-01-02T00:00:00Z","end":"2030-01-01T00:00:00Z"}}`); err != nil {
		t.Fatal(err)
	}
	var broken *client.ProtocolError
	if _, err := c.RenewalInfo(t.Context(), id); !errors.As(err, &broken) {
		t.Errorf("a window that ends before it starts: %v", err)
	}
	req.Replaces = id
	order, _ := issue(t, c, req, acme.ChallengeDNS01, noProof)
	if order.Replaces != id {
		t.Errorf("replaces %q, want %q", order.Replaces, id)
	}
	if n := s.Orders(c.AccountURL()); n != 2 {
		t.Errorf("Pebble counts %d orders", n)
	}
}

func TestAccountKeys(t *testing.T) {
	t.Parallel()
	s := startPebble(t, pebble.Options{AlwaysValid: true, NonceRejectPercent: 30})
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{
		"RSA": rsaKey, "P-256": ecKey(t, elliptic.P256()), "P-384": ecKey(t, elliptic.P384()), "P-521": ecKey(t, elliptic.P521()),
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, s, key)
			made, err := c.NewAccount(t.Context(), acme.NewAccountRequest{TermsOfServiceAgreed: true, Contact: []string{"mailto:a@example.com"}})
			if err != nil || !made.Created || made.URL == "" || made.Status != acme.StatusValid {
				t.Fatalf("%+v, %v", made, err)
			}
			// The same key from a fresh client finds the same account.
			found, err := newClient(t, s, key).LookupAccount(t.Context())
			if err != nil || found.Created || found.URL != made.URL {
				t.Errorf("%+v, %v", found, err)
			}
			_, chain := issue(t, c, acme.NewOrderRequest{Identifiers: []acme.Identifier{acme.DNS("k.example")}}, acme.ChallengeHTTP01, noProof)
			verify(t, s, chain, "k.example")
		})
	}
}

func TestAccountLife(t *testing.T) {
	t.Parallel()
	s := startPebble(t, pebble.Options{NonceRejectPercent: 30})
	ctx, key := t.Context(), ecKey(t, elliptic.P256())
	c := newClient(t, s, key)
	if _, err := c.GetOrder(ctx, s.DirectoryURL); !errors.Is(err, client.ErrNoAccount) {
		t.Errorf("before the account is known: %v", err)
	}
	if _, err := c.LookupAccount(ctx); !acme.HasCode(err, acme.CodeAccountDoesNotExist) || client.StatusOf(err) != http.StatusBadRequest {
		t.Errorf("look-up of no account: %v", err)
	}
	if _, err := c.NewAccount(ctx, acme.NewAccountRequest{}); !acme.HasCode(err, acme.CodeUserActionRequired) {
		t.Errorf("terms not agreed: %v", err)
	}
	if _, err := c.NewAccount(ctx, acme.NewAccountRequest{TermsOfServiceAgreed: true}); err != nil {
		t.Fatal(err)
	}
	want := []string{"mailto:b@example.com"}
	if err := c.UpdateContact(ctx, want); err != nil {
		t.Fatal(err)
	}
	if a, err := c.LookupAccount(ctx); err != nil || !slices.Equal(a.Contact, want) || a.URL != c.AccountURL() {
		t.Fatalf("%+v, %v", a, err)
	}
	next := ecKey(t, elliptic.P384())
	if err := c.RolloverKey(ctx, next); err != nil {
		t.Fatal(err)
	}
	if err := c.UpdateContact(ctx, want); err == nil {
		t.Error("the old key still works")
	}
	d, err := c.WithKey(next, c.AccountURL())
	if err != nil {
		t.Fatal(err)
	}
	if a, err := d.LookupAccount(ctx); err != nil || a.URL != c.AccountURL() {
		t.Fatalf("the new key's account: %+v, %v", a, err)
	}
}

func TestExternalAccount(t *testing.T) {
	t.Parallel()
	mac := []byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	s := startPebble(t, pebble.Options{NonceRejectPercent: 30, RequireEAB: true,
		EABKeys: map[string]string{"kid-1": base64.RawURLEncoding.EncodeToString(mac)}})
	c := newClient(t, s, ecKey(t, elliptic.P256()))
	if _, err := c.NewAccount(t.Context(), acme.NewAccountRequest{TermsOfServiceAgreed: true}); !acme.HasCode(err, acme.CodeExternalAccountRequired) {
		t.Errorf("without a binding: %v", err)
	}
	for alg, want := range map[acme.MACAlgorithm]bool{"": true, acme.HS256: true, acme.HS384: true, acme.HS512: true, "none": false} {
		c := newClient(t, s, ecKey(t, elliptic.P256()))
		_, err := c.NewAccount(t.Context(), acme.NewAccountRequest{TermsOfServiceAgreed: true,
			ExternalAccount: &acme.ExternalAccount{KeyID: "kid-1", Key: mac, Algorithm: alg}})
		if (err == nil) != want {
			t.Errorf("%q: %v", alg, err)
		}
	}
	_, err := c.NewAccount(t.Context(), acme.NewAccountRequest{TermsOfServiceAgreed: true,
		ExternalAccount: &acme.ExternalAccount{KeyID: "kid-1", Key: []byte("0123456789abcdef0123456789abcdef")}})
	if !acme.HasCode(err, acme.CodeUnauthorized) {
		t.Errorf("a wrong MAC key: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := startPebble(t, pebble.Options{AlwaysValid: true, NonceRejectPercent: 30, Blocklist: []string{"blocked.example"}})
	c := registered(t, s)
	order := func(names ...string) acme.NewOrderRequest {
		var ids []acme.Identifier
		for _, n := range names {
			ids = append(ids, acme.DNS(n))
		}
		return acme.NewOrderRequest{Identifiers: ids}
	}
	if _, err := c.NewOrder(t.Context(), order("a.blocked.example")); !acme.HasCode(err, acme.CodeRejectedIdentifier) {
		t.Errorf("a blocked name: %v", err)
	}
	o, err := c.NewOrder(t.Context(), order("a.example", "*.a.example"))
	if err != nil {
		t.Fatal(err)
	}
	var wild int
	for _, url := range o.Authorizations {
		a, err := c.GetAuthorization(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if a.Wildcard {
			wild++
		}
		if a.Identifier.Value != "a.example" {
			t.Errorf("authorization for %q", a.Identifier.Value)
		}
		if a, err := c.DeactivateAuthorization(t.Context(), url); err != nil || a.Status != acme.StatusDeactivated {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if wild != 1 {
		t.Errorf("%d of 2 authorizations are wildcards", wild)
	}
	if _, err := c.FinalizeOrder(t.Context(), o.Finalize, []byte("no CSR")); acme.ProblemOf(err) == nil {
		t.Errorf("finalizing an order that is not ready: %v", err)
	}
	var plain *client.HTTPError
	if _, err := c.GetOrder(t.Context(), o.URL+"x"); !errors.As(err, &plain) || plain.Status != http.StatusNotFound {
		t.Errorf("an order that is not there: %v", err)
	}
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	s := startPebble(t, pebble.Options{AlwaysValid: true, NonceRejectPercent: 30})
	c := registered(t, s)
	_, chain := issue(t, c, acme.NewOrderRequest{Identifiers: []acme.Identifier{acme.DNS("r.example")}}, acme.ChallengeDNS01, noProof)
	der := chain.Certificates[0].Raw
	if err := c.RevokeCertificateByKey(t.Context(), der, ecKey(t, elliptic.P256()), acme.ReasonKeyCompromise); !acme.HasCode(err, acme.CodeUnauthorized) {
		t.Errorf("with a stranger's key: %v", err)
	}
	if err := c.RevokeCertificate(t.Context(), der, acme.ReasonSuperseded); err != nil {
		t.Fatal(err)
	}
	if err := c.RevokeCertificate(t.Context(), der, acme.ReasonSuperseded); !acme.HasCode(err, acme.CodeAlreadyRevoked) {
		t.Errorf("again: %v", err)
	}
}

// One client, many goroutines: every request gets a nonce of its own.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	s := startPebble(t, pebble.Options{AlwaysValid: true, NonceRejectPercent: 30})
	c := registered(t, s)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 5 {
				if err := c.UpdateContact(t.Context(), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
