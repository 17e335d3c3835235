package dns01_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme/dnspersist"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

const persistKey = "ca.example; accounturi=https://ca.example/acct/1"

func persistTask(name, key string) solver.Task {
	return solver.Task{Challenge: &acmev1.Challenge{Spec: acmev1.ChallengeSpec{
		DNSName: name, Type: acmev1.ChallengeTypeDNSPersist01, Key: key,
		Solver: acmev1.ACMEChallengeSolver{DNSPersist01: &acmev1.DNSPersist01Solver{}},
	}}}
}

// publish puts a record where the owner of a domain would.
func (w *world) publish(t *testing.T, fqdn, value string) {
	t.Helper()
	p, err := rfc2136.New(rfc2136.Config{Nameserver: w.dns.Addr()}, rfc2136.Options{})
	if err != nil {
		t.Fatal(err)
	}
	zone, err := w.resolver.Zone(t.Context(), fqdn, nil)
	if err == nil {
		err = p.Present(t.Context(), dns01.Record{FQDN: fqdn, Zone: zone, Value: value, TTL: 60})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPersistentOnlyReads: nothing is written at any time, the reason says what is needed and
// what is there instead, and the record that is needed passes.
func TestPersistentOnlyReads(t *testing.T) {
	w := newWorld(t, nil)
	s := dns01.NewPersistent(w.resolver)
	task := persistTask("www.example.test", persistKey+"; policy=wildcard")
	name := dnspersist.Name("www.example.test")
	says := func(words ...string) {
		t.Helper()
		err := s.Check(t.Context(), task)
		if f := fault.Of(err); f == nil || f.Kind != fault.KindAfter || f.Reason != dns01.ReasonNotPropagated {
			t.Fatalf("Check = %v", err)
		}
		for _, word := range append(words, name, `"`+task.Challenge.Spec.Key+`"`, "TXT") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("Check says %q, which lacks %q", err, word)
			}
		}
		if again := s.Check(t.Context(), task); again == nil || again.Error() != err.Error() {
			t.Errorf("Check first said %q, then %v: a status would churn", err, again)
		}
	}
	if err := s.Present(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	says("2 of 2", "NXDOMAIN")
	w.publish(t, name, "ca.example; accounturi=https://ca.example/acct/2; policy=wildcard")
	says(`of another account, "https://ca.example/acct/2"`)
	w.publish(t, name, persistKey)
	says("of another account", "lacks policy=wildcard")
	expired := fmt.Sprintf("%s; policy=wildcard; persistUntil=%d", persistKey, w.now().Add(-time.Hour).Unix())
	w.publish(t, name, expired)
	says("has expired: its persistUntil was 2025-12-31T23:00:00Z")
	w.dns.SetDelay(1, time.Hour)
	w.publish(t, name, task.Challenge.Spec.Key)
	says("1 of 2", "ns2.example.test.")
	w.dns.SetDelay(1, 0)
	if err := s.Check(t.Context(), task); err != nil {
		t.Fatalf("Check: %v", err)
	}
	before := w.dns.TXT()
	if err := s.CleanUp(t.Context(), task); err != nil || len(w.dns.TXT()) != len(before) {
		t.Errorf("CleanUp: %v, and %q is left of %q", err, w.dns.TXT(), before)
	}
}

func TestPersistentWarns(t *testing.T) {
	w := newWorld(t, nil)
	s := dns01.NewPersistent(w.resolver)
	const day = 24 * time.Hour
	w.publish(t, dnspersist.Name("www.example.test"), fmt.Sprintf("%s; persistUntil=%d", persistKey, w.now().Add(100*day).Unix()))
	w.publish(t, dnspersist.Name("ever.example.test"), persistKey)
	warning := func(name string, warnBefore time.Duration) (said string) {
		t.Helper()
		task := persistTask(name, persistKey)
		task.Warn = func(message string) { said = message }
		if warnBefore > 0 {
			task.Challenge.Spec.Solver.DNSPersist01.WarnBefore = &metav1.Duration{Duration: warnBefore}
		}
		if err := s.Check(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		return said
	}
	const want = "_validation-persist.www.example.test. holds until 2026-04-11T00:00:00Z only"
	if said := warning("www.example.test", 0); said != "" {
		t.Errorf("100 days before it says %q", said)
	}
	if said := warning("www.example.test", 101*day); !strings.Contains(said, want) {
		t.Errorf("with warnBefore it says %q", said)
	}
	w.step(11 * day)
	if said := warning("www.example.test", 0); !strings.Contains(said, want) {
		t.Errorf("89 days before it says %q", said)
	}
	if said := warning("www.example.test", day); said != "" {
		t.Errorf("long before it says %q", said)
	}
	if said := warning("ever.example.test", 0); said != "" {
		t.Errorf("of a record without an end it says %q", said)
	}
}

// TestPersistentFollows: CNAMEs are followed, and configured servers are asked in place of the
// authoritative ones.
func TestPersistentFollows(t *testing.T) {
	w := newWorld(t, nil)
	s := dns01.NewPersistent(w.resolver)
	w.publish(t, "persist.delegated.test.", persistKey)
	if err := s.Check(t.Context(), persistTask("alias.example.test", persistKey)); err != nil {
		t.Errorf("along a CNAME: %v", err)
	}
	own, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{
		Name: "example.test", Records: []string{`_validation-persist.own.example.test. 60 IN TXT "ca.example;" " accounturi=https://ca.example/acct/1"`},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	task := persistTask("own.example.test", persistKey)
	if err := s.Check(t.Context(), task); err == nil {
		t.Error("the record is seen where it is not")
	}
	task.Challenge.Spec.Solver.DNSPersist01.Nameservers = []string{own.Addr()}
	if err := s.Check(t.Context(), task); err != nil {
		t.Errorf("at the configured server: %v", err)
	}
	for _, broken := range []solver.Task{persistTask("www.example.test", "no record"), w.task("www.example.test", persistKey)} {
		if f := fault.Of(s.Check(t.Context(), broken)); f == nil || f.Reason != solver.ReasonNotConfigured {
			t.Errorf("Check of %+v: %v", broken.Challenge.Spec, f)
		}
	}
}
