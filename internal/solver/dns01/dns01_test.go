package dns01_test

import (
	"context"
	"math"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/solver/conformance"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// world is a DNS of two zones on two servers, and a solver that updates it.
type world struct {
	dns      *dnsserver.Server
	resolver *dns01.Resolver
	solver   *dns01.Solver
	options  dns01.Options
	// recursive is the front, if there is one.
	recursive []string
	offset    atomic.Int64 // of the clock, in nanoseconds
}

func (w *world) now() time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(w.offset.Load()))
}

func (w *world) step(d time.Duration) { w.offset.Add(int64(d)) }

func newWorld(t *testing.T, change func(*dns01.Options)) *world {
	t.Helper()
	w := new(world)
	server, err := dnsserver.Start(t.Context(), dnsserver.Config{
		Servers: 2,
		Now:     w.now,
		Zones: []dnsserver.Zone{
			{Name: "example.test", Records: []string{
				"_acme-challenge.alias.example.test. 60 IN CNAME alias.delegated.test.",
				"_" + accountLabel + "._acme-challenge.alias.example.test. 60 IN CNAME labelled.delegated.test.",
				"_validation-persist.alias.example.test. 60 IN CNAME persist.delegated.test.",
				"_acme-challenge.circle.example.test. 60 IN CNAME a.circle.example.test.",
				"a.circle.example.test. 60 IN CNAME _acme-challenge.circle.example.test.",
				"*.apps.example.test. 60 IN CNAME apps.delegated.test.",
			}},
			{Name: "half.test", Records: []string{"half.test. 60 IN NS gone.half.test."}},
			{Name: "sub.example.test"},
			{Name: "wrap.test", Serial: math.MaxUint32},
			{Name: "delegated.test"},
			{Name: "wild.test", Wildcard: netip.MustParseAddr("127.0.0.1")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.dns = server
	o := dns01.Options{
		Nameservers: []string{server.Addr()}, AuthoritativePort: server.Port(),
		Timeout: 15 * time.Second, Now: w.now,
	}
	if change != nil {
		change(&o)
	}
	w.resolver, w.solver = w.fresh(t, o)
	w.options = o
	return w
}

// fresh is a Solver of its own, with its Resolver.
func (w *world) fresh(t *testing.T, o dns01.Options) (*dns01.Resolver, *dns01.Solver) {
	t.Helper()
	resolver, err := dns01.NewResolver(o)
	if err != nil {
		t.Fatal(err)
	}
	return resolver, dns01.New(resolver, provider.Factory(provider.Options{RFC2136: rfc2136.Options{Now: time.Now}}))
}

// task is a DNS-01 challenge for a name, solved at the primary.
func (w *world) task(name, value string) solver.Task {
	return solver.Task{ResourceNamespace: "default", Challenge: &acmev1.Challenge{Spec: acmev1.ChallengeSpec{
		DNSName: name, Type: acmev1.ChallengeTypeDNS01, Token: "token-" + value, Key: value,
		Solver: acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{
			RFC2136: &acmev1.RFC2136Provider{Nameserver: w.dns.Addr()},
		}},
	}}}
}

func (w *world) mustPresent(t *testing.T, task solver.Task) {
	t.Helper()
	if err := w.solver.Present(t.Context(), task); err != nil {
		t.Fatalf("Present: %v", err)
	}
}

// notYet checks that a self check fails as "not yet", in words that hold all of the
// given ones and are the same the second time.
func (w *world) notYet(t *testing.T, task solver.Task, words ...string) {
	t.Helper()
	err := w.solver.Check(t.Context(), task)
	f := fault.Of(err)
	if f == nil || f.Kind != fault.KindAfter || f.Reason != dns01.ReasonNotPropagated || f.Delay != 10*time.Second {
		t.Fatalf("Check = %v (%+v), want not yet", err, f)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("Check says %q, which lacks %q", err, word)
		}
	}
	if again := w.solver.Check(t.Context(), task); again == nil || again.Error() != err.Error() {
		t.Errorf("Check first said %q, then %v: a status would churn", err, again)
	}
}

func (w *world) passes(t *testing.T, task solver.Task) {
	t.Helper()
	if err := w.solver.Check(t.Context(), task); err != nil {
		t.Fatalf("Check: %v", err)
	}
}

func TestConformance(t *testing.T) {
	w := newWorld(t, nil)
	conformance.Run(t, conformance.Harness{
		New: func() solver.Solver {
			_, s := w.fresh(t, w.options)
			return s
		},
		Task: func(n int) solver.Task { return w.task("conform.example.test", string(rune('a'+n))) },
		Visible: func(_ context.Context, task solver.Task) bool {
			for _, left := range w.dns.TXT() {
				if left == dns01.FQDN(task.Challenge.Spec)+" "+task.Challenge.Spec.Key {
					return true
				}
			}
			return false
		},
	})
	if left := w.dns.TXT(); len(left) != 0 {
		t.Errorf("records left in DNS: %q", left)
	}
}

func TestZone(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []struct{ fqdn, zone string }{
		{"_acme-challenge.example.test.", "example.test."},
		{"_ACME-challenge.a.b.Example.test.", "example.test."},
		{"_acme-challenge.x.sub.example.test.", "sub.example.test."},
		{"_acme-challenge.alias.example.test.", "example.test."}, // a CNAME: the zone of its owner
		{"_acme-challenge.any.wild.test.", "wild.test."},
	} {
		got, err := w.resolver.Zone(t.Context(), c.fqdn, nil)
		if err != nil || got != c.zone {
			t.Errorf("Zone(%s) = %q, %v, want %q", c.fqdn, got, err, c.zone)
		}
	}
	_, err := w.resolver.Zone(t.Context(), "_acme-challenge.nowhere.invalid.", nil)
	if f := fault.Of(err); f == nil || f.Reason != fault.ReasonNoZone || !strings.Contains(err.Error(), "does the domain exist?") {
		t.Errorf("Zone of a name that is in none: %v", err)
	}
}

func TestZoneIsCachedForItsTTL(t *testing.T) {
	w := newWorld(t, nil)
	ask := func() int {
		t.Helper()
		before := w.dns.Queries(0, dns.TypeSOA)
		if _, err := w.resolver.Zone(t.Context(), "_acme-challenge.example.test.", nil); err != nil {
			t.Fatal(err)
		}
		return w.dns.Queries(0, dns.TypeSOA) - before
	}
	if n := ask(); n != 2 {
		t.Errorf("first walk asked %d times, want 2", n)
	}
	w.step(299 * time.Second)
	if n := ask(); n != 0 {
		t.Errorf("within the TTL asked %d times, want 0", n)
	}
	w.step(time.Second)
	if n := ask(); n != 2 {
		t.Errorf("after the TTL asked %d times, want 2", n)
	}
}

func TestCheckWaitsForEveryAuthoritativeServer(t *testing.T) {
	w := newWorld(t, nil)
	w.dns.SetDelay(1, time.Minute)
	task := w.task("slow.example.test", "value")
	w.notYet(t, task, "2 of 2", "ns1.example.test.", "ns2.example.test.", "NXDOMAIN")
	w.mustPresent(t, task)
	w.notYet(t, task, "1 of 2", "ns2.example.test. (127.0.0.2:", "NXDOMAIN")
	w.step(time.Minute)
	w.passes(t, task)
}

// impatient is for servers that never answer.
func impatient(o *dns01.Options) { o.Timeout = 3 * time.Second }

func TestCheckNamesTheServerThatFails(t *testing.T) {
	for _, c := range []struct {
		mode dnsserver.Mode
		says string
	}{
		{dnsserver.Silent, "no answer in time"},
		{dnsserver.Refused, "REFUSED, it does not serve the zone (lame delegation)"},
		{dnsserver.ServFail, "SERVFAIL"},
		{dnsserver.NXDomain, "NXDOMAIN"},
		{dnsserver.Referral, "without authority (lame delegation)"},
	} {
		t.Run(c.says, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, impatient)
			task := w.task("www.example.test", "value")
			w.mustPresent(t, task)
			w.dns.SetMode(1, c.mode)
			w.notYet(t, task, "1 of 2", "ns2.example.test.", c.says)
			w.dns.SetMode(1, dnsserver.Normal) // nothing of that was cached
			w.passes(t, task)
		})
	}
}

