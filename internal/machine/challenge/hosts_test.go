package challenge_test

import (
	"strings"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/rig/flows"
)

// A tenant with a CA of its own gets tokens of its choice. Where every host is led to the responder, it would
// answer for the hosts of others with them, at a public CA too. Such a Challenge never gets a slot.
func TestHostsOfNamespacedIssuers(t *testing.T) {
	shop := acmeflow.HostRule{Namespace: "shop", Pattern: "*.example.com"}
	on := func(kind acmev1.ACMEChallengeType, issuer string, rules ...acmeflow.HostRule) flows.ChallengeState {
		s := flows.NewChallengeState().With(func(c *acmev1.Challenge) {
			c.Spec.Type, c.Spec.DNSName, c.Spec.IssuerRef.Kind = kind, "www.bank.example", issuer
		})
		s.Settings.Hosts = map[acmev1.ACMEChallengeType][]acmeflow.HostRule{acmev1.ChallengeTypeHTTP01: rules, acmev1.ChallengeTypeTLSALPN01: rules}
		return s
	}
	for _, kind := range []acmev1.ACMEChallengeType{acmev1.ChallengeTypeHTTP01, acmev1.ChallengeTypeTLSALPN01} {
		for _, issuer := range []string{"", cmmeta.DefaultIssuerKind} {
			for _, e := range flows.Environments() {
				s := on(kind, issuer, shop)
				a := challengeTrial().In(s, e).Decide(start.Add(e.After))
				if a.Status == nil || a.Status.State != acmev1.Errored || a.Status.Processing || a.Step.External() {
					t.Errorf("%s in %s: %+v", kind, e.Name, a)
				} else if said := a.Status.Reason; !strings.Contains(said, `"www.bank.example"`) || !strings.Contains(said, "-hosts shop=www.bank.example") {
					t.Errorf("the reason is %q", said)
				}
			}
			// One that an operator stops in its course is cleaned up.
			running := on(kind, issuer, shop).Processing().Presented().Read("pending", "pending")
			ended := running.Decide(start)
			equal(t, ended.Status.State, acmev1.Errored)
			after := running.With(func(c *acmev1.Challenge) { c.Status = *ended.Status }).Decide(start)
			equal(t, after.Step, challenge.CleanUp)
			// And what the CA has validated stays valid.
			equal(t, running.Read("valid", "valid").Decide(start).Status.State, acmev1.Valid)

			allowed := on(kind, issuer, shop, acmeflow.HostRule{Namespace: "*", Pattern: "www.bank.example"})
			equal(t, allowed.Decide(start).Status == nil, true)
			equal(t, allowed.Processing().Decide(start).Step, challenge.Fetch)
		}
		equal(t, on(kind, cmmeta.ClusterIssuerKind).Decide(start.Add(time.Minute)).Status == nil, true)
	}
	// Records in DNS, and routes that the host's ingress controller judges, need no rule.
	equal(t, on(acmev1.ChallengeTypeDNS01, "").Decide(start).Status == nil, true)
	routed := on(acmev1.ChallengeTypeHTTP01, "")
	delete(routed.Settings.Hosts, acmev1.ChallengeTypeHTTP01)
	equal(t, routed.Decide(start).Status == nil, true)
}
