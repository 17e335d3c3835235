package orders_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/faulty"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/slow"
)

// trouble is one way in which a request goes wrong.
type trouble struct {
	fault func(w *swift) faulty.Fault
	// after, if set, is the step that has to come first for the trouble to mean anything.
	after faulty.Step
}

// troubles are those of the list, by name.
func troubles() map[string]trouble {
	simple := func(f faulty.Fault) trouble {
		return trouble{fault: func(*swift) faulty.Fault { return f }}
	}
	refuse := func(status int, problem, retryAfter string) trouble {
		return simple(faulty.Refuse(status, problem, retryAfter))
	}
	flip := func(status string) trouble {
		return trouble{after: faulty.NewOrder, fault: func(w *swift) faulty.Fault {
			return faulty.First(func(p *faulty.Proxy) {
				for _, authz := range p.Authorizations() {
					w.ca.SetAuthorization(authz, status)
				}
			})
		}}
	}
	date := func(in time.Duration) string { return time.Now().Add(in).UTC().Format(http.TimeFormat) }
	return map[string]trouble{
		"429":                          refuse(http.StatusTooManyRequests, "rateLimited", ""),
		"429, back in seconds":         refuse(http.StatusTooManyRequests, "rateLimited", "600"),
		"429, back at a date":          refuse(http.StatusTooManyRequests, "rateLimited", date(20*time.Minute)),
		"503":                          refuse(http.StatusServiceUnavailable, "", ""),
		"503, back in seconds":         refuse(http.StatusServiceUnavailable, "", "600"),
		"503, back at a date":          refuse(http.StatusServiceUnavailable, "", date(20*time.Minute)),
		"503, rate limited":            refuse(http.StatusServiceUnavailable, "rateLimited", "600"),
		"500":                          refuse(http.StatusInternalServerError, "serverInternal", ""),
		"connection reset":             simple(faulty.Cut()),
		"response lost":                simple(faulty.Lose()),
		"response truncated":           simple(faulty.Truncate()),
		"response slow":                simple(faulty.Slow(time.Second)),
		"order stuck in processing":    {after: faulty.NewOrder, fault: func(*swift) faulty.Fault { return faulty.Stall(12) }},
		"authorization is deactivated": flip("deactivated"),
		"authorization expires":        flip("expired"),
	}
}

// once is a plan that makes a fault happen to one request of a step.
type once struct {
	step  faulty.Step
	nth   int
	fault faulty.Fault
	// otherwise, if set, is the plan for all others. It follows them all.
	otherwise func(faulty.Request) faulty.Fault
	happened  atomic.Bool
}

func (o *once) plan(r faulty.Request) (now faulty.Fault) {
	if o.otherwise != nil {
		now = o.otherwise(r)
	}
	if r.Step == o.step && r.Nth == o.nth && o.happened.CompareAndSwap(false, true) {
		now = o.fault
	}
	return now
}

// failing is a plan in which one of two authorizations ends while the other is pending:
// until then the CA is told of no answer.
func failing(w *swift) func(faulty.Request) faulty.Fault {
	var gone atomic.Bool
	var accepts atomic.Int32
	return func(r faulty.Request) faulty.Fault {
		switch {
		case r.Step == faulty.Deactivation:
			gone.Store(true)
		case r.Step == faulty.Challenge && !gone.Load():
			return func(x *faulty.Exchange) {
				// The CA may also have those of an order that died with the process: then their turn
				// comes, and after some tries that of the others.
				all := slices.Sorted(slices.Values(x.Proxy().Authorizations()))
				w.ca.SetAuthorization(all[min(int(accepts.Add(1)-1)/4, len(all)-1)], "expired")
				faulty.Refuse(http.StatusInternalServerError, "serverInternal", "")(x)
			}
		}
		return nil
	}
}

// requestsOf are those of an issuance; each poll once, and what is read again as time passes.
func requestsOf(p *faulty.Proxy) []faulty.Request {
	var out []faulty.Request
	for _, r := range p.Seen() {
		byClock := r.Step == faulty.Directory || r.Step == faulty.RenewalInfo
		if r.Nth == 1 || !r.Step.Polls() && !byClock {
			out = append(out, r)
		}
	}
	return out
}

// row is a request that meets a trouble once.
type row struct {
	request faulty.Request
	trouble trouble
	// failing says that it is a request of an issuance whose first order fails.
	failing bool
}

// rowsOf are the rows of one trouble: all requests for which it means something.
func rowsOf(trouble trouble, requests, more []faulty.Request) []row {
	var out []row
	means := trouble.after == ""
	for _, r := range requests {
		if means {
			out = append(out, row{request: r, trouble: trouble})
		}
		means = means || r.Step == trouble.after
	}
	for _, r := range more {
		out = append(out, row{request: r, trouble: trouble, failing: true})
	}
	return out
}

