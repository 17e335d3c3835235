package issuers_test

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller/issuers"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

const (
	tsigSecret  = "c2VjcmV0IG9mIHRoZSB0ZXN0"
	otherSecret = "YW5vdGhlciBzZWNyZXQ="
)

// counted is the DNS-01 solver with what it was asked to present and to clean up.
type counted struct {
	solver.Solver

	// hold keeps each self check until it is closed; nil keeps none.
	hold chan struct{}

	mu                sync.Mutex
	presented, undone []string
}

func (c *counted) Present(ctx context.Context, t solver.Task) error {
	c.mu.Lock()
	c.presented = append(c.presented, t.Challenge.Spec.Key)
	c.mu.Unlock()
	return c.Solver.Present(ctx, t)
}

func (c *counted) Check(ctx context.Context, t solver.Task) error {
	if c.hold != nil {
		select {
		case <-c.hold:
		case <-ctx.Done():
		}
	}
	return c.Solver.Check(ctx, t)
}

func (c *counted) CleanUp(ctx context.Context, t solver.Task) error {
	c.mu.Lock()
	c.undone = append(c.undone, t.Challenge.Spec.Key)
	c.mu.Unlock()
	return c.Solver.CleanUp(ctx, t)
}

// world is a DNS server with the zone example.com, another one without that zone, and the objects of an issuer that
// proves names there.
type world struct {
	*issuers.Bench

	dns    *dnsserver.Server
	other  *dnsserver.Server
	issuer *certmanagerv1.Issuer
	secret *corev1.Secret
	solver *counted
}

func newWorld(t *testing.T) *world {
	t.Helper()
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: issuers.Name().Namespace, Name: "tsig", UID: "1", Labels: map[string]string{certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue},
		}, Data: map[string][]byte{"key": []byte(tsigSecret)}},
		issuer: &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: issuers.Name().Namespace, Name: issuers.Name().Name, UID: "2", Generation: 1}},
	}
	zones := []dnsserver.Zone{{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}, {Name: "alias.test.", Records: []string{
		"_acme-challenge.www.alias.test. CNAME www.example.com.",
	}}}
	if w.dns, err = dnsserver.Start(t.Context(), dnsserver.Config{Zones: zones, Key: key}); err != nil {
		t.Fatal(err)
	}
	if w.other, err = dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "example.net."}}}); err != nil {
		t.Fatal(err)
	}
	w.issuer.Spec.ACME = &acmev1.ACMEIssuer{Solvers: []acmev1.ACMEChallengeSolver{
		{
			Selector: &acmev1.CertificateDNSNameSelector{DNSZones: []string{"example.com", "invalid", "alias.test"}},
			DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
				Nameserver: w.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256",
				TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
			}},
		},
		{
			Selector: &acmev1.CertificateDNSNameSelector{DNSZones: []string{"http.example.com"}},
			HTTP01:   &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}},
		},
	}}
	return w
}

// start starts a controller over the objects as they are now.
func (w *world) start(t *testing.T) {
	t.Helper()
	w.issuer.ResourceVersion, w.secret.ResourceVersion = "", ""
	w.Bench = issuers.NewBench(t, w.issuer, w.secret)
	d := w.Deps()
	resolver, err := dns01.NewResolver(dns01.Options{Nameservers: []string{w.dns.Addr()}, AuthoritativePort: w.dns.Port()})
	if err != nil {
		t.Fatal(err)
	}
	w.solver = &counted{Solver: dns01.New(resolver, provider.Factory(provider.Options{Secrets: d.Secrets}))}
	d.Signers[signer.TypeACME] = struct{}{}
	d.Solvers = map[acmev1.ACMEChallengeType]solver.Solver{acmev1.ChallengeTypeDNS01: w.solver}
}

// look looks at the issuer once, and returns its test.
func (w *world) look(t *testing.T) *acmev1.ACMESolverTest {
	t.Helper()
	if err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Store().Get(t.Context(), issuers.Name(), w.issuer); err != nil {
		t.Fatal(err)
	}
	if w.issuer.Status.ACME == nil {
		return nil
	}
	return w.issuer.Status.ACME.SolverTest
}