// With a quorum, one server that is dead or slow holds nothing up, and it is still
// too few when more of them are.
func TestCheckTakesAQuorum(t *testing.T) {
	w := newWorld(t, func(o *dns01.Options) { impatient(o); o.Quorum = 1 })
	task := w.task("quorum.example.test", "value")
	w.notYet(t, task, "2 of 2", "and 1 have to")
	w.mustPresent(t, task)
	w.dns.SetMode(1, dnsserver.Silent)
	w.passes(t, task)
	w.dns.SetMode(0, dnsserver.NXDomain)
	w.notYet(t, task, "2 of 2", "and 1 have to", "ns2.example.test.")
	more := newWorld(t, func(o *dns01.Options) { impatient(o); o.Quorum = 5 }) // more than there are: all
	task = more.task("quorum.example.test", "value")
	more.mustPresent(t, task)
	more.passes(t, task)
	more.dns.SetMode(1, dnsserver.Silent)
	more.notYet(t, task, "1 of 2")
}

// A name server whose own name leads nowhere is named, and the others are asked.
func TestCheckNamesTheServerWithoutAddress(t *testing.T) {
	w := newWorld(t, nil)
	task := w.task("www.half.test", "value")
	w.notYet(t, task, "3 of 3", "gone.half.test.: the server's name has no address", "ns1.half.test. (127.0.0.1:")
	w.mustPresent(t, task)
	w.notYet(t, task, "1 of 3", "gone.half.test.: the server's name has no address")
}