// selection are the rows that every run has time for: each request meets one trouble, and each trouble one request or
// more.
func selection(t *testing.T, requests, more []faulty.Request) []row {
	t.Helper()
	all, met := troubles(), map[string]int{}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int { // those that mean something for few requests first
		return cmp.Or(cmp.Compare(all[b].after, all[a].after), cmp.Compare(a, b))
	})
	var out []row
	for _, r := range slices.Concat(requests, more) {
		slices.SortStableFunc(names, func(a, b string) int { return met[a] - met[b] })
		for _, name := range names {
			found := slices.IndexFunc(rowsOf(all[name], requests, more), func(row row) bool { return row.request == r })
			if found >= 0 {
				out = append(out, rowsOf(all[name], requests, more)[found])
				met[name]++
				break
			}
		}
	}
	if len(met) != len(all) || len(out) != len(requests)+len(more) {
		t.Errorf("%d of %d requests are in the selection, and %d of %d troubles", len(out), len(requests)+len(more), len(met), len(all))
	}
	return out
}

// TestEveryRequestMeetsEveryFault makes each request of an issuance meet each fault once. The rows are those of an
// issuance that was recorded; a kind of request that no record has fails the test: it would be one that meets no fault.
// All rows are the slow part faults.
func TestEveryRequestMeetsEveryFault(t *testing.T) {
	t.Parallel()
	record := newSwift(t, withAlternate)
	stop := record.RunAs(t, record.cfg, record.connection())
	healthy := record.start(t, preferring(&issuance{name: "healthy"}))
	other := record.withCA(t)
	broken := other.start(t, &issuance{name: "broken", size: 2, plan: failing(other), orders: 2})
	healthy.settle(t)
	broken.settle(t)
	healthy.awaitRequest(t, faulty.RenewalInfo) // which comes last
	stop()
	rows := requestsOf(healthy.proxy)
	known := map[faulty.Step]bool{}
	for _, r := range rows {
		known[r.Step] = true
	}
	var more []faulty.Request
	for _, r := range requestsOf(broken.proxy) {
		if !known[r.Step] {
			more = append(more, r)
		}
	}
	for _, r := range more {
		known[r.Step] = true
	}
	t.Logf("an issuance is %v; one that fails has also %v", rows, more)
	if !slow.Runs(slow.Faults) {
		meet(t, selection(t, rows, more), known)
		return
	}
	for name, trouble := range troubles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meet(t, rowsOf(trouble, rows, more), known)
		})
	}
}

// withAlternate makes Pebble offer a second chain.
func withAlternate(o *pebble.Options) { o.AlternateRoots = 1 }

// preferring makes an issuance ask for it.
func preferring(i *issuance) *issuance {
	i.change = func(spec *acmev1.ACMEIssuer) { spec.PreferredChain = i.ca.Roots()[1].Subject.CommonName }
	return i
}

// wantPreferred checks that the chain is the one that was asked for: nothing that passes is
// a reason to do without.
func (i *issuance) wantPreferred(t *testing.T) {
	t.Helper()
	i.wantRoot(t, 1)
}

// wantRoot checks at which root of the CA the chain ends.
func (i *issuance) wantRoot(t *testing.T, root int) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := i.Get(t.Context(), i.name, secret); err != nil {
		t.Fatal(err)
	}
	chain, err := pki.DecodeChain(secret.Data[corev1.TLSCertKey])
	if err != nil {
		t.Fatal(err)
	}
	if err := chain[len(chain)-1].CheckSignatureFrom(i.ca.Roots()[root]); err != nil {
		t.Errorf("%s: the chain ends elsewhere: %v", i.name, err)
	}
}

// meet runs rows at once: each with an account and a CA of its own.
func meet(t *testing.T, rows []row, known map[faulty.Step]bool) {
	t.Helper()
	began := time.Now()
	w := newSwift(t, withAlternate)
	w.RunAs(t, w.cfg, w.connection())
	var all []*issuance
	var faults []*once
	for _, row := range rows {
		w, r, orders := w.withCA(t), row.request, 1
		fault := &once{step: r.Step, nth: r.Nth, fault: row.trouble.fault(w)}
		if row.failing {
			fault.otherwise, orders = failing(w), 2
		}
		faults = append(faults, fault)
		name := fmt.Sprintf("%s-%d", strings.ToLower(strings.NewReplacer(",", "", " ", "-").Replace(string(r.Step))), r.Nth)
		i := &issuance{name: name, size: orders, orders: orders, late: r.Step == faulty.RenewalInfo, plan: fault.plan}
		all = append(all, w.start(t, preferring(i)))
	}
	for n, i := range all {
		i.settle(t)
		if i.late {
			i.awaitRequest(t, faulty.RenewalInfo)
			i.settle(t)
		}
		i.wantPreferred(t)
		if !faults[n].happened.Load() {
			t.Errorf("%s: nothing happened to it", i.name)
		}
		for _, r := range i.proxy.Seen() {
			if !known[r.Step] {
				t.Errorf("%s: the request %q is in no record, so that it meets no fault", i.name, r.Step)
			}
		}
	}
	t.Logf("%d rows took %s; the clock is %s", len(all), time.Since(began).Round(time.Millisecond), w.clock)
}

