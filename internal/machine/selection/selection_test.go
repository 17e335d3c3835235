package selection

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

func equal(t *testing.T, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}

func dns01() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{Host: "auth.example.net"}}}
}

type selector = acmev1.CertificateDNSNameSelector

func http01() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Class: new("nginx")}}}
}

func persist() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNSPersist01: &acmev1.DNSPersist01Solver{}}
}

func tlsALPN() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{TLSALPN01: &acmev1.TLSALPN01Solver{}}
}

func byAccount() acmev1.ACMEChallengeSolver {
	s := dns01()
	s.DNS01.AccountLabel = true
	return s
}

func selecting(solver acmev1.ACMEChallengeSolver, s selector) acmev1.ACMEChallengeSolver {
	solver.Selector = &s
	return solver
}

func TestSelect(t *testing.T) {
	labels := map[string]string{"team": "web", "tier": "1"}
	both := []string{"http-01", "dns-01", "tls-alpn-01"}
	for name, test := range map[string]struct {
		domain   string
		wildcard bool
		offered  []string
		solvers  []acmev1.ACMEChallengeSolver
		want     int // -1 for none
		why      string
	}{
		"none":                           {domain: "a.example.com", offered: both, want: -1, why: "has no solvers"},
		"the first without a selector":   {domain: "a.example.com", why: "the first without one", offered: both, solvers: []acmev1.ACMEChallengeSolver{http01(), dns01()}},
		"an empty selector is like none": {domain: "a.example.com", offered: both, solvers: []acmev1.ACMEChallengeSolver{http01(), selecting(dns01(), selector{})}},
		"only what is offered": {
			domain: "a.example.com", wildcard: true, offered: []string{"dns-01"},
			solvers: []acmev1.ACMEChallengeSolver{http01(), dns01()}, want: 1,
		},
		"nothing that is offered": {
			domain: "a.example.com", offered: []string{"dns-01"},
			solvers: []acmev1.ACMEChallengeSolver{http01()}, want: -1, why: "the ACME server offers dns-01",
		},
		"a persistent record": {
			domain: "a.example.com", wildcard: true, offered: append([]string{"dns-persist-01"}, both...), want: 1, why: "dnsNames list",
			solvers: []acmev1.ACMEChallengeSolver{dns01(), selecting(persist(), selector{DNSNames: []string{"*.a.example.com"}})},
		},
		"a TLS handshake": {
			domain: "192.0.2.1", offered: []string{"http-01", "tls-alpn-01"}, want: 1,
			solvers: []acmev1.ACMEChallengeSolver{dns01(), tlsALPN(), http01()},
		},
		"no TLS handshake for a wildcard": {
			domain: "a.example.com", wildcard: true, offered: []string{"dns-01"}, want: -1, why: "the ACME server offers dns-01, and none of the issuer's solvers is of such a type",
			solvers: []acmev1.ACMEChallengeSolver{tlsALPN()},
		},
		"a persistent record is not offered": {
			domain: "a.example.com", offered: both, want: -1, why: "the ACME server offers dns-01, http-01, tls-alpn-01, and none of the issuer's solvers is of such a type",
			solvers: []acmev1.ACMEChallengeSolver{persist()},
		},
		"a persistent record is not offered, and the rest exclude": {
			domain: "a.example.com", offered: both, want: -1, why: "the ACME server offers dns-01, http-01, tls-alpn-01, and the selectors of all the issuer's solvers of such a type exclude it",
			solvers: []acmev1.ACMEChallengeSolver{persist(), selecting(dns01(), selector{DNSZones: []string{"example.org"}})},
		},
		"an account's label": {
			domain: "a.example.com", wildcard: true, offered: []string{"dns-01", "dns-account-01", "dns-persist-01"}, want: 0,
			solvers: []acmev1.ACMEChallengeSolver{byAccount(), dns01()},
		},
		"an account's label is not offered": {
			domain: "a.example.com", offered: both, want: -1,
			why: "the ACME server offers dns-01, http-01, tls-alpn-01, and none of the issuer's solvers is of such a type; " +
				"add one to spec.acme.solvers (dns01 with accountLabel is for dns-account-01)",
			solvers: []acmev1.ACMEChallengeSolver{byAccount()},
		},
		"an account's label is not offered, and the next will do": {
			domain: "a.example.com", offered: both, want: 1,
			solvers: []acmev1.ACMEChallengeSolver{byAccount(), dns01()},
		},
		"an account's label is not offered, and the rest exclude": {
			domain: "a.example.com", offered: both, want: -1, why: "amend spec.acme.solvers (dns01 with accountLabel is for dns-account-01)",
			solvers: []acmev1.ACMEChallengeSolver{byAccount(), selecting(http01(), selector{DNSZones: []string{"example.org"}})},
		},
		"an account's label is offered, and its selector excludes": {
			domain: "a.example.com", offered: []string{"dns-account-01"}, want: -1, why: "exclude it; amend spec.acme.solvers",
			solvers: []acmev1.ACMEChallengeSolver{selecting(byAccount(), selector{DNSZones: []string{"example.org"}})},
		},
		"a selector beats none": {
			domain: "a.example.com", offered: both, want: 1,
			solvers: []acmev1.ACMEChallengeSolver{http01(), selecting(dns01(), selector{DNSZones: []string{"example.com"}})},
		},
		"the longer zone": {
			domain: "a.b.example.com", offered: both, want: 1, why: "dnsZones, its has the longest for the name (3 labels)",
			solvers: []acmev1.ACMEChallengeSolver{
				selecting(http01(), selector{DNSZones: []string{"com", "example.com"}}), selecting(dns01(), selector{DNSZones: []string{"B.Example.com"}}),
			},
		},
		"a zone is cut at labels": {
			domain: "badexample.com", offered: both, want: -1, why: "exclude it",
			solvers: []acmev1.ACMEChallengeSolver{selecting(http01(), selector{DNSZones: []string{"example.com"}})},
		},
		"a name beats a zone": {
			domain: "a.example.com", offered: both, want: 1, why: "dnsNames list",
			solvers: []acmev1.ACMEChallengeSolver{
				selecting(http01(), selector{DNSZones: []string{"a.example.com"}}), selecting(dns01(), selector{DNSNames: []string{"a.example.com"}}),
			},
		},
		"a wildcard is named as such": {
			domain: "example.com", wildcard: true, offered: both, want: 1,
			solvers: []acmev1.ACMEChallengeSolver{
				selecting(http01(), selector{DNSNames: []string{"example.com"}}), selecting(dns01(), selector{DNSNames: []string{"*.example.com"}}),
			},
		},
		"more labels": {
			domain: "a.example.com", offered: both, want: 1, why: "matchLabels fit the Order best (2 labels)",
			solvers: []acmev1.ACMEChallengeSolver{
				selecting(http01(), selector{MatchLabels: map[string]string{"team": "web"}}), selecting(dns01(), selector{MatchLabels: labels}),
			},
		},
		"a zone beats labels": {
			domain: "a.example.com", offered: both, want: 1,
			solvers: []acmev1.ACMEChallengeSolver{
				selecting(http01(), selector{MatchLabels: labels}), selecting(dns01(), selector{DNSZones: []string{"com"}}),
			},
		},
		"labels must match": {
			domain: "a.example.com", offered: both, want: -1, why: "exclude it",
			solvers: []acmev1.ACMEChallengeSolver{selecting(http01(), selector{MatchLabels: map[string]string{"team": "db"}})},
		},
		"all parts must match": {
			domain: "a.example.com", offered: both, want: -1, why: "exclude it",
			solvers: []acmev1.ACMEChallengeSolver{selecting(http01(), selector{MatchLabels: labels, DNSZones: []string{"example.org"}})},
		},
		"ties keep the earlier": {
			domain: "a.example.com", offered: both,
			solvers: []acmev1.ACMEChallengeSolver{
				selecting(http01(), selector{DNSZones: []string{"example.com"}}), selecting(dns01(), selector{DNSZones: []string{"example.com"}}),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := acmev1.ACMEAuthorization{Identifier: test.domain, Wildcard: new(test.wildcard)}
			for _, offered := range test.offered {
				a.Challenges = append(a.Challenges, acmev1.ACMEChallenge{Type: offered, URL: "ca/" + offered})
			}
			got, err := Select(labels, a, test.solvers)
			if test.want < 0 {
				if err == nil || !strings.Contains(err.Error(), test.why) {
					t.Fatalf("error %v does not say %q", err, test.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			byDNS := test.solvers[test.want].DNS01
			equal(t, got.Type == acmev1.ChallengeTypeDNS01, byDNS != nil && !byDNS.AccountLabel)
			equal(t, got.Type == acmev1.ChallengeTypeDNSAccount01, byDNS != nil && byDNS.AccountLabel)
			equal(t, strings.EqualFold("ca/"+string(got.Type), got.Challenge.URL), true)
			chosen := fmt.Sprintf("solvers[%d] of the issuer: ", test.want)
			if why, ok := strings.CutPrefix(got.Why, chosen); !ok || !strings.Contains(why, test.why) {
				t.Errorf("it says %q, not %q and %q", got.Why, chosen, test.why)
			}
		})
	}
}

func annotated(annotations ...string) *acmev1.Order {
	o := &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		o.Annotations[annotations[i]] = annotations[i+1]
	}
	return o
}

func TestIngressOverrides(t *testing.T) {
	solver := http01()
	got, err := ApplyOverrides(annotated(acmev1.OverrideIngressNameAnnotation, "shop"), solver)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got.HTTP01.Ingress.Name, "shop")
	equal(t, got.HTTP01.Ingress.Class == nil, true)
	equal(t, *solver.HTTP01.Ingress.Class, "nginx") // the issuer's is not changed

	got, err = ApplyOverrides(annotated(acmev1.OverrideIngressClassNameAnnotation, "traefik"), solver)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, *got.HTTP01.Ingress.IngressClassName, "traefik")
	equal(t, got.HTTP01.Ingress.Class == nil, true)

	got, err = ApplyOverrides(annotated(acmev1.OverrideIngressClassAnnotation, "haproxy"), solver)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, *got.HTTP01.Ingress.Class, "haproxy")

	_, err = ApplyOverrides(annotated(acmev1.OverrideIngressClassAnnotation, "a", acmev1.OverrideIngressNameAnnotation, "b"), solver)
	if err == nil || !strings.Contains(err.Error(), "at most one") {
		t.Fatalf("two overrides: %v", err)
	}
	got, err = ApplyOverrides(annotated(acmev1.OverrideIngressClassAnnotation, "a", acmev1.OverrideIngressNameAnnotation, "b"), dns01())
	equal(t, err, nil)
	equal(t, got.DNS01 != nil, true)
}

