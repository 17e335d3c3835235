package issuer

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/golden"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

const generation = 3

// named is one value of one aspect of a State.
type named struct {
	name string
	set  func(*State)
}

func statuses() []named {
	with := func(status cmmeta.ConditionStatus, reason string, observed int64) func(*State) {
		return func(s *State) {
			issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Generation: observed}}
			certmanagerv1.SetIssuerCondition(issuer, certmanagerv1.IssuerCondition{
				Type: certmanagerv1.IssuerConditionReady, Status: status, Reason: reason, Message: "as said",
			}, now.Add(-time.Hour))
			*s.Issuer.GetStatus() = issuer.Status
		}
	}
	return []named{
		{"new", func(*State) {}},
		{"ready", with(cmmeta.ConditionTrue, "Verified", generation)},
		{"ready in an earlier generation", with(cmmeta.ConditionTrue, "Verified", generation-1)},
		{"ready, but for HTTP-01", func(s *State) {
			with(cmmeta.ConditionTrue, "Verified", generation)(s)
			certmanagerv1.SetIssuerCondition(s.Issuer, certmanagerv1.IssuerCondition{
				Type: certmanagerv1.IssuerConditionHTTP01Ready, Status: cmmeta.ConditionFalse, Reason: "NoResponder", Message: "install one",
			}, now.Add(-time.Hour))
		}},
		{"not ready", with(cmmeta.ConditionFalse, "Broken", generation)},
		{"deleted", func(s *State) {
			i := s.Issuer.(*certmanagerv1.Issuer)
			i.DeletionTimestamp = &metav1.Time{Time: now}
		}},
	}
}

func looks() []named {
	fails := func(err error, again time.Duration) func(*State) {
		return func(s *State) {
			s.Failure = err
			if again > 0 {
				s.Again = now.Add(again)
			}
		}
	}
	return []named{
		{"unmanaged", func(s *State) { s.Managed = false }},
		{"not back yet", func(*State) {}},
		{"found ready", func(s *State) { s.Facts = &Facts{Ready: true, Reason: "Verified", Message: "as said"} }},
		{"found ready for an hour", func(s *State) {
			s.Facts = &Facts{Ready: true, Reason: "Verified", Message: "as said", Until: now.Add(time.Hour)}
		}},
		{"found ready, with more to do", func(s *State) {
			fails(fault.ClassRateLimited.After(time.Hour, "", "its key is not replaced"), time.Hour)(s)
			s.Facts = &Facts{Ready: true, Reason: "Verified", Message: "as said"}
		}},
		{"found not ready", func(s *State) { s.Facts = &Facts{Reason: "Broken", Message: "as said"} }},
		{"found ready, but nobody answers HTTP-01", func(s *State) {
			s.Facts = &Facts{Ready: true, Reason: "Verified", Message: "as said"}
			s.Unanswered = fault.Of(fault.After(time.Minute, "NoResponder", "install one"))
		}},
		{"found an account", func(s *State) {
			s.Facts = &Facts{Ready: true, Reason: "Registered", ACME: &acmev1.ACMEIssuerStatus{URI: "https://ca/1"}}
		}},
		{"unavailable", fails(fault.ClassUnavailable.After(0, "Down", "is away"), time.Minute)},
		{"rate limited", fails(fault.ClassRateLimited.After(time.Hour, "Busy", "is busy"), time.Hour)},
		{"refused", fails(fault.ClassCredential.After(0, "Refused", "does not know you"), time.Minute)},
		{"misconfigured", fails(fault.Pending("Broken", "as said"), 0)},
		{"a wait that nobody is told of", fails(fault.Pending("", "being asked"), 0)},
		{"an error of another kind", fails(errors.New("the API server is away"), time.Minute)},
	}
}

// states visits every combination of a status and a look.
func states(visit func(status, look string, s State)) {
	for _, status := range statuses() {
		for _, look := range looks() {
			s := State{
				Issuer: &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Generation: generation}}, Managed: true,
			}
			status.set(&s)
			look.set(&s)
			visit(status.name, look.name, s)
		}
	}
}