// TestRefusedForGood makes the CA refuse, each time it is asked, what one step asks for: the
// certificate, or the issuer, says so in the CA's words, and nothing is left of what was
// presented.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	w := newSwift(t, nil)
	w.RunAs(t, w.cfg, w.connection())
	refusals := map[faulty.Step]*issuance{}
	for n, step := range []faulty.Step{
		faulty.Directory, faulty.NewNonce, faulty.NewAccount, faulty.NewOrder, faulty.Authorization, faulty.Challenge,
		faulty.Validating, faulty.Finalize, faulty.Issuing, faulty.Certificate,
	} {
		refusals[step] = w.start(t, &issuance{name: fmt.Sprintf("refused-%d", n), plan: func(r faulty.Request) faulty.Fault {
			if r.Step != step {
				return nil
			}
			return faulty.Refuse(http.StatusForbidden, "unauthorized", "")
		}})
	}
	for step, i := range refusals {
		said := "says the proxy"
		if step == faulty.NewNonce {
			said = "403 Forbidden" // the answer of a HEAD has no words
		}
		within(t, fmt.Sprintf("somebody says that %q is refused", step), func(ctx context.Context) string {
			crt, issuer := &certmanagerv1.Certificate{}, &certmanagerv1.Issuer{}
			if err := i.Get(ctx, i.name, crt); err != nil {
				return err.Error()
			}
			if err := i.Get(ctx, i.name, issuer); err != nil {
				return err.Error()
			}
			issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
			if issuing == nil || !strings.Contains(issuing.Message, said) {
				return fmt.Sprintf("Certificate: %+v\nissuer: %+v", issuing, issuer.Status.Conditions)
			}
			return i.left(ctx, func(c *acmev1.Challenge) bool { return len(c.Finalizers) > 0 })
		})
	}
}

// TestStuckForGood: an Order that the CA never stops processing says so, and the CA is not
// asked more often than every five seconds for it.
func TestStuckForGood(t *testing.T) {
	t.Parallel()
	w := newSwift(t, nil)
	w.RunAs(t, w.cfg, w.connection())
	i := w.start(t, &issuance{name: "stuck", plan: func(r faulty.Request) faulty.Fault {
		if r.Step == faulty.Finalize && r.Nth == 1 {
			return faulty.Stall(1 << 20)
		}
		return nil
	}})
	within(t, "the Order says what it waits for", func(ctx context.Context) string {
		orders := &acmev1.OrderList{}
		if err := w.Client.List(ctx, orders, client.InNamespace(w.Namespace)); err != nil || len(orders.Items) != 1 {
			return fmt.Sprintf("%d orders, %v", len(orders.Items), err)
		}
		if o := orders.Items[0]; o.Status.State != acmev1.Processing || !strings.Contains(o.Status.Reason, "Waiting for the ACME server") {
			return fmt.Sprintf("%s %s", o.Status.State, o.Status.Reason)
		}
		return ""
	})
	began, polls := w.clock.Now(), len(i.proxy.Seen())
	within(t, "two minutes pass", func(context.Context) string {
		if passed := w.clock.Now().Sub(began); passed < 2*time.Minute {
			return passed.String()
		}
		return ""
	})
	polls = len(i.proxy.Seen()) - polls
	if most := int(w.clock.Now().Sub(began)/(5*time.Second)) + 2; polls == 0 || polls > most {
		t.Errorf("%d polls, at most %d are polite", polls, most)
	}
}

// TestAheadOfTheCA checks the rig: on a machine so slow that the clock leaps for hours in the
// middle of a test, the CA's authorizations have not expired.
func TestAheadOfTheCA(t *testing.T) {
	t.Parallel()
	w := newSwift(t, nil)
	ahead := make(chan struct{})
	w.clock.AfterFunc(6*time.Hour, func() { close(ahead) })
	<-ahead
	w.RunAs(t, w.cfg, w.connection())
	w.start(t, &issuance{name: "web"}).settle(t)
}
