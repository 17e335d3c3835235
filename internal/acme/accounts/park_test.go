package accounts_test

import (
	"crypto"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/acme/accounts"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/pki"
)

// TestAParkOutlivesItsIssuer: to delete the issuer and to create it again does not evade the park of its
// account. After the park the account is forgotten.
func TestAParkOutlivesItsIssuer(t *testing.T) {
	w := newWorld(t)
	r, key := w.registry(), newKey(t, pki.ECDSA)
	open := func(key crypto.Signer) *accounts.Account {
		a, err := r.Open("issuer", w.server(), key)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	w.answer.Store(&answer{at: "sign-me-up", retryAfter: "60", status: 503, body: "<html>"})
	parked := open(key)
	if err := parked.Register(t.Context(), accounts.Registration{}); err == nil {
		t.Fatal("it is registered")
	}
	until, _ := parked.Parked()
	r.Release(accounts.Issuer{UID: "issuer"})
	if again, _ := open(key).Parked(); !again.Equal(until) || !again.After(w.now) {
		t.Errorf("an issuer that is created again is parked until %v, not %v", again, until)
	}
	r.Release(accounts.Issuer{UID: "issuer"})
	w.now = w.now.Add(time.Minute)
	if again, _ := open(key).Parked(); again.After(w.now) {
		t.Errorf("it is parked until %v, after its park", again)
	}
}

// closing counts how often its connections are closed.
type closing struct {
	http.RoundTripper

	closed *atomic.Int32
}

func (c closing) CloseIdleConnections() { c.closed.Add(1) }

// TestOfAParkOnlyTheTimeIsKept: an issuer names one server after the other, and each wants to be left alone. The
// connections to each are closed, also those of requests that end later.
func TestOfAParkOnlyTheTimeIsKept(t *testing.T) {
	w, closed := newWorld(t), atomic.Int32{}
	r := accounts.New(accounts.Options{UserAgent: "test", Now: func() time.Time { return w.now }, HTTPClient: func(o acmeclient.HTTPOptions) (*http.Client, error) {
		c, err := acmeclient.NewHTTPClient(o)
		if err == nil {
			c.Transport = closing{c.Transport, &closed}
		}
		return c, err
	}})
	w.answer.Store(&answer{at: "sign-me-up", retryAfter: "60", status: 503, body: "<html>"})
	key, server := newKey(t, pki.ECDSA), w.server()
	first, err := r.Open("issuer", server, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Register(t.Context(), accounts.Registration{}); err == nil {
		t.Fatal("it is registered")
	}
	server.URL += "?another"
	if _, err := r.Open("issuer", server, key); err != nil {
		t.Fatal(err)
	}
	if n := closed.Load(); n != 1 {
		t.Errorf("the connections to the server that nobody names any more were closed %d times", n)
	}
	w.now = w.now.Add(time.Minute)
	if err := first.Register(t.Context(), accounts.Registration{}); err == nil {
		t.Fatal("it is registered")
	}
	if closed.Load() < 2 {
		t.Error("the connection of a request that ended later was kept")
	}
}

// orderFor is the step of making an order for a name.
func orderFor(name string) order.Action {
	return order.Action{
		Step: order.Create, NewOrder: ordering([]acme.Identifier{{Type: "dns", Value: name}}),
	}
}
