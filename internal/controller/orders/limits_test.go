package orders_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/rig/faulty"
)

// TestOneDomainsLimitHoldsUpNobodyElse: the CA refuses a dozen orders under one domain for a
// day (Let's Encrypt's limits for a registered domain are such). Other certificates of the same
// account are held back for minutes at most, as their Orders would say of more, and the CA is not
// asked about the first ones over and over.
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
	waiting := w.heldBack(t, "healthy-")
	before := w.clock.Ahead()
	healthy := []string{"healthy-0.example.com", "healthy-1.example.com", "healthy-2.example.net"}
	for n, name := range healthy {
		w.Create(t, i.certificate(fmt.Sprintf("healthy-%d", n), name))
	}
	within(t, "the others are issued", func(ctx context.Context) string {
		for n, name := range healthy {
			other := *i
			other.name, other.names = fmt.Sprintf("healthy-%d", n), []string{name}
			if missing := other.unsettled(ctx); missing != "" {
				return missing
			}
		}
		return ""
	})
	t.Logf("the others waited for %s, %d orders were refused", w.clock.Ahead()-before, refused())
	if said := waiting(); len(said) > 0 {
		t.Errorf("others had to wait for a domain that is not theirs: %q", said)
	}
	if n := refused(); n > 12 {
		t.Errorf("%d orders were sent for %d certificates that the CA refuses", n, 12)
	}
}

// heldBack returns what Orders have said since of waits that are longer than ten minutes.
func (w *swift) heldBack(t *testing.T, prefix string) func() []string {
	t.Helper()
	var mu sync.Mutex
	var said []string
	events := w.Watch(t, &acmev1.OrderList{})
	go func() {
		for e := range events {
			o, ok := e.Object.(*acmev1.Order)
			if !ok || !strings.HasPrefix(o.Name, prefix) {
				continue
			}
			if reason := o.Status.Reason; strings.Contains(reason, "retrying at") || strings.Contains(reason, "left alone until") {
				mu.Lock()
				said = append(said, o.Name+": "+o.Status.Reason)
				mu.Unlock()
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(said)
	}
}

// TestRetriesOfRefusalsAreBounded: certificates that the CA refuses for good are tried again each day, but beside few
// other orders of the account only one of them.
func TestRetriesOfRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	w := newSwift(t, nil)
	w.RunAs(t, w.cfg, w.connection())
	const refused, many = "refused.example.com", 5
	i := w.start(t, &issuance{name: "first", change: withoutARI, plan: func(r faulty.Request) faulty.Fault {
		if r.Step == faulty.NewOrder && strings.HasSuffix(r.Names, refused) {
			return faulty.Refuse(http.StatusForbidden, "rejectedIdentifier", "")
		}
		return nil
	}})
	i.settle(t)
	sent := func() (n int) {
		for _, r := range i.proxy.Seen() {
			if strings.HasSuffix(r.Names, refused) {
				n++
			}
		}
		return n
	}
	for n := range many {
		w.Create(t, i.certificate(fmt.Sprintf("refused-%d", n), fmt.Sprintf("n%d.%s", n, refused)))
	}
	within(t, "all are refused", func(context.Context) string {
		if sent() < many {
			return fmt.Sprint(sent())
		}
		return ""
	})
	began := w.clock.Now()
	var step func() // the clock leaps to nothing that is more than eight hours away
	step = func() {
		if w.clock.Now().Sub(began) < 96*time.Hour {
			w.clock.AfterFunc(6*time.Hour, step)
		}
	}
	step()
	within(t, "three days pass, with retries", func(context.Context) string {
		if passed := w.clock.Now().Sub(began); passed < 72*time.Hour || sent() < many+2 {
			return fmt.Sprintf("%s, %d orders", passed, sent())
		}
		return ""
	})
	days := int(w.clock.Now().Sub(began)/(19*time.Hour)) + 1
	if n := sent() - many; n > days {
		t.Errorf("%d certificates were tried again %d times in %s, want at most %d", many, n, w.clock.Now().Sub(began), days)
	}
}
