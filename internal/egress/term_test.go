package egress_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/leader/term"
)

// TestNothingIsSentAfterTheTerm: a process that was stopped past its lease may come as far as to a request or a
// connection before its contexts have ended. Neither is made.
func TestNothingIsSentAfterTheTerm(t *testing.T) {
	for name, policy := range map[string]*egress.Policy{"a tenant's": egress.New(prefixes("127.0.0.0/8"), nil), "the operator's": nil} {
		t.Run(name, func(t *testing.T) { sendsNothingAfterTheTerm(t, policy) })
	}
}

func sendsNothingAfterTheTerm(t *testing.T, policy *egress.Policy) {
	t.Helper()
	var asked, stopped atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(server.Close)
	m := engine.NewTerm(func() time.Time { return time.Now().Add(time.Duration(stopped.Load()) * time.Hour) })
	m.Extend(time.Now(), time.Minute)
	ctx, end := m.Within(t.Context())
	defer end()
	client, dialer := policy.Client(time.Minute, 1), policy.Dialer(net.Dialer{})
	ask := func() error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	connect := func() error {
		c, err := dialer.DialContext(ctx, "tcp", server.Listener.Addr().String())
		if err == nil {
			err = c.Close()
		}
		return err
	}
	if err := errors.Join(ask(), connect()); err != nil || asked.Load() != 1 {
		t.Fatalf("%d requests, error %v", asked.Load(), err)
	}
	stopped.Store(1)
	if first, second := connect(), ask(); !errors.Is(first, term.ErrOver) || !errors.Is(second, term.ErrOver) || asked.Load() != 1 {
		t.Errorf("%d requests after the term, errors %v and %v", asked.Load(), first, second)
	}
}
