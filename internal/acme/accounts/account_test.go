package accounts_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/acme/accounts"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/pebble"
)

// world is a CA whose answers can be replaced, and a registry that talks to it.
type world struct {
	ca      *pebble.Server
	now     time.Time
	changes []string
	// names counts the names that orders were made for.
	names int
	// answer, if set, is what the CA answers to paths that contain at.
	answer atomic.Pointer[answer]
	// watch, if set, is told of each path that is asked for.
	watch atomic.Pointer[func(path string)]
}

type answer struct {
	at, retryAfter, body string
	status               int
	// hold, if set, is called first.
	hold func()
	// acts says that the CA does what it is asked, and its own answer is lost.
	acts bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	w.ca, err = pebble.Start(t.Context(), pebble.Options{AlwaysValid: true, AlternateRoots: 1, Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if watch := w.watch.Load(); watch != nil {
				(*watch)(r.URL.Path)
			}
			a := w.answer.Load()
			if a == nil || !strings.Contains(r.URL.Path, a.at) {
				next.ServeHTTP(rw, r)
				return
			}
			if a.hold != nil {
				a.hold()
			}
			if a.acts {
				next.ServeHTTP(httptest.NewRecorder(), r)
			}
			if !strings.HasPrefix(a.body, "{") { // a page, or nothing
				rw.Header().Set("Content-Type", "text/html")
			} else {
				rw.Header().Set("Content-Type", "application/problem+json")
			}
			if a.retryAfter != "" {
				rw.Header().Set("Retry-After", a.retryAfter)
			}
			rw.WriteHeader(a.status)
			_, _ = rw.Write([]byte(a.body))
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) registry() *accounts.Registry {
	r := accounts.New(accounts.Options{UserAgent: "test", Now: func() time.Time { return w.now }})
	r.Watch(func(i accounts.Issuer, c accounts.Change) {
		w.changes = append(w.changes, i.Name+" "+[]string{"", "bound", "parked", "lost", "released"}[c])
	})
	return r
}

func (w *world) server() accounts.Server {
	return accounts.Server{URL: w.ca.DirectoryURL, CABundle: w.ca.TLSBundle}
}

// TestAccountIsAKeyAtAServer: whoever opens it gets the same one, and its registration
// outlives the process.
func TestAccountIsAKeyAtAServer(t *testing.T) {
	w := newWorld(t)
	for _, algorithm := range []string{pki.RSA, pki.ECDSA, pki.Ed25519} {
		key, err := pki.GenerateKey(pki.KeySpec{Algorithm: algorithm})
		if err != nil {
			t.Fatal(err)
		}
		r := w.registry()
		a, err := r.Open("issuer", w.server(), key)
		if err != nil {
			t.Fatal(err)
		}
		if twin, err := r.Open("issuer", w.server(), key); err != nil || twin != a {
			t.Errorf("%s: another account for the same key: %v", algorithm, err)
		}
		if algorithm == pki.Ed25519 {
			continue // Pebble refuses such keys
		}
		if err := a.Register(t.Context(), accounts.Registration{Email: "A@example.com"}); err != nil || !a.Registered("A@example.com") {
			t.Fatalf("%s: %v", algorithm, err)
		}
		again, err := w.registry().Open("issuer", w.server(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Register(t.Context(), accounts.Registration{Email: "b@example.com"}); err != nil {
			t.Fatal(err)
		}
		if again.URL() != a.URL() || a.URL() == "" || !again.Registered("b@example.com") || again.Registered("A@example.com") {
			t.Errorf("%s: accounts %s and %s", algorithm, a.URL(), again.URL())
		}
	}
}

func TestBindingsAndParks(t *testing.T) {
	w := newWorld(t)
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	r := w.registry()
	a, err := r.Open("issuer", w.server(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Register(t.Context(), accounts.Registration{}); err != nil {
		t.Fatal(err)
	}
	one, two := accounts.Issuer{UID: "1", Name: "one"}, accounts.Issuer{UID: "2", Namespace: "ns", Name: "two"}
	r.Bind(one, a)
	r.Bind(one, a)
	if got, ok := r.Of("1"); !ok || got != a {
		t.Error("it is not bound")
	}
	w.answer.Store(&answer{at: "order-plz", retryAfter: "60", status: 503, body: `{"type":"about:blank","detail":"busy"}`})
	out := order1(t, a, order.Action{Step: order.Create})
	if out.Failure == nil || out.Failure.Class != fault.ClassUnavailable || out.Failure.Delay != time.Minute {
		t.Errorf("failure %+v", out.Failure)
	}
	if until, reason := a.Parked(); !until.Equal(w.now.Add(time.Minute)) || !strings.Contains(reason, "busy") {
		t.Errorf("parked until %s: %s", until, reason)
	}
	waits := r.Waits()
	if len(waits) != 1 || waits[0].Kind != "ClusterIssuer" || waits[0].Name != "one" || waits[0].What != engine.WaitPark ||
		!waits[0].Until.Equal(w.now.Add(time.Minute)) || !strings.Contains(waits[0].Detail, "busy") {
		t.Errorf("the list of waits has %+v", waits)
	}
	w.now = w.now.Add(time.Minute)
	if waits := r.Waits(); len(waits) != 0 {
		t.Errorf("after the park, the list of waits has %+v", waits)
	}
	w.answer.Store(&answer{at: "order-plz", retryAfter: "86400", status: 429, body: `{"type":"urn:ietf:params:acme:error:rateLimited"}`})
	out = order1(t, a, orderFor("a.example.com"))
	if until, _ := a.Parked(); until.After(w.now) || out.Failure == nil || out.Failure.Delay != 24*time.Hour || out.Failure.Unsent {
		t.Errorf("one name's limit of a day parks the account until %s: %+v", until, out.Failure)
	}
	out = order1(t, a, orderFor("b.example.com"))
	if out.Failure == nil || out.Failure.Class != fault.ClassRateLimited || out.Failure.Delay != time.Minute || !out.Failure.Unsent {
		t.Errorf("other names at once: %+v", out.Failure)
	}
	w.now = w.now.Add(time.Minute)
	out = order1(t, a, orderFor("a.example.com"))
	if out.Failure == nil || out.Failure.Class != fault.ClassRateLimited || out.Failure.Delay != 24*time.Hour-time.Minute ||
		!strings.Contains(out.Failure.Error(), "not sent, because the ACME server has refused an order for the same names: 429") {
		t.Errorf("the same names again: %+v", out.Failure)
	}
	w.answer.Store(nil)
	renewal := orderFor("a.example.com")
	renewal.NewOrder.Replaces, renewal.NewOrder.Renewal = "YQ.Yg", true
	if out = order1(t, a, renewal); out.Failure != nil && out.Failure.Class == fault.ClassRateLimited {
		t.Errorf("a renewal is not sent: %+v", out.Failure)
	}
	if out = order1(t, a, orderFor("b.example.com")); out.Failure != nil {
		t.Errorf("other names: %+v", out.Failure)
	}
	if out = order1(t, a, orderFor("a.example.com")); out.Failure == nil {
		t.Error("the names that were refused are taken after others were")
	}
	w.answer.Store(&answer{at: "order-plz", retryAfter: "60", status: 503, body: `{"type":"urn:ietf:params:acme:error:rateLimited"}`})
	out = order1(t, a, orderFor("e.example.com"))
	if until, _ := a.Parked(); !until.Equal(w.now.Add(time.Minute)) || out.Failure.Class != fault.ClassRateLimited {
		t.Errorf("a busy server parks the account until %s: %+v", until, out.Failure)
	}
	w.now = w.now.Add(time.Minute)
	w.answer.Store(nil)
	if out = order1(t, a, orderFor("e.example.com")); out.Failure != nil {
		t.Errorf("after it was busy: %+v", out.Failure)
	}
	// Three in a row are meant for all.
	w.answer.Store(&answer{at: "order-plz", retryAfter: "86400", status: 429, body: "<html>"})
	for _, want := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, time.Hour} {
		order1(t, a, orderFor("c.example.com"))
		if until, _ := a.Parked(); !until.Equal(w.now.Add(want)) {
			t.Errorf("a proxy's limit of a day parks the account until %s, not for %s", until, want)
		}
		w.now = w.now.Add(want)
	}
	w.answer.Store(nil)
	if out = order1(t, a, orderFor("c.example.com")); out.Failure != nil {
		t.Errorf("after the proxy: %+v", out.Failure)
	}
	w.answer.Store(&answer{at: "order-plz", status: 429, body: `{"type":"urn:ietf:params:acme:error:rateLimited"}`})
	order1(t, a, orderFor("d.example.com"))
	if out = order1(t, a, orderFor("d.example.com")); out.Failure == nil || out.Failure.Delay != time.Minute || !out.Failure.Unsent {
		t.Errorf("after a limit without a time: %+v", out.Failure)
	}
	r.Bind(two, a)
	w.now = w.now.Add(time.Minute)
	w.answer.Store(&answer{at: "order-plz", status: 400, body: `{"type":"urn:ietf:params:acme:error:accountDoesNotExist"}`})
	out = order1(t, a, order.Action{Step: order.Create})
	if out.Failure == nil || out.Failure.Class != fault.ClassUnavailable || a.URL() != "" || a.Registered("") {
		t.Errorf("failure %+v, URL %q", out.Failure, a.URL())
	}
	r.Release(two)
	r.Release(one)
	if _, ok := r.Of("1"); ok {
		t.Error("it is still bound")
	}
	lost := strings.Count(strings.Join(w.changes, ","), "lost")
	if w.changes[0] != "one bound" || w.changes[1] != "one parked" || w.changes[6] != "one parked" || w.changes[7] != "two bound" || lost != 2 {
		t.Errorf("changes %v", w.changes)
	}
}

// TestRegistrationEndsARow: a CA that registers the account does what it is asked. What it refuses after that
// is the first refusal, not one more in a row.
func TestRegistrationEndsARow(t *testing.T) {
	w := newWorld(t)
	a, err := w.registry().Open("issuer", w.server(), newKey(t, pki.ECDSA))
	if err != nil {
		t.Fatal(err)
	}
	w.answer.Store(&answer{at: "sign-me-up", retryAfter: "86400", status: 503, body: "<html>"})
	for _, want := range []time.Duration{time.Minute, 10 * time.Minute} {
		if err := a.Register(t.Context(), accounts.Registration{}); err == nil {
			t.Fatal("it is registered")
		}
		if until, _ := a.Parked(); !until.Equal(w.now.Add(want)) {
			t.Errorf("parked until %s, not for %s", until, want)
		}
		w.now = w.now.Add(want)
	}
	w.answer.Store(nil)
	if err := a.Register(t.Context(), accounts.Registration{}); err != nil {
		t.Fatal(err)
	}
	w.answer.Store(&answer{at: "order-plz", retryAfter: "86400", status: 503, body: "<html>"})
	order1(t, a, orderFor("a.example.com"))
	if until, _ := a.Parked(); !until.Equal(w.now.Add(time.Minute)) {
		t.Errorf("parked until %s, not for a minute", until)
	}
}

// TestClosedAccount: a CA that refuses an order because the account was deactivated costs the issuer its account, whose
// registration then says so. Where the CA refuses the order alone, the account stays.
func TestClosedAccount(t *testing.T) {
	w := newWorld(t)
	r := w.registry()
	a, err := r.Open("issuer", w.server(), newKey(t, pki.ECDSA))
	if err != nil {
		t.Fatal(err)
	}
	r.Bind(accounts.Issuer{UID: "issuer", Name: "issuer"}, a)
	if err := a.Register(t.Context(), accounts.Registration{}); err != nil {
		t.Fatal(err)
	}
	w.answer.Store(&answer{at: "order-plz", status: 403, body: `{"type":"urn:ietf:params:acme:error:unauthorized","detail":"not this name"}`})
	if out := order1(t, a, orderFor("a.example.com")); a.URL() == "" || out.Failure.Class != fault.ClassRefused {
		t.Errorf("the account has gone with an order: %v", out.Failure)
	}
	w.answer.Store(nil)
	if err := w.ca.Deactivate(a.URL()); err != nil {
		t.Fatal(err)
	}
	if out := order1(t, a, orderFor("b.example.com")); a.URL() != "" || out.Failure.Class != fault.ClassUnavailable {
		t.Errorf("the account is there still: %v", out.Failure)
	}
	if err := a.Register(t.Context(), accounts.Registration{}); !errors.Is(err, accounts.ErrClosed) || !strings.Contains(err.Error(), "deactivated") {
		t.Errorf("the registration says %v", err)
	}
}

// TestServerGoesWithItsLastAccount: whoever may make issuers can name servers without end.
func TestServerGoesWithItsLastAccount(t *testing.T) {
	w, made := newWorld(t), 0
	r := accounts.New(accounts.Options{UserAgent: "test", Now: func() time.Time { return w.now }, HTTPClient: func(o acmeclient.HTTPOptions) (*http.Client, error) {
		made++
		return acmeclient.NewHTTPClient(o)
	}})
	open := func(issuer accounts.Issuer) *accounts.Account {
		a, err := r.Open(issuer.UID, w.server(), newKey(t, pki.ECDSA))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	one, two := accounts.Issuer{UID: "1"}, accounts.Issuer{UID: "2"}
	r.Bind(one, open(one))
	r.Bind(two, open(two))
	r.Release(one)
	r.Bind(one, open(one))
	if made != 1 {
		t.Errorf("%d connections were made while the server was in use", made)
	}
	r.Release(one)
	r.Release(two)
	r.Bind(one, open(one))
	if made != 2 {
		t.Errorf("%d connections were made, want a second after nobody used the server", made)
	}
	// A server that refuses to register the account of its issuer goes with the issuer, too.
	r.Release(one)
	open(two)
	r.Release(two)
	if open(one); made != 4 {
		t.Errorf("%d connections were made, want one for an issuer that was never registered, and one after it", made)
	}
}

// TestPaused: what Let's Encrypt answers for names that it has paused, with its page for that, whole; no other order
// waits for it.
func TestPaused(t *testing.T) {
	w := newWorld(t)
	a := w.registered(t, w.server())
	link := "https://portal.example/sfe/v1/unpause?jwt=" + strings.Repeat("x", 900)
	w.answer.Store(&answer{at: "order-plz", status: 429, body: `{"type":"urn:ietf:params:acme:error:rateLimited","detail":` +
		`"Your account is temporarily prevented from requesting certificates for ` + strings.Repeat("a.example.com, ", 40) + `and possibly others. Please visit: ` + link + `"}`})
	for _, unsent := range []bool{false, true} {
		f := order1(t, a, orderFor("a.example.com")).Failure
		if f == nil || f.Class != fault.ClassPaused || f.Unsent != unsent || !f.MayPass() || !strings.HasSuffix(f.Error(), " "+link) {
			t.Errorf("unsent %t: %+v", unsent, f)
		}
	}
	w.answer.Store(nil)
	if f := order1(t, a, orderFor("b.example.com")).Failure; f != nil {
		t.Errorf("other names: %+v", f)
	}
	w.answer.Store(&answer{at: "order-plz", status: 429, body: `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"see https://example.com/docs/rate-limits"}`})
	if f := order1(t, a, orderFor("c.example.com")).Failure; f == nil || f.Class != fault.ClassRateLimited {
		t.Errorf("a limit that passes by itself: %+v", f)
	}
}

// TestClasses: what a step's answer amounts to.
func TestClasses(t *testing.T) {
	w := newWorld(t)
	a := w.registered(t, w.server())
	base := strings.TrimSuffix(w.ca.DirectoryURL, "/dir")
	for name, c := range map[string]struct {
		action order.Action
		answer *answer
		want   fault.Class
	}{
		"unknown profile": {action: order.Action{Step: order.Create, NewOrder: order.NewOrder{NewOrderRequest: acme.NewOrderRequest{Profile: "none"}}}, want: fault.ClassPermanent},
		"finalize too early": {
			order.Action{Step: order.Finalize, URL: base + "/finalize-order/x", CSR: []byte("x")},
			&answer{at: "finalize-order", status: 403, body: `{"type":"urn:ietf:params:acme:error:unauthorized"}`}, fault.ClassNotReady,
		},
		"a proxy's page":    {order.Action{Step: order.Fetch, URL: base + "/my-order/x"}, &answer{at: "my-order", status: 502, body: "<html>"}, fault.ClassUnavailable},
		"a proxy's refusal": {order.Action{Step: order.Fetch, URL: base + "/my-order/x"}, &answer{at: "my-order", status: 403}, fault.ClassUnavailable},
		"gone, and no word": {order.Action{Step: order.Fetch, URL: base + "/my-order/x"}, &answer{at: "my-order", status: 404}, fault.ClassNotFound},
		"gone, says a page": {order.Action{Step: order.Fetch, URL: base + "/my-order/x"}, &answer{at: "my-order", status: 404, body: "404 page not found"}, fault.ClassNotFound},
		"nobody there":      {order.Action{Step: order.Fetch, URL: "https://127.0.0.1:1/order"}, nil, fault.ClassUnavailable},
		"gone":              {order.Action{Step: order.Fetch, URL: base + "/my-order/x"}, &answer{at: "my-order", status: 404, body: `{"type":"about:blank"}`}, fault.ClassNotFound},
		"more than anybody needs": {
			order.Action{Step: order.Download, URL: base + "/certZ/x"},
			&answer{at: "certZ", status: 200, body: strings.Repeat("\n", pki.MaxChainPEM+1)}, fault.ClassRefused,
		},
		"as much as is decoded": {
			order.Action{Step: order.Download, URL: base + "/certZ/x"},
			&answer{at: "certZ", status: 200, body: strings.Repeat("\n", pki.MaxChainPEM)}, fault.ClassUnavailable,
		},
		"not a step": {action: order.Action{Step: order.CreateChallenges}, want: fault.ClassRefused},
	} {
		w.answer.Store(c.answer)
		out := order1(t, a, c.action)
		if out.Failure == nil || out.Failure.Class != c.want || out.Failure.Unsure != (name == "gone, says a page") {
			t.Errorf("%s: %+v, want %s", name, out.Failure, c.want)
		}
	}
}

// TestStepsOfAnOrder: the way of an order from its creation to its chain.
func TestStepsOfAnOrder(t *testing.T) {
	w := newWorld(t)
	a := w.registered(t, w.server())
	do := func(action order.Action) order.Outcome {
		t.Helper()
		out := order1(t, a, action)
		if out.Failure != nil {
			t.Fatalf("%s: %s", action.Step, out.Failure.Error())
		}
		return out
	}
	ids := []acme.Identifier{{Type: "dns", Value: "a.example.com"}, {Type: "dns", Value: "*.b.example.com"}}
	o := do(order.Action{Step: order.Create, NewOrder: ordering(ids)}).Order
	authorizations := do(order.Action{Step: order.FetchAuthorizations, URLs: o.Authorizations}).Authorizations
	if len(authorizations) != 2 || authorizations[0].Wildcard == authorizations[1].Wildcard || authorizations[0].URL != o.Authorizations[0] {
		t.Fatalf("authorizations %+v", authorizations)
	}
	for _, authz := range authorizations {
		for _, c := range authz.Challenges {
			if c.Type == acme.ChallengeDNS01 {
				spec := acmev1.ChallengeSpec{URL: c.URL, Type: acmev1.ChallengeTypeDNS01, Token: c.Token}
				spec.Key = acmeflow.KeyToPresent(spec.Type, spec.Token, a.Thumbprint())
				if out := challenge1(t, a, challenge.Accept, spec); out.Failure != nil {
					t.Fatal(out.Failure.Error())
				}
			}
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); o.Status != "ready" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // a real server
		o = do(order.Action{Step: order.Fetch, URL: o.URL}).Order
	}
	leaf, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"a.example.com", "*.b.example.com"}}}, leaf)
	if err != nil {
		t.Fatal(err)
	}
	do(order.Action{Step: order.Finalize, URL: o.Finalize, CSR: order.CSRBytes(csr)})
	for deadline := time.Now().Add(2 * time.Minute); o.Certificate == "" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // a real server
		o = do(order.Action{Step: order.Fetch, URL: o.URL}).Order
	}
	chain := do(order.Action{Step: order.Download, URL: o.Certificate}).Chain
	preferring := func(name string) bool {
		got := do(order.Action{Step: order.Download, URL: o.Certificate, PreferredChain: name}).Chain
		return order.ChainMatches(name, got)
	}
	alternate := w.ca.Roots()[1].Subject.CommonName
	with, unknown := preferring(alternate), preferring("somebody else's")
	w.answer.Store(&answer{at: "/alternate/", status: 404, body: `{"type":"urn:ietf:params:acme:error:malformed"}`})
	if without := preferring(alternate); !with || unknown || without {
		t.Errorf("preferred and there: %v, not there: %v, not to be had: %v", with, unknown, without)
	}
	if certs, err := pki.DecodeChain(chain); err != nil || !pki.PublicKeysEqual(certs[0].PublicKey, leaf.Public()) {
		t.Errorf("chain %v: %v", certs, err)
	}
}

// registered opens an account at the server and registers it.
func (w *world) registered(t *testing.T, server accounts.Server) *accounts.Account {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	a, err := w.registry().Open("issuer", server, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Register(t.Context(), accounts.Registration{}); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAnotherCADoesNotLoseTheAccount: an Order that was made before its issuer was given
// another server is looked for at the old one, which knows nothing of the new account.
func TestAnotherCADoesNotLoseTheAccount(t *testing.T) {
	w, old := newWorld(t), newWorld(t)
	server := w.server()
	server.CABundle = append(server.CABundle, old.ca.TLSBundle...)
	a := w.registered(t, server)
	was := a.URL()
	forgotten := strings.Replace(old.ca.DirectoryURL, "/dir", "/my-order/x", 1)
	old.answer.Store(&answer{at: "my-order", status: 400, body: `{"type":"urn:ietf:params:acme:error:accountDoesNotExist"}`})
	out := order1(t, a, order.Action{Step: order.Fetch, URL: forgotten})
	if out.Failure == nil || out.Failure.Class != fault.ClassRefused || !strings.Contains(out.Failure.Error(), "accountDoesNotExist") {
		t.Errorf("failure %+v", out.Failure)
	}
	if a.URL() != was {
		t.Errorf("the account is %q", a.URL())
	}
}

// TestALateAnswerDoesNotLoseTheAccountAgain: of many calls under way when a CA forgets its
// accounts, those that come back late say nothing about the new registration.
func TestALateAnswerDoesNotLoseTheAccountAgain(t *testing.T) {
	w := newWorld(t)
	a := w.registered(t, w.server())
	entered, late := make(chan struct{}), make(chan struct{})
	forgot := &answer{at: "order-plz", status: 400, body: `{"type":"urn:ietf:params:acme:error:accountDoesNotExist"}`}
	w.answer.Store(&answer{at: forgot.at, status: forgot.status, body: forgot.body, hold: func() { close(entered); <-late }})
	done := make(chan struct{})
	go func() {
		defer close(done)
		order1(t, a, order.Action{Step: order.Create})
	}()
	<-entered
	w.answer.Store(forgot)
	order1(t, a, order.Action{Step: order.Create})
	if a.URL() != "" {
		t.Fatal("the account is not lost")
	}
	if err := a.Register(t.Context(), accounts.Registration{}); err != nil {
		t.Fatal(err)
	}
	close(late)
	<-done
	if a.URL() == "" {
		t.Error("a late answer has lost the account again")
	}
}

// TestNothingIsSentWhileParked: calls that wait in their lane when the CA asks to be left
// alone are not made.
func TestNothingIsSentWhileParked(t *testing.T) {
	w := newWorld(t)
	a := w.registered(t, w.server())
	asked := 0
	w.answer.Store(&answer{at: "", retryAfter: "60", status: 503, body: `{"type":"about:blank"}`, hold: func() { asked++ }})
	var last *fault.Fault
	for range 3 {
		last = order1(t, a, order.Action{Step: order.Create}).Failure
	}
	out := challenge1(t, a, challenge.Accept, acmev1.ChallengeSpec{URL: strings.Replace(w.ca.DirectoryURL, "/dir", "/chalZ/x", 1)})
	for _, f := range []*fault.Fault{last, out.Failure} {
		if f == nil || f.Class != fault.ClassNotProcessed || f.Delay != time.Minute {
			t.Errorf("failure %+v", f)
		}
	}
	if asked != 1 {
		t.Errorf("the CA was asked %d times", asked)
	}
	w.now = w.now.Add(time.Minute)
	if order1(t, a, order.Action{Step: order.Create}); asked != 2 {
		t.Error("the park has no end")
	}
}

// TestIssuersThatStartTogetherRegisterOnce: the first one registers their account, and the
// others wait for it.
func TestIssuersThatStartTogetherRegisterOnce(t *testing.T) {
	w := newWorld(t)
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	a, err := w.registry().Open("issuer", w.server(), key)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	count := func(path string) {
		if strings.Contains(path, "sign-me-up") {
			asked.Add(1)
		}
	}
	w.watch.Store(&count)
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() {
			if err := a.Register(t.Context(), accounts.Registration{Email: "a@example.com"}); err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("%d registrations", n)
	}
}

// ordering is the body of an order for names.
func ordering(ids []acme.Identifier) order.NewOrder {
	return order.NewOrder{NewOrderRequest: acme.NewOrderRequest{Identifiers: ids}}
}
