package orders_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/faulty"
	"chancery.dev/internal/rig/slow"
)

// challenges counts the Challenges of a world that something is true of.
func (w *swift) challenges(ctx context.Context, is func(*acmev1.Challenge) bool) int {
	list := &acmev1.ChallengeList{}
	if err := w.Client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
		return -1
	}
	n := 0
	for i := range list.Items {
		if is(&list.Items[i]) {
			n++
		}
	}
	return n
}

// issue lets a CA issue a certificate without trouble. It returns how long that took, and
// how much of it nobody did anything: the second is what a delay is, the first also
// what the machine is.
func (w *swift) issue(t *testing.T, name string) (took, waited time.Duration) {
	t.Helper()
	before := w.clock.Ahead()
	began := time.Now()
	w.start(t, &issuance{name: name}).settle(t)
	took = time.Since(began)
	return took, w.clock.Ahead() - before
}

// silence is a world in which a CA keeps its connections open and says nothing, to 200 challenges that are in flight,
// and to new orders.
type silence struct {
	*swift

	// ended is how many calls to it have ended: it was given up, each time.
	ended atomic.Int64
}

// measured is how many certificates are issued beside the silent CA, and before.
const measured = 5

// newSilence starts the controllers, calls before, and makes the CA fall silent.
func newSilence(t *testing.T, before func(w *swift)) *silence {
	t.Helper()
	w := &silence{swift: newSwift(t, nil)}
	w.cfg.Clock = nil           // silence lasts as long as it does, and nobody may leap to its end
	w.cfg.ACME.Limits.Cap = 300 // all of the silent ones are in flight
	w.RunAs(t, w.cfg, w.connection())
	before(w.swift)
	silent := func(r faulty.Request) faulty.Fault {
		if r.Step == faulty.Challenge || (r.Step == faulty.NewOrder && r.Nth > 1) {
			return func(x *faulty.Exchange) {
				faulty.Hang()(x)
				w.ended.Add(1)
			}
		}
		return nil
	}
	stuck := w.start(t, &issuance{name: "silent", size: 100, plan: silent, hangs: true})
	w.start(t, &issuance{name: "mute", size: 100, plan: silent, hangs: true})
	within(t, "200 challenges wait for the CA", func(ctx context.Context) string {
		if n := w.challenges(ctx, func(c *acmev1.Challenge) bool { return c.Status.Processing }); n < 200 {
			return fmt.Sprintf("%d", n)
		}
		return ""
	})
	for n := range 5 {
		w.Create(t, stuck.certificate(fmt.Sprintf("unheard-%d", n), fmt.Sprintf("unheard-%d.example.com", n)))
	}
	return w
}

// kept checks that the challenges of the silent CA go on.
func (w *silence) kept(t *testing.T) {
	t.Helper()
	if n := w.challenges(t.Context(), func(c *acmev1.Challenge) bool { return !c.Status.State.IsFinal() }); n != 200 {
		t.Errorf("%d of 200 silent challenges are kept", n)
	}
}

// TestSilentCADelaysNobodyElse: the certificates of another issuer wait for no call to a silent CA.
func TestSilentCADelaysNobodyElse(t *testing.T) {
	t.Parallel()
	w := newSilence(t, func(w *swift) { w.issue(t, "warm") })
	var waited []int64
	for i := range measured {
		before := w.ended.Load()
		w.issue(t, fmt.Sprintf("beside-%d", i))
		waited = append(waited, w.ended.Load()-before)
	}
	t.Logf("while %d certificates were issued, %v calls to the silent CA were given up", measured, waited)
	if slices.Min(waited) > 0 { // a slow machine may be at one for that long, but not at each
		t.Errorf("while %d certificates were issued, %v calls to the silent CA were given up: each has waited for one", measured, waited)
	}
	w.kept(t)
}

// TestSilentCATakesNoTime: the certificates of another issuer are issued as fast as without the silent CA.
func TestSilentCATakesNoTime(t *testing.T) {
	slow.Test(t, slow.Numbers)
	issued := 0
	several := func(w *swift) (all time.Duration) {
		for range measured {
			issued++
			took, _ := w.issue(t, fmt.Sprintf("healthy-%d", issued))
			all += took
		}
		return all
	}
	var alone time.Duration
	w := newSilence(t, func(w *swift) {
		w.issue(t, "warm")
		alone = several(w)
	})
	t.Logf("%d certificates took %s alone", measured, alone)
	slow.Best(t, fmt.Sprintf("issuing %d certificates beside a silent CA", measured), 5*alone+5*time.Second, func() time.Duration { return several(w.swift) })
	w.kept(t)
}