func describe(a Action) string {
	var words []string
	if a.Status != nil {
		c := readyOf(a.Status)
		words = append(words, fmt.Sprintf("write %s %s (%s)", c.Status, c.Reason, c.Message))
		if c := certmanagerv1.FindIssuerCondition(a.Status.Conditions, certmanagerv1.IssuerConditionHTTP01Ready); c != nil {
			words = append(words, fmt.Sprintf("HTTP-01 %s %s (%s)", c.Status, c.Reason, c.Message))
		}
		if a.Status.ACME != nil {
			words = append(words, "account "+a.Status.ACME.URI)
		}
	}
	if a.Warn != nil {
		words = append(words, "warn")
	}
	if !a.Wake.IsZero() {
		words = append(words, "wake in "+a.Wake.Sub(now).String())
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

func readyOf(s *certmanagerv1.IssuerStatus) *certmanagerv1.IssuerCondition {
	return certmanagerv1.FindIssuerCondition(s.Conditions, certmanagerv1.IssuerConditionReady)
}

// TestDecideTable is exhaustive over the statuses of an issuer and what a look at it comes to.
func TestDecideTable(t *testing.T) {
	var out strings.Builder
	last := ""
	states(func(status, look string, s State) {
		if status != last {
			fmt.Fprintf(&out, "%s\n", status)
			last = status
		}
		fmt.Fprintf(&out, "  %s: %s\n", look, describe(Decide(s, now)))
	})
	golden.Check(t, "decide.txt", out.String())
}

// TestInvariants says what must hold of every decision, whatever the state.
func TestInvariants(t *testing.T) {
	states(func(status, look string, s State) {
		before := s.Issuer.GetStatus().DeepCopy()
		a := Decide(s, now)
		expect := func(ok bool, what string) {
			if !ok {
				t.Errorf("%s, %s: %s: %s", status, look, what, describe(a))
			}
		}
		expect(fmt.Sprint(*before) == fmt.Sprint(*s.Issuer.GetStatus()), "the issuer was changed")
		expect(a.Warn == nil || a.Status != nil, "warns of what it does not write")
		expect(a.Wake.IsZero() || a.Wake.After(now), "wakes in the past")
		if s.Issuer.GetDeletionTimestamp() != nil {
			expect(describe(a) == "nothing", "an issuer that goes is touched")
			return
		}
		expect(s.Again.IsZero() || s.Failure == nil || !a.Wake.After(s.Again) && !a.Wake.IsZero(), "forgets the next look")
		if a.Status == nil {
			return
		}
		ready := readyOf(a.Status)
		expect(ready != nil && ready.ObservedGeneration == generation, "does not say for which generation")
		expect(ready.Reason != "", "says no reason")
		expect(ready.Status != cmmeta.ConditionTrue || s.Facts != nil && s.Facts.Ready, "is ready though nobody has found so")
		was := readyOf(before)
		expect((was != nil && was.Status == ready.Status) == (was != nil && was.LastTransitionTime.Equal(ready.LastTransitionTime)),
			"lastTransitionTime moves with something else than the status")
		// What was decided is decided no more once it is written.
		*s.Issuer.GetStatus() = *a.Status
		if again := Decide(s, now); again.Status != nil || again.Warn != nil || !again.Wake.Equal(a.Wake) {
			t.Errorf("%s, %s: decided again: %s", status, look, describe(again))
		}
	})
}

// TestAnotherType: an issuer of a type that is not ours is left alone (mission rule 8), whatever its status says.
func TestAnotherType(t *testing.T) {
	i := &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
	for range 2 {
		if a := Decide(State{Issuer: i}, now); a != (Action{}) {
			t.Errorf("%+v", a)
		}
		i.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}}
	}
}

// TestOtherConditionsStay: a condition of somebody else is left alone.
func TestOtherConditionsStay(t *testing.T) {
	i := &certmanagerv1.ClusterIssuer{}
	i.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: "Other", Status: cmmeta.ConditionTrue}}
	i.Status.ACME = &acmev1.ACMEIssuerStatus{URI: "https://ca/1"}
	a := Decide(State{Issuer: i, Managed: true, Failure: fault.Pending("Broken", "no")}, now)
	if a.Status == nil || len(a.Status.Conditions) != 2 || a.Status.Conditions[0] != i.Status.Conditions[0] || a.Status.ACME.URI != "https://ca/1" {
		t.Errorf("%+v", a.Status)
	}
}

// TestFirstSeen: the status says since when a CA has been the issuer's. It is written when the CA is another one, or
// when the time was written by a clock that was wrong, and otherwise stays. It also says whether there was another CA.
func TestFirstSeen(t *testing.T) {
	issuer := &certmanagerv1.Issuer{}
	look := func(authority string, at time.Time) bool {
		a := Decide(State{Issuer: issuer, Managed: true, Facts: &Facts{Ready: true, Reason: "Verified", Authority: authority}}, at)
		if a.Status != nil {
			issuer.Status = *a.Status
		}
		return a.Status != nil
	}
	hour := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour) }
	for _, c := range []struct {
		name, authority string
		at              time.Time
		writes          bool
		is              string
		since           time.Time
		replaced        bool
	}{
		{"a CA is found", "a", hour(0), true, "a", hour(0), false},
		{"the same, later: a restart, or a renewal with the same key", "a", hour(1), false, "a", hour(0), false},
		{"a look that finds no CA that can sign", "", hour(2), false, "a", hour(0), false},
		{"another key", "b", hour(3), true, "b", hour(3), true},
		{"the clock goes back", "b", hour(1), true, "b", hour(1), true},
		{"the clock goes on", "b", hour(4), false, "b", hour(1), true},
		{"the first key is back", "a", hour(5), true, "a", hour(5), true},
	} {
		if wrote := look(c.authority, c.at); wrote != c.writes {
			t.Errorf("%s: wrote %t", c.name, wrote)
		}
		if ca := issuer.Status.CA; ca == nil || ca.Authority != c.is || !ca.FirstSeen.Time.Equal(c.since) || ca.Replaced != c.replaced {
			t.Errorf("%s: %+v", c.name, ca)
		}
	}
}

