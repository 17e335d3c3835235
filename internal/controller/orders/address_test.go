package orders_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"chancery.dev/internal/rig"
)

// refusal makes the API server refuse writes of the status of Orders.
type refusal struct {
	next http.RoundTripper
	// refuses says of the nth write, whose body it is given, whether it is refused.
	refuses func(nth int, body string) bool

	mu              sync.Mutex
	written, denied int
	lifted          bool
}

// RoundTrip implements http.RoundTripper.
func (r *refusal) RoundTrip(req *http.Request) (*http.Response, error) {
	if kind, _ := writeOf(req); kind != "PATCH orders/status" {
		return r.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	refused := !r.lifted && r.refuses(r.written+1, string(body))
	if refused {
		r.denied++
	} else {
		r.written++
	}
	r.mu.Unlock()
	if !refused {
		return r.next.RoundTrip(req)
	}
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no writes today"}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Status: "403 Forbidden", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)), Request: req,
	}, nil
}

func (r *refusal) refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denied
}

func (r *refusal) lift() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lifted = true
}

// TestRefusedStatusWrites: from each write of an Order's status on, the API server takes none, or only those of the
// address alone. However often the controller is started again meanwhile, the CA is asked for no further order; and
// when writes are taken again, the certificate is issued with at most one more.
func TestRefusedStatusWrites(t *testing.T) {
	t.Parallel()
	type row struct {
		names, orders int
		refuses       func(nth int, body string) bool
	}
	rows := map[string]row{}
	for names := 1; names <= 2; names++ {
		for from := 1; from <= names+1; from++ {
			orders := 1
			if from == 1 {
				orders = 2 // the first address is lost
			}
			rows[fmt.Sprintf("%d names, from write %d on", names, from)] = row{names, orders, func(nth int, _ string) bool { return nth >= from }}
		}
		rows[fmt.Sprintf("%d names, all but the address", names)] = row{names, 1, func(_ int, body string) bool {
			return strings.Contains(body, "authorizations") || strings.Contains(body, "certificate")
		}}
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSwift(t, nil)
			i := w.start(t, &issuance{name: "web", size: r.names, change: withoutARI})
			server := &refusal{refuses: r.refuses}
			for start := range 4 {
				i.startedAgain(t, server, fmt.Sprintf("start %d", start))
				if n := i.proxy.Created(); n != 1 {
					t.Fatalf("after start %d the CA has %d orders", start, n)
				}
			}
			server.lift()
			i.RunAs(t, i.cfg, i.connection())
			i.settle(t)
			if n := i.proxy.Created(); n > r.orders {
				t.Errorf("%d orders at the CA, want %d", n, r.orders)
			}
		})
	}
}

// startedAgain runs controllers until the API server has refused them some writes, and ends them.
func (i *issuance) startedAgain(t *testing.T, server *refusal, what string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rc, before := i.connection(), server.refused()
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { server.next = next; return server })
	dead := rig.RunToDeath(ctx, t, cancel, i.cfg, rc)
	within(t, what+": writes are refused", func(context.Context) string {
		if n := server.refused() - before; n < 3 {
			return fmt.Sprintf("%d writes were refused; %s", n, i.unsettled(t.Context()))
		}
		return ""
	})
	dead()
}
