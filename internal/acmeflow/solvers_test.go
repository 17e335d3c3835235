package acmeflow

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
)

type selector = acmev1.CertificateDNSNameSelector

func http01() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Class: ref("nginx")}}}
}

func persist() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNSPersist01: &acmev1.DNSPersist01Solver{}}
}

func selecting(solver acmev1.ACMEChallengeSolver, s selector) acmev1.ACMEChallengeSolver {
	solver.Selector = &s
	return solver
}

func TestSelectSolver(t *testing.T) {
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
		"a persistent record is not offered": {
			domain: "a.example.com", offered: both, want: -1, why: "the ACME server offers dns-01, http-01, tls-alpn-01, and none of the issuer's solvers is of such a type",
			solvers: []acmev1.ACMEChallengeSolver{persist()},
		},
		"a persistent record is not offered, and the rest exclude": {
			domain: "a.example.com", offered: both, want: -1, why: "the ACME server offers dns-01, http-01, tls-alpn-01, and the selectors of all the issuer's solvers of such a type exclude it",
			solvers: []acmev1.ACMEChallengeSolver{persist(), selecting(dns01(), selector{DNSZones: []string{"example.org"}})},
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
			a := acmev1.ACMEAuthorization{Identifier: test.domain, Wildcard: ref(test.wildcard)}
			for _, offered := range test.offered {
				a.Challenges = append(a.Challenges, acmev1.ACMEChallenge{Type: offered, URL: "ca/" + offered})
			}
			got, err := SelectSolver(labels, a, test.solvers)
			if test.want < 0 {
				if err == nil || !strings.Contains(err.Error(), test.why) {
					t.Fatalf("error %v does not say %q", err, test.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			equal(t, got.Type == acmev1.ChallengeTypeDNS01, test.solvers[test.want].DNS01 != nil)
			equal(t, strings.EqualFold("ca/"+string(got.Type), got.Challenge.URL), true)
			chosen := fmt.Sprintf("solvers[%d] of the issuer: ", test.want)
			if why, ok := strings.CutPrefix(got.Why, chosen); !ok || !strings.Contains(why, test.why) {
				t.Errorf("it says %q, not %q and %q", got.Why, chosen, test.why)
			}
		})
	}
}

func annotated(annotations ...string) *acmev1.Order {
	o := newOrderObject()
	o.Annotations = map[string]string{}
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
	same := gwapiv1.ParentReference{Namespace: ref(gwapiv1.Namespace("shop")), Name: "gw"}
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

func TestChallengeIsBuiltFromTheOrder(t *testing.T) {
	o := newOrderObject()
	a := storedAuthorization(remoteAuthorization("pending"))
	c, err := BuildChallenge(o, a, []acmev1.ACMEChallengeSolver{dns01()}, Account{Thumbprint: "thumb"})
	if err != nil {
		t.Fatal(err)
	}
	// RFC 8555 §8.4: base64url(SHA-256("tok.thumb")).
	equal(t, c.Spec.Key, "sYAwVrqDtVOuJZvAHurSAYPoEt5fFV_C4bdSOOW-o5Y")
	equal(t, c.Annotations[AccountThumbprintAnnotation], "thumb")
	equal(t, strings.HasPrefix(c.Annotations[SolverChoiceAnnotation], "solvers[0] of the issuer: "), true)
	equal(t, c.OwnerReferences[0].APIVersion, "acme.cert-manager.io/v1")
	again, err := BuildChallenge(o, a, []acmev1.ACMEChallengeSolver{dns01()}, Account{Thumbprint: "another thumbprint"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, again.Name, c.Name) // the key does not count
	edited, err := BuildChallenge(o, a, []acmev1.ACMEChallengeSolver{http01()}, Account{Thumbprint: "thumb"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, edited.Name != c.Name, true)
	equal(t, edited.Spec.Key, "tok.thumb")
}

// TestPersistentChallengeSaysWhatIsNeeded: the key is the record, of the name that is wanted and
// the account that the CA says, or else the one that we know.
func TestPersistentChallengeSaysWhatIsNeeded(t *testing.T) {
	o := newOrderObject()
	account := Account{Thumbprint: "thumb", URL: "ca/acct/1"}
	for _, c := range []struct {
		wildcard  bool
		uri       string
		names     []string
		wanted    string
		key, fail string
	}{
		{names: []string{"ca.example", "b.example"}, key: "ca.example; accounturi=ca/acct/1"},
		{names: []string{"ca.example"}, uri: "ca/alias/1", key: "ca.example; accounturi=ca/alias/1"},
		{wildcard: true, names: []string{"ca.example", "b.example"}, wanted: "b.example", key: "b.example; accounturi=ca/acct/1; policy=wildcard"},
		{names: []string{"ca.example"}, wanted: "b.example", fail: `issuer "acme": dnsPersist01.issuerDomainName "b.example" is not one of`},
		{fail: "lists 0 issuer domain names"},
	} {
		remote := remoteAuthorization("pending")
		remote.Wildcard = c.wildcard
		remote.Challenges = append(remote.Challenges, RemoteChallenge{URL: "ca/chall/p", Type: "dns-persist-01", AccountURI: c.uri, IssuerDomainNames: c.names})
		s := persist()
		s.DNSPersist01.IssuerDomainName = c.wanted
		got, err := BuildChallenge(o, storedAuthorization(remote), []acmev1.ACMEChallengeSolver{s}, account)
		if c.fail != "" {
			if err == nil || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		equal(t, got.Spec.Key, c.key)
		equal(t, got.Spec.Type, acmev1.ChallengeTypeDNSPersist01)
		equal(t, got.Spec.URL, "ca/chall/p")
	}
}

func TestComputeName(t *testing.T) {
	spec := acmev1.OrderSpec{Request: []byte("ignored"), DNSNames: []string{"a.example.com"}}
	spec.IssuerRef.Name = "i"
	name, err := OrderName("web-1", spec)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, name, "web-1-376322184") // the vector of spec §3.4

	long := strings.Repeat("x", 50) + "--" + strings.Repeat("y", 20)
	name, err = OrderName(long, spec)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, name[:51], strings.Repeat("x", 50)+"-")
	other, err := OrderName(long+"z", spec)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, name != other, true) // all of a long name counts
}

func TestIdentifiers(t *testing.T) {
	spec := acmev1.OrderSpec{
		CommonName: "b.example.com", DNSNames: []string{"c.example.com", "*.a.example.com", "b.example.com", "c.example.com"},
		IPAddresses: []string{"2001:db8::1", "192.0.2.1"},
	}
	equal(t, Identifiers(spec), []Identifier{
		{"dns", "*.a.example.com"}, {"dns", "b.example.com"}, {"dns", "c.example.com"}, {"ip", "192.0.2.1"}, {"ip", "2001:db8::1"},
	})
	// RFC 8738 §3: an address has one text.
	equal(t, Identifiers(acmev1.OrderSpec{CommonName: "2001:DB8:0::1", IPAddresses: []string{"2001:db8::1", "::ffff:192.0.2.1", "192.0.2.1"}}), []Identifier{
		{"ip", "192.0.2.1"}, {"ip", "2001:db8::1"},
	})
	for cn, want := range map[string]int{"": 0, "Example Ltd": 0, "localhost": 0, "-a.example.com": 0, "a.example.com": 1, "192.0.2.7": 1, "a..b": 0} {
		if got := len(Identifiers(acmev1.OrderSpec{CommonName: cn})); got != want {
			t.Errorf("common name %q counts %d times", cn, got)
		}
	}
}

func TestNewOrderAsksForDurationAndProfile(t *testing.T) {
	s := newOrderState()
	s.Order.Spec.Duration = &metav1.Duration{Duration: 48 * 3600e9}
	s.Order.Spec.Profile = "shortlived"
	n := DecideOrder(s, start).NewOrder
	equal(t, n.NotAfter, start.AddDate(0, 0, 2))
	equal(t, n.Profile, "shortlived")
}
