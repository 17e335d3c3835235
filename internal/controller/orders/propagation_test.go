package orders_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/fakeclock"
	"chancery.dev/internal/rig/pebble"
)

// newTwoViews is a swift world whose zones have two name servers. The CA asks only the one
// that is given, and a self check that one of them satisfies passes if one is enough.
func newTwoViews(t *testing.T, clock *fakeclock.Clock, caAsks, enough int) *swift {
	t.Helper()
	two, err := dnsserver.Start(t.Context(), dnsserver.Config{Servers: 2, Now: clock.Now, Zones: zones()})
	if err != nil {
		t.Fatal(err)
	}
	w := newSwiftBy(t, clock, func(o *pebble.Options) { o.DNSServer = two.AddrOf(caAsks) })
	w.dns = two
	w.cfg.ACME.RecursiveNameservers, w.cfg.ACME.AuthoritativePort = []string{two.Addr()}, two.Port()
	w.cfg.ACME.DNS01.Quorum = enough
	return w
}

// diary is what the Challenges of a world have said, by DNS name: the reason of each new status,
// when each Challenge was first presented, and whether one has become valid.
type diary struct {
	mu        sync.Mutex
	wrote     map[string][]string
	presented map[string][]time.Time
	valid     map[string]bool
}

// keep watches from now on.
func (w *swift) keep(t *testing.T) *diary {
	t.Helper()
	events := w.Watch(t, &acmev1.ChallengeList{})
	d := &diary{wrote: map[string][]string{}, presented: map[string][]time.Time{}, valid: map[string]bool{}}
	go func() {
		last := map[string]acmev1.ChallengeStatus{}
		for e := range events {
			if c, ok := e.Object.(*acmev1.Challenge); ok && !reflect.DeepEqual(last[c.Name], c.Status) {
				d.write(c, last[c.Name].PresentedAt == nil)
				last[c.Name] = c.Status
			}
		}
	}()
	return d
}

func (d *diary) write(c *acmev1.Challenge, unpresented bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := c.Spec.DNSName
	d.wrote[name] = append(d.wrote[name], c.Name+": "+c.Status.Reason)
	d.valid[name] = d.valid[name] || c.Status.State == acmev1.Valid
	if unpresented && c.Status.PresentedAt != nil {
		d.presented[name] = append(d.presented[name], c.Status.PresentedAt.Time)
	}
}

// ends waits until a certificate is issued, and the diary knows all about its name.
func (d *diary) ends(t *testing.T, w *swift, certificate, name string) {
	t.Helper()
	within(t, certificate+" is issued", func(ctx context.Context) string {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.valid[name] {
			return fmt.Sprintf("%q", d.wrote[name])
		}
		return w.notReady(ctx, certificate)
	})
}

// about is what was said about a name that contains a text.
func (d *diary) about(name, text string) (said []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, reason := range d.wrote[name] {
		if strings.Contains(reason, text) {
			said = append(said, reason)
		}
	}
	return said
}

// challenges is how many Challenges of a name have said a text.
func (d *diary) challenges(name, text string) int {
	names := map[string]bool{}
	for _, said := range d.about(name, text) {
		challenge, _, _ := strings.Cut(said, ": ")
		names[challenge] = true
	}
	return len(names)
}

func (w *swift) ordersOf(t *testing.T, name string) (all []acmev1.Order) {
	t.Helper()
	list := &acmev1.OrderList{}
	if err := w.Client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		if o.Spec.DNSNames[0] == name {
			all = append(all, o)
		}
	}
	return all
}

// TestTheNextOneSettles: the CA looks at a name server that lags behind the one that the self
// check is content with. After the first failure a new Order comes within minutes, waits a little
// longer than the last one, and says why; so do others of the zone, which do not fail first.
// Elsewhere nobody waits.
func TestTheNextOneSettles(t *testing.T) {
	t.Parallel()
	clock := fakeclock.New(t.Context())
	w := newTwoViews(t, clock, 1, 1)
	w.dns.SetDelay(1, time.Hour)
	w.RunAs(t, w.cfg, w.connection())
	d := w.keep(t)
	const settles, elsewhere = "The self check has passed; the ACME server is told at ", "else.example.net"

	first := w.start(t, &issuance{name: "first", change: withoutARI})
	within(t, "the CA does not see the first answer", func(context.Context) string {
		if d.challenges(first.names[0], "No TXT records found") == 0 {
			return fmt.Sprintf("%q", d.about(first.names[0], ""))
		}
		return ""
	})
	w.dns.SetDelay(1, 4*time.Second) // less than the shortest wait
	d.ends(t, w, "first", first.names[0])
	tried, failed := d.challenges(first.names[0], ""), d.challenges(first.names[0], "No TXT records found")
	if failed < 1 || tried != failed+1 {
		t.Fatalf("%d of %d have failed: %q", failed, tried, d.about(first.names[0], ""))
	}
	if said := d.about(first.names[0], settles); d.challenges(first.names[0], settles) != failed || !strings.Contains(said[0], "Z, since its last check of this zone failed though ours had passed") {
		t.Errorf("%d failed, and they say %q", failed, said)
	}

	w.Create(t, first.certificate("second", "second.example.com"))
	d.ends(t, w, "second", "second.example.com")
	if all, said := d.challenges("second.example.com", ""), d.about("second.example.com", settles); all != 1 || len(said) != 1 {
		t.Errorf("it needs %d Challenges, and says %q", all, said)
	}
	w.dns.SetDelay(1, 0)
	w.Create(t, first.certificate("else", elsewhere))
	d.ends(t, w, "else", elsewhere)
	if said := d.about(elsewhere, "The self check"); len(said) > 0 {
		t.Errorf("nothing was known of its zone, but it says %q", said)
	}
}