// TestEndOfCA: the status says until when the CA is valid. A CA that is renewed with the same key is not another one.
func TestEndOfCA(t *testing.T) {
	issuer := &certmanagerv1.Issuer{}
	for i, ends := range []time.Time{now.Add(time.Hour), now.Add(time.Hour), now.Add(100 * time.Hour)} {
		at := now.Add(time.Duration(i) * time.Minute)
		a := Decide(State{Issuer: issuer, Managed: true, Facts: &Facts{
			Ready: true, Reason: "Verified", Authority: "a", NotBefore: now.Add(-time.Hour), NotAfter: ends,
		}}, at)
		if wrote := a.Status != nil; wrote != (i != 1) {
			t.Fatalf("look %d: wrote %t", i, wrote)
		}
		if a.Status != nil {
			issuer.Status = *a.Status
		}
		ca := issuer.Status.CA
		if ca == nil || !ca.NotAfter.Time.Equal(ends) || !ca.NotBefore.Time.Equal(now.Add(-time.Hour)) || !ca.FirstSeen.Time.Equal(now.Truncate(time.Second)) {
			t.Errorf("look %d: %+v", i, ca)
		}
	}
}

// TestPartsOfABundle: of a CA bundle, what is no certificate is left out, and the condition says so, whether the issuer
// is ready or not.
func TestPartsOfABundle(t *testing.T) {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{NotBefore: now, NotAfter: now.Add(time.Hour), PublicKey: key.Public()}
	cert, err := pki.Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	good := string(pki.EncodeCertificates(cert))
	broken := strings.Replace(good, "MII", "M!I", 1)
	old := strings.ReplaceAll(good, " CERTIFICATE-", " X509 CERTIFICATE-")
	for name, c := range map[string]struct{ bundle, says string }{
		"nothing":             {"", ""},
		"certificates":        {good + good, ""},
		"text":                {"# root\n" + good, ""},
		"a mark":              {"\ufeff" + good, ""},
		"an old label":        {old + good, ""},
		"a broken block":      {good + broken, "PEM block 2 cannot be read"},
		"a broken one first":  {broken + good, "PEM block 1 cannot be read"},
		"an indented block":   {"  " + good + good, "PEM block 1 cannot be read"},
		"a private key":       {good + string(secret), `PEM block 2 is a "PRIVATE KEY", not a CERTIFICATE`},
		"no DER":              {good + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "PEM block 2 does not parse: "},
		"trust settings":      {good + strings.ReplaceAll(good, " CERTIFICATE-", " TRUSTED CERTIFICATE-"), `PEM block 2 is a "TRUSTED CERTIFICATE", not a CERTIFICATE`},
		"several":             {string(secret) + good + broken + string(secret), `PEM block 1 is a "PRIVATE KEY", not a CERTIFICATE, and 2 more`},
		"no certificate, too": {broken, ""}, // it is refused where it is used
	} {
		for field, spec := range map[string]certmanagerv1.IssuerSpec{
			"spec.acme.caBundle":       {ACME: &acmev1.ACMEIssuer{CABundle: []byte(c.bundle)}},
			"spec.vault.caBundle":      {Vault: &certmanagerv1.VaultIssuer{CABundle: []byte(c.bundle)}},
			"spec.venafi.tpp.caBundle": {Venafi: &certmanagerv1.VenafiIssuer{TPP: &certmanagerv1.VenafiTPP{CABundle: []byte(c.bundle)}}},
			"spec.acme.solvers[1].dns01.webhook.caBundle": {ACME: &acmev1.ACMEIssuer{Solvers: []acmev1.ACMEChallengeSolver{{}, {
				DNS01: &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{CABundle: []byte(c.bundle)}},
			}}}},
		} {
			want := "as said"
			if c.says != "" {
				want += "; " + field + " is used without what is no certificate in it: " + c.says
			}
			for _, ready := range []bool{true, false} {
				s := State{Issuer: &certmanagerv1.Issuer{Spec: spec}, Managed: true, Facts: &Facts{Ready: ready, Reason: "Any", Message: "as said"}}
				a := Decide(s, now)
				said := certmanagerv1.FindIssuerCondition(a.Status.Conditions, certmanagerv1.IssuerConditionReady).Message
				if exact := strings.HasSuffix(c.says, ": "); !exact && said != want || !strings.HasPrefix(said, want) {
					t.Errorf("%s, %s, ready %t: %q, want %q", field, name, ready, said, want)
				}
			}
		}
	}
	inSecret := State{Issuer: &certmanagerv1.Issuer{}, Managed: true, Facts: &Facts{Ready: true, Reason: "Any", Message: "as said", LeftOut: "less"}}
	if said := certmanagerv1.FindIssuerCondition(Decide(inSecret, now).Status.Conditions, certmanagerv1.IssuerConditionReady).Message; said != "as said; less" {
		t.Errorf("of a bundle in a Secret: %q", said)
	}
}
