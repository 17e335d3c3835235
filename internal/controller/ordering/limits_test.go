package ordering_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/rig/faulty"
)

// TestOneDomainsLimitHoldsUpNobodyElse: the CA refuses a dozen orders under one domain for a
// day (Let's Encrypt's limits for a registered domain are such). Another domain's certificates by
// the same account are issued within minutes, and the CA is not asked about the first one over
// and over.
func TestOneDomainsLimitHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	w := newSwift(t, nil)
	w.RunAs(t, w.cfg, w.connection())
	const limited = "limited.example.com"
	i := w.start(t, &issuance{name: "first", change: withoutARI, plan: func(r faulty.Request) faulty.Fault {
		if r.Step == faulty.NewOrder && strings.HasSuffix(r.Names, limited) {
			return faulty.Refuse(http.StatusTooManyRequests, "rateLimited", "86400")
		}
		return nil
	}})
	i.settle(t)
	refused := func() (n int) {
		for _, r := range i.proxy.Seen() {
			if strings.HasSuffix(r.Names, limited) {
				n++
			}
		}
		return n
	}
	for n := range 12 {
		w.Create(t, i.certificate(fmt.Sprintf("limited-%d", n), fmt.Sprintf("n%d.%s", n, limited)))
	}
	within(t, "the limit is met", func(context.Context) string {
		if refused() == 0 {
			return "no order was refused"
		}
		return ""
	})
	before := w.clock.Ahead()
	const healthy = 3
	for n := range healthy {
		w.Create(t, i.certificate(fmt.Sprintf("healthy-%d", n), fmt.Sprintf("healthy-%d.example.com", n)))
	}
	within(t, "the others are issued", func(ctx context.Context) string {
		for n := range healthy {
			other := *i
			other.name = fmt.Sprintf("healthy-%d", n)
			other.names = []string{other.name + ".example.com"}
			if missing := other.unsettled(ctx); missing != "" {
				return missing
			}
		}
		return ""
	})
	waited := w.clock.Ahead() - before
	t.Logf("the others waited for %s, %d orders were refused", waited, refused())
	if waited > 12*time.Hour { // a slow machine has the clock leap too far now and then
		t.Errorf("the others waited %s for a domain that is not theirs", waited)
	}
	if n := refused(); n > 12 {
		t.Errorf("%d orders were sent for %d certificates that the CA refuses", n, 12)
	}
}