// TestQuickFirstRetry: after a validation failure the next Order comes after a minute.
func TestQuickFirstRetry(t *testing.T) {
	t.Parallel()
	clock := fakeclock.New(t.Context())
	w := newTwoViews(t, clock, 1, 1)
	w.dns.SetMode(1, dnsserver.NXDomain)
	w.RunAs(t, w.cfg, w.connection())
	d := w.keep(t)
	i := w.start(t, &issuance{name: "quick"})
	var presented []time.Time
	within(t, "there is a second Challenge, presented", func(context.Context) string {
		d.mu.Lock()
		defer d.mu.Unlock()
		if presented = slices.Clone(d.presented[i.names[0]]); len(presented) < 2 {
			return fmt.Sprintf("%q", d.wrote[i.names[0]])
		}
		return ""
	})
	w.dns.SetMode(1, dnsserver.Normal)
	if after := presented[1].Sub(presented[0]); after < time.Minute || after > 10*time.Minute {
		t.Errorf("the next one is presented %s after the first", after)
	}
	within(t, "it is issued", func(ctx context.Context) string { return w.notReady(ctx, i.name) })
}

// TestSelfCheckDeadlines: if the self check never passes, the CA is told to validate all the same, or the Challenge
// fails, as the solver says, also where one slot has to do for all and most of them are parked.
func TestSelfCheckDeadlines(t *testing.T) {
	t.Parallel()
	clock := fakeclock.New(t.Context())
	w := newTwoViews(t, clock, 0, 0)
	w.dns.SetMode(1, dnsserver.NXDomain)
	w.cfg.ACME.Limits.Cap = 1
	w.RunAs(t, w.cfg, w.connection())
	limited := func(then acmev1.SelfCheckDeadlineAction) func(*acmev1.ACMEIssuer) {
		return func(spec *acmev1.ACMEIssuer) {
			spec.Solvers[0].SelfCheckDeadline = &acmev1.SelfCheckDeadline{After: metav1.Duration{Duration: 20 * time.Minute}, Then: then}
		}
	}
	failing := w.start(t, &issuance{name: "fails", change: limited(acmev1.SelfCheckDeadlineFail)})
	accepted := w.start(t, &issuance{name: "accepted", size: 2, change: limited(acmev1.SelfCheckDeadlineAccept)})
	const said = "The self check has failed for 20m0s: asked all name servers of zone example.com."
	within(t, "the Certificate says why it has failed", func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, "fails", crt); err != nil {
			return err.Error()
		}
		issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
		if crt.Status.LastFailureTime == nil || issuing == nil || !strings.Contains(issuing.Message, said) {
			return fmt.Sprintf("%+v", crt.Status.Conditions)
		}
		return ""
	})
	accepted.settle(t)
	events := &corev1.EventList{}
	within(t, "events say that the CA was told all the same", func(ctx context.Context) string {
		if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		told := 0
		for _, e := range events.Items {
			if e.Reason == acmev1.ChallengeReasonSelfCheckDeadline && e.Type == corev1.EventTypeWarning &&
				strings.Contains(e.Message, "The self check has failed for 20m0s; the ACME server is told all the same: asked all name servers") {
				told += max(int(e.Count), 1)
			}
		}
		if told < 2 {
			return fmt.Sprintf("%d events of 2", told)
		}
		return ""
	})
	// The clock leaps on: Orders come, fail, and go with the next attempt.
	within(t, "an Order says why it has failed", func(context.Context) string {
		orders := w.ordersOf(t, failing.names[0])
		for _, o := range orders {
			if o.Status.State == acmev1.Errored && strings.Contains(o.Status.Reason, said) {
				return ""
			}
		}
		return fmt.Sprintf("%d Orders, none of them", len(orders))
	})
}

// notReady says what a Certificate waits for; "" if it is issued.
func (w *swift) notReady(ctx context.Context, name string) string {
	crt := &certmanagerv1.Certificate{}
	if err := w.Get(ctx, name, crt); err != nil {
		return err.Error()
	}
	if crt.Status.Revision == nil {
		return fmt.Sprintf("%s: %+v, clock %s", name, crt.Status.Conditions, w.clock)
	}
	return ""
}