func TestParentRefOverrides(t *testing.T) {
	route := func(refs ...gwapiv1.ParentReference) acmev1.ACMEChallengeSolver {
		return acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{ParentRefs: refs}}}
	}
	same := gwapiv1.ParentReference{Namespace: new(gwapiv1.Namespace("shop")), Name: "gw"}
	other := gwapiv1.ParentReference{Name: "gw"}
	o := annotated(acmev1.ParentRefKindAnnotation, "Gateway", acmev1.ParentRefNameAnnotation, "gw")
	got, err := ApplyOverrides(o, route(same, other))
	if err != nil {
		t.Fatal(err)
	}
	refs := got.HTTP01.GatewayHTTPRoute.ParentRefs
	equal(t, len(refs), 2) // same was replaced, other has no namespace and stays
	equal(t, refs[1].Name, "gw")
	equal(t, *refs[1].Namespace, "shop")
	equal(t, *refs[1].Kind, "Gateway")
	equal(t, refs[1].Group == nil, true)

	if _, err := ApplyOverrides(annotated(acmev1.ParentRefNameAnnotation, "gw"), route(other)); err == nil {
		t.Error("a name without a kind is accepted")
	}
	if _, err := ApplyOverrides(annotated(), route()); err == nil {
		t.Error("no parentRefs at all are accepted")
	}
}

