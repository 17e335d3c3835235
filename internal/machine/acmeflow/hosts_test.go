package acmeflow

import (
	"strings"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

func TestHostRules(t *testing.T) {
	for _, c := range []struct {
		rule, namespace, host string
		want                  bool
	}{
		{"shop=www.example.com", "shop", "www.example.com", true},
		{"shop=WWW.example.com", "shop", "www.Example.com", true},
		{"shop=www.example.com", "shop", "example.com", false},
		{"shop=www.example.com", "shop", "a.www.example.com", false},
		{"shop=www.example.com", "bank", "www.example.com", false},
		{"shop=*.example.com", "shop", "www.example.com", true},
		{"shop=*.example.com", "shop", "a.b.example.com", true},
		{"shop=*.example.com", "shop", "example.com", false},
		{"shop=*.example.com", "shop", "wwwexample.com", false},
		{"shop=*", "shop", "192.0.2.1", true},
		{"shop=192.0.2.1", "shop", "192.0.2.1", true},
		{"shop=2001:db8::1", "shop", "2001:db8:0::1", true},
		{"*=*.example.com", "bank", "www.example.com", true},
		{"*=*", "bank", "anything.example", true},
	} {
		r, err := ParseHostRule(c.rule)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
		} else if got := r.permits(c.namespace, c.host); got != c.want {
			t.Errorf("%s permits %s in %s = %t", c.rule, c.host, c.namespace, got)
		}
	}
	for _, text := range []string{"", "www.example.com", "shop=", "=*", "Shop=*", "shop=*.*", "shop=a*.example.com", "shop=*.192.0.2.1", "shop=https://x", "shop=a b", "sh*=*"} {
		if r, err := ParseHostRule(text); err == nil {
			t.Errorf("%q is parsed as %v", text, r)
		}
	}
}

// A tenant with a CA of its own gets tokens of its choice. Where every host is led to the responder, it would
// answer for the hosts of others with them, at a public CA too. Such a Challenge never gets a slot.
func TestHostsOfNamespacedIssuers(t *testing.T) {
	shop := HostRule{Namespace: "shop", Pattern: "*.example.com"}
	on := func(kind acmev1.ACMEChallengeType, issuer string, rules ...HostRule) ChallengeState {
		s := newChallengeState().with(func(c *acmev1.Challenge) {
			c.Spec.Type, c.Spec.DNSName, c.Spec.IssuerRef.Kind = kind, "www.bank.example", issuer
		})
		s.Settings.Hosts = map[acmev1.ACMEChallengeType][]HostRule{acmev1.ChallengeTypeHTTP01: rules, acmev1.ChallengeTypeTLSALPN01: rules}
		return s
	}
	for _, kind := range []acmev1.ACMEChallengeType{acmev1.ChallengeTypeHTTP01, acmev1.ChallengeTypeTLSALPN01} {
		for _, issuer := range []string{"", cmmeta.DefaultIssuerKind} {
			for _, e := range environments() {
				s := on(kind, issuer, shop)
				a := DecideChallenge(challengeTrial().in(s, e), start.Add(e.after))
				if a.Status == nil || a.Status.State != acmev1.Errored || a.Status.Processing || a.Step.External() {
					t.Errorf("%s in %s: %+v", kind, e.name, a)
				} else if said := a.Status.Reason; !strings.Contains(said, `"www.bank.example"`) || !strings.Contains(said, "-hosts shop=www.bank.example") {
					t.Errorf("the reason is %q", said)
				}
			}
			// One that an operator stops in its course is cleaned up.
			running := on(kind, issuer, shop).processing().presented().read("pending", "pending")
			ended := DecideChallenge(running, start)
			equal(t, ended.Status.State, acmev1.Errored)
			after := DecideChallenge(running.with(func(c *acmev1.Challenge) { c.Status = *ended.Status }), start)
			equal(t, after.Step, ChallengeCleanUp)
			// And what the CA has validated stays valid.
			equal(t, DecideChallenge(running.read("valid", "valid"), start).Status.State, acmev1.Valid)

			allowed := on(kind, issuer, shop, HostRule{Namespace: "*", Pattern: "www.bank.example"})
			equal(t, DecideChallenge(allowed, start).Status == nil, true)
			equal(t, DecideChallenge(allowed.processing(), start).Step, ChallengeFetch)
		}
		equal(t, DecideChallenge(on(kind, cmmeta.ClusterIssuerKind), start.Add(time.Minute)).Status == nil, true)
	}
	// Records in DNS, and routes that the host's ingress controller judges, need no rule.
	equal(t, DecideChallenge(on(acmev1.ChallengeTypeDNS01, ""), start).Status == nil, true)
	routed := on(acmev1.ChallengeTypeHTTP01, "")
	delete(routed.Settings.Hosts, acmev1.ChallengeTypeHTTP01)
	equal(t, DecideChallenge(routed, start).Status == nil, true)
}