func TestCheckFallsBackToTCP(t *testing.T) {
	w := newWorld(t, nil)
	task := w.task("big.example.test", "value")
	w.mustPresent(t, task)
	w.dns.SetMode(1, dnsserver.Truncated)
	w.passes(t, task)
}

func TestManyValuesUnderOneName(t *testing.T) {
	w := newWorld(t, nil)
	var tasks []solver.Task
	for n := range 40 { // more than fits into a UDP packet of 512 octets
		tasks = append(tasks, w.task("many.example.test", strings.Repeat(string(rune('0'+n)), 43)))
		w.mustPresent(t, tasks[n])
	}
	other := w.task("many.example.test", "another")
	w.notYet(t, other, "40 other TXT values")
	for _, task := range tasks {
		w.passes(t, task)
		if err := w.solver.CleanUp(t.Context(), task); err != nil {
			t.Fatal(err)
		}
	}
	if left := w.dns.TXT(); len(left) != 0 {
		t.Errorf("records left in DNS: %q", left)
	}
}

func TestCNAME(t *testing.T) {
	w := newWorld(t, nil)
	task := w.task("alias.example.test", "value")
	task.Challenge.Spec.Solver.DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow
	w.mustPresent(t, task)
	if left := w.dns.TXT(); len(left) != 1 || left[0] != "alias.delegated.test. value" {
		t.Fatalf("DNS holds %q, want the record at the CNAME's target", left)
	}
	w.passes(t, task)
	task.Challenge.Spec.Solver.DNS01.CNAMEStrategy = "" // the self check follows in any case
	w.passes(t, task)
	task.Challenge.Spec.Solver.DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow
	if err := w.solver.CleanUp(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if left := w.dns.TXT(); len(left) != 0 {
		t.Errorf("records left in DNS: %q", left)
	}

	circle := w.task("circle.example.test", "value")
	circle.Challenge.Spec.Solver.DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow
	if err := w.solver.Present(t.Context(), circle); err == nil || !strings.Contains(err.Error(), "circle") {
		t.Errorf("Present at a circle of CNAMEs: %v", err)
	}
}

// TestWildcardCNAME: presenting, the self check and clean-up find the same name while the record ends the wildcard
// there, and after it is gone.
func TestWildcardCNAME(t *testing.T) {
	w := newWorld(t, nil)
	task := w.task("apps.example.test", "value")
	task.Challenge.Spec.Solver.DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow
	for range 2 { // the second time, the record is there
		w.mustPresent(t, task)
		if left := w.dns.TXT(); len(left) != 1 || left[0] != "_acme-challenge.apps.example.test. value" {
			t.Fatalf("DNS holds %q, want the record at the name", left)
		}
		w.passes(t, task)
	}
	for range 2 { // the second time, it is gone
		if err := w.solver.CleanUp(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if left := w.dns.TXT(); len(left) != 0 {
			t.Fatalf("records left in DNS: %q", left)
		}
	}
}

// TestPresentTellsTheZone in which the record is, by whatever name it is asked for.
func TestPresentTellsTheZone(t *testing.T) {
	w := newWorld(t, nil)
	for name, zone := range map[string]string{
		"www.example.test": "example.test.", "www.sub.example.test": "sub.example.test.", "alias.example.test": "delegated.test.",
	} {
		task, told := w.task(name, "value"), ""
		task.Challenge.Spec.Solver.DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow
		task.InZone = func(zone string) { told = zone }
		if w.mustPresent(t, task); told != zone {
			t.Errorf("%s is in %q, want %s", name, told, zone)
		}
	}
}

func TestRecursiveServersOnly(t *testing.T) {
	w := newWorld(t, func(o *dns01.Options) { o.RecursiveOnly = true })
	task := w.task("rec.example.test", "value")
	w.notYet(t, task, "asked all DNS servers", "NXDOMAIN", "it may repeat this for up to 60 s")
	w.mustPresent(t, task)
	w.dns.SetDelay(1, time.Hour) // an authoritative server that nobody asks
	w.passes(t, task)
	if n := w.dns.Queries(0, dns.TypeNS); n != 0 {
		t.Errorf("asked for NS records %d times, want 0", n)
	}

	own := newWorld(t, nil)
	own.dns.SetDelay(1, time.Hour)
	task = own.task("own.example.test", "value")
	own.mustPresent(t, task)
	own.notYet(t, task, "1 of 2")
	task.Challenge.Spec.Solver.DNS01.Nameservers = []string{own.dns.Addr()} // in place of the authoritative ones
	own.passes(t, task)
}

// capture is a provider that remembers what it is told.
type capture struct{ record dns01.Record }

func (c *capture) Present(_ context.Context, r dns01.Record) error { c.record = r; return nil }
func (c *capture) CleanUp(_ context.Context, r dns01.Record) error { c.record = r; return nil }

// What a provider is told of a challenge: all it takes to make the record in its own
// way, and who may use what.
func TestProvidersAreTold(t *testing.T) {
	w := newWorld(t, nil)
	var got capture
	var use dns01.Use
	s := dns01.New(w.resolver, func(_ context.Context, u dns01.Use) (dns01.Provider, error) { use = u; return &got, nil })
	task := w.task("alias.example.test", "value")
	task.Challenge.UID = "uid"
	task.Challenge.Spec.IssuerRef.Kind = "ClusterIssuer"
	task.Challenge.Annotations = map[string]string{acmeflow.AccountThumbprintAnnotation: "thumbprint"}
	task.Challenge.Spec.Solver.DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow
	want := dns01.Record{
		Domain: "alias.example.test", FQDN: "alias.delegated.test.", Zone: "delegated.test.", Value: "value",
		Token: "token-value", KeyAuthorization: "token-value.thumbprint", TTL: 60, Missed: true,
	}
	task.Missed = true
	for _, call := range []func(context.Context, solver.Task) error{s.Present, s.CleanUp} {
		got.record = dns01.Record{}
		if err := call(t.Context(), task); err != nil || got.record != want {
			t.Errorf("told %+v, %v\nwant %+v", got.record, err, want)
		}
	}
	if use.Namespace != "default" || !use.ClusterIssuer || use.UID != "uid" || use.Config != task.Challenge.Spec.Solver.DNS01 {
		t.Errorf("used as %+v", use)
	}
	task.Challenge.Annotations, task.Challenge.Spec.IssuerRef.Kind = nil, ""
	if err := s.Present(t.Context(), task); err != nil || got.record.KeyAuthorization != "" || use.ClusterIssuer {
		t.Errorf("of an Issuer, without a thumbprint: %+v, %+v, %v", got.record, use, err)
	}
}

func TestProviderWithoutProgram(t *testing.T) {
	w := newWorld(t, nil)
	task := w.task("www.example.test", "value")
	task.Challenge.Spec.Solver.DNS01 = &acmev1.DNS01Solver{Route53: &acmev1.Route53Provider{}}
	err := w.solver.Present(t.Context(), task)
	if !fault.IsTerminal(err) || !strings.Contains(err.Error(), "route53") || !strings.Contains(err.Error(), "--issuer-ambient-credentials") {
		t.Errorf("Present = %v, want a terminal fault that names the provider and what to use", err)
	}
	task.Challenge.Spec.Solver.DNS01.Route53.AccessKeyID = "id"
	err = w.solver.Present(t.Context(), task)
	if !fault.IsTerminal(err) || !strings.Contains(err.Error(), "route53") || !strings.Contains(err.Error(), "--dns01-provider-programs") {
		t.Errorf("Present = %v, want a terminal fault that names the provider and what to use", err)
	}
}

func TestNewResolverRefusesBadNameservers(t *testing.T) {
	for _, bad := range [][]string{nil, {"127.0.0.1"}, {"127.0.0.1:dns"}, {":53"}, {"http://127.0.0.1/"}} {
		if _, err := dns01.NewResolver(dns01.Options{Nameservers: bad}); err == nil {
			t.Errorf("NewResolver took %q", bad)
		}
	}
}