// TestALargeSolverIsRefused: a solver that is too large for a copy in each Challenge is not used, nor is another one in
// its place, and one of the largest size is.
func TestALargeSolverIsRefused(t *testing.T) {
	bounds.Holds(t, "solver", func(n int) limits.Outcome {
		config := &apiextensionsv1.JSON{Raw: []byte(`""`)}
		large := acmev1.ACMEChallengeSolver{
			Selector: &acmev1.CertificateDNSNameSelector{DNSZones: []string{"example.com"}},
			DNS01:    &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{GroupName: "acme.example.com", SolverName: "x", Config: config}},
		}
		empty, err := json.Marshal(large)
		if err != nil {
			t.Fatal(err)
		}
		config.Raw = []byte(`"` + strings.Repeat("x", n-len(empty)) + `"`)
		solvers := For(nil, []acmev1.ACMEChallengeSolver{dns01(), large})
		offered := []acmev1.ACMEChallenge{{Type: "dns-01"}}
		got, err := solvers.Select(acmev1.ACMEAuthorization{Identifier: "www.example.com", Challenges: offered})
		equal(t, got.Solver.DNS01.Webhook != nil, true)
		if _, of := solvers.Select(acmev1.ACMEAuthorization{Identifier: "www.example.net", Challenges: offered}); of != nil {
			t.Errorf("another name: %v", of)
		}
		if err != nil && !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
		return bounds.Refusal(t, err, "solvers[1] of the issuer is too large: it has 65537 bytes")
	})
}