// ask sets the annotation.
func (w *world) ask(t *testing.T, value string) {
	t.Helper()
	old := w.issuer.DeepCopy()
	metav1.SetMetaDataAnnotation(&w.issuer.ObjectMeta, cmmeta.TestSolverAnnotation, value)
	if err := w.Store().Patch(t.Context(), w.issuer, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
}

// version counts the writes of the issuer.
func (w *world) version(t *testing.T) int {
	t.Helper()
	version, err := strconv.Atoi(w.issuer.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// end looks at the issuer until its test has ended.
func (w *world) end(t *testing.T) *acmev1.ACMESolverTest {
	t.Helper()
	for {
		if test := w.look(t); test != nil && test.Outcome != acmev1.SolverTestRunning {
			return test
		}
		w.Woken()
	}
}

// TestSolverTestOutcomes tests solvers against a DNS server.
func TestSolverTestOutcomes(t *testing.T) {
	t.Parallel()
	follow := func(w *world) { w.issuer.Spec.ACME.Solvers[0].DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow }
	wrongKey := func(w *world) { w.secret.Data["key"] = []byte(otherSecret) }
	elsewhere := func(w *world) {
		w.issuer.Spec.ACME.Solvers[0].DNS01.RFC2136 = &acmev1.RFC2136Provider{Nameserver: w.other.Addr()}
	}
	noSecret := func(w *world) { w.secret.Name = "other" }
	for name, tc := range map[string]struct {
		asked   string
		change  func(*world)
		outcome acmev1.ACMESolverTestOutcome
		step    acmev1.ACMESolverTestStep
		message string
		writes  int
	}{
		"pass":      {"1 www.example.com", nil, acmev1.SolverTestPassed, "", "written, seen and removed: solvers[0]", 2},
		"wildcard":  {"1 *.example.com", nil, acmev1.SolverTestPassed, "", "solvers[0]", 2},
		"alias":     {"1 www.alias.test", follow, acmev1.SolverTestPassed, "", "", 2},
		"wrong key": {"1 www.example.com", wrongKey, acmev1.SolverTestFailed, acmev1.SolverTestPresent, "TSIG", 2},
		"no Secret": {"1 www.example.com", noSecret, acmev1.SolverTestFailed, acmev1.SolverTestPresent, "reading Secret team/tsig", 2},
		"no zone": {"1 www.nowhere.invalid", nil, acmev1.SolverTestFailed, acmev1.SolverTestZone,
			"none of its parents has an SOA record", 2},
		"wrong server": {"1 www.example.com", elsewhere, acmev1.SolverTestFailed, acmev1.SolverTestPresent, "NOTAUTH", 2},
		"no solver": {"1 www.example.org", nil, acmev1.SolverTestNoSolver, acmev1.SolverTestSelect,
			"the selectors of all the issuer's solvers exclude it", 1},
		"HTTP-01":    {"1 www.http.example.com", nil, acmev1.SolverTestNotApplicable, "", "HTTP-01 writes no DNS record", 1},
		"no name":    {"1", nil, acmev1.SolverTestFailed, acmev1.SolverTestSelect, "needs an id", 1},
		"an address": {"1 192.0.2.1", nil, acmev1.SolverTestFailed, acmev1.SolverTestSelect, "needs an id", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tc.change != nil {
				tc.change(w)
			}
			w.start(t)
			w.ask(t, tc.asked)
			before := w.version(t)
			got := w.end(t)
			if writes := w.version(t) - before; writes != tc.writes {
				t.Errorf("%d writes of the status, not %d", writes, tc.writes)
			}
			if got.ID != "1" || got.Outcome != tc.outcome || got.Step != tc.step || !strings.Contains(got.Message, tc.message) || got.CompletionTime == nil {
				t.Errorf("%+v", got)
			}
			if strings.Contains(got.Message, tsigSecret) || strings.Contains(got.Message, otherSecret) {
				t.Errorf("the message has the key: %s", got.Message)
			}
			if len(w.Events()) != 1 || !strings.Contains(<-w.Events(), "SolverTest"+string(tc.outcome)+" Test 1 ") {
				t.Errorf("events beside that of the end: %d", len(w.Events()))
			}
			if left := w.dns.TXT(); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
			calls := len(w.solver.presented)
			w.ask(t, got.ID+" other.example.com")
			if again := w.look(t); again.Message != got.Message || len(w.solver.presented) != calls || len(w.Deps().Engine.Waits()) > 0 {
				t.Errorf("the same id is tested again: %+v, %d calls", again, len(w.solver.presented))
			}
		})
	}
}

// TestSolverTestAfterRestart: a controller that is killed while the record is there leaves the record to the next one,
// which makes the same test again.
func TestSolverTestAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	killed := w.solver
	killed.hold = make(chan struct{})
	w.ask(t, "a www.example.com")
	if got := w.look(t); got.Outcome != acmev1.SolverTestRunning || got.Provider != "rfc2136" || got.ChallengeType != acmev1.ChallengeTypeDNS01 {
		t.Fatalf("%+v", got)
	}
	await(t, "the record is presented", func() bool { return len(w.dns.TXT()) == 1 })
	w.ask(t, "b mail.example.com") // waits
	w.start(t)
	if got := w.end(t); got.ID != "a" || got.Outcome != acmev1.SolverTestPassed {
		t.Errorf("%+v", got)
	}
	if left := w.dns.TXT(); len(left) > 0 || len(killed.undone) > 0 || len(w.solver.undone) != 1 || w.solver.undone[0] != killed.presented[0] {
		t.Errorf("left %s of %s, removed by the next process: %s", left, killed.presented, w.solver.undone)
	}
	if got := w.end(t); got.ID != "b" || got.Outcome != acmev1.SolverTestPassed || got.DNSName != "mail.example.com" {
		t.Errorf("the next test: %+v", got)
	}
}

// TestSolverTestAtTheEnd: the last pass of a process does not call a test failed that the end of the process has ended.
func TestSolverTestAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("process", func(t *testing.T) {
		w.start(t)
		w.solver.hold = make(chan struct{})
		w.ask(t, "a www.example.com")
		w.look(t)
		await(t, "the record is presented", func() bool { return len(w.dns.TXT()) == 1 })
	})
	await(t, "the call has ended", func() bool {
		return !slices.ContainsFunc(w.Deps().Engine.Waits(), func(wait engine.Wait) bool { return wait.What == engine.WaitCall })
	})
	if got := w.look(t); got.Outcome != acmev1.SolverTestRunning {
		t.Errorf("%+v", got)
	}
}

// TestSolverTestOfADeletedIssuer: the record is removed although nobody waits for the outcome.
func TestSolverTestOfADeletedIssuer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	w.solver.hold = make(chan struct{})
	w.ask(t, "a www.example.com")
	w.look(t)
	await(t, "the record is presented", func() bool { return len(w.dns.TXT()) == 1 })
	if err := w.Store().Delete(t.Context(), w.issuer); err != nil {
		t.Fatal(err)
	}
	if err := w.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(w.solver.hold)
	await(t, "the record is removed", func() bool { return len(w.dns.TXT()) == 0 })
}

// await waits until something is true.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatal(what + ": not within two minutes")
		}
	}
}