// TestSixtyBrokenDelayNobody: sixty challenges whose answer nobody ever sees take all
// slots; one that is healthy waits a few seconds at most, however slow the machine is.
func TestSixtyBrokenDelayNobody(t *testing.T) {
	t.Parallel()
	w := newSwift(t, nil)
	w.RunAs(t, w.cfg, w.connection())
	// What is presented is presented where nobody looks.
	elsewhere, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "example.com."}}})
	if err != nil {
		t.Fatal(err)
	}
	broken := w.start(t, &issuance{name: "broken", size: 60, dns01At: elsewhere.Addr()})
	within(t, "sixty self checks fail", func(ctx context.Context) string {
		if n := w.challenges(ctx, func(c *acmev1.Challenge) bool { return c.Status.Presented && c.Status.Reason != "" }); n < 60 {
			return fmt.Sprintf("%d", n)
		}
		return ""
	})
	for i := range 3 {
		took, waited := w.issue(t, fmt.Sprintf("healthy-%d", i))
		t.Logf("the healthy one took %s, and was kept waiting for %s of it", took, waited)
		if waited > 20*time.Second { // one leap may go as far beyond the period of 10 s
			t.Errorf("a healthy challenge waited %s for sixty broken ones", waited)
		}
	}
	if n := w.challenges(t.Context(), func(c *acmev1.Challenge) bool {
		return !c.Status.State.IsFinal() && c.Status.Presented && c.DeletionTimestamp == nil
	}); n != len(broken.names) {
		t.Errorf("%d of %d broken ones are kept", n, len(broken.names))
	}
}

// TestOneIngressClassIsNotOverrun: two issuers, whose CAs do not answer, have no more challenges in flight
// by one ingress class than it may have; challenges that need no route wait for none of them.
func TestOneIngressClassIsNotOverrun(t *testing.T) {
	t.Parallel()
	w := newSwift(t, nil)
	w.cfg.Clock = nil // as above
	w.cfg.ACME.Limits.ClassCap = 2
	w.RunAs(t, w.cfg, w.connection())
	silent := func(r faulty.Request) faulty.Fault {
		if r.Step == faulty.Challenge {
			return faulty.Hang()
		}
		return nil
	}
	for _, name := range []string{"one", "two"} {
		w.start(t, &issuance{name: name, size: 4, plan: silent, hangs: true, http01: true})
	}
	processing := func(c *acmev1.Challenge) bool { return c.Status.Processing }
	within(t, "eight challenges are there, two in flight", func(ctx context.Context) string {
		all, n := w.challenges(ctx, func(*acmev1.Challenge) bool { return true }), w.challenges(ctx, processing)
		if n > 2 {
			t.Errorf("%d are in flight", n)
		}
		if all < 8 || n < 2 {
			return fmt.Sprintf("%d of %d", n, all)
		}
		return ""
	})
	w.issue(t, "unrouted")
	within(t, "one or two are in flight", func(ctx context.Context) string { // none is while their turns change
		n := w.challenges(ctx, processing)
		if n > 2 {
			t.Errorf("%d are in flight", n)
		}
		if n < 1 {
			return "none is"
		}
		return ""
	})
}

// TestWaitingCostsLittle: a challenge that waits for its record to be seen asks once in a
// period, and writes nothing. A thousand of them are a hundred questions a second.
func TestWaitingCostsLittle(t *testing.T) {
	t.Parallel()
	const waiting = 50
	w := newSwift(t, nil)
	rc := w.connection()
	log := &mortal{}
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { log.next = next; return log })
	w.RunAs(t, w.cfg, rc)
	w.dns.SetMode(0, dnsserver.NXDomain)
	i := w.start(t, &issuance{name: "waiting", size: waiting})
	settled := func(c *acmev1.Challenge) bool { return c.Status.Presented && c.Status.Reason != "" }
	within(t, "all of them wait", func(ctx context.Context) string {
		if n := w.challenges(ctx, settled); n < waiting {
			return fmt.Sprintf("%d", n)
		}
		for _, said := range i.said(ctx) { // each is written once, seconds later than the Challenges
			if !strings.Contains(said, "NXDOMAIN") {
				return said
			}
		}
		return ""
	})
	began, queries, written := w.clock.Now(), w.dns.Queries(0, 16), len(log.writes())
	within(t, "five periods pass", func(context.Context) string {
		if passed := w.clock.Now().Sub(began); passed < 50*time.Second {
			return passed.String()
		}
		return ""
	})
	periods := float64(w.clock.Now().Sub(began)) / float64(w.cfg.ACME.CheckRetryPeriod)
	asked := float64(w.dns.Queries(0, 16)-queries) / waiting / periods
	t.Logf("%.2f questions for each challenge and period, %d writes in %.1f periods", asked, len(log.writes())-written, periods)
	// A first question, and one over TCP where UDP is lost, is all that a look takes.
	if asked == 0 || asked > 2.5 {
		t.Errorf("%.2f questions for each challenge and period", asked)
	}
	if since := log.writes()[written:]; len(since) > 0 {
		t.Errorf("%v were written while nothing changed", since)
	}
	w.dns.SetMode(0, dnsserver.Normal)
}
