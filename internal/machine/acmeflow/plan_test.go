package acmeflow

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/selection"
)

func http01() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Class: ref("nginx")}}}
}

func persist() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNSPersist01: &acmev1.DNSPersist01Solver{}}
}

func TestChallengeIsBuiltFromTheOrder(t *testing.T) {
	o := newOrderObject()
	a := storedAuthorization(remoteAuthorization("pending"))
	c, err := buildChallenge(o, a, selection.For(nil, []acmev1.ACMEChallengeSolver{dns01()}), AccountState{Thumbprint: "thumb"})
	if err != nil {
		t.Fatal(err)
	}
	// RFC 8555 §8.4: base64url(SHA-256("tok.thumb")).
	equal(t, c.Spec.Key, "sYAwVrqDtVOuJZvAHurSAYPoEt5fFV_C4bdSOOW-o5Y")
	equal(t, c.Annotations[AccountThumbprintAnnotation], "thumb")
	equal(t, strings.HasPrefix(c.Annotations[SolverChoiceAnnotation], "solvers[0] of the issuer: "), true)
	equal(t, c.OwnerReferences[0].APIVersion, "acme.cert-manager.io/v1")
	again, err := buildChallenge(o, a, selection.For(nil, []acmev1.ACMEChallengeSolver{dns01()}), AccountState{Thumbprint: "another thumbprint"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, again.Name, c.Name) // the key does not count
	edited, err := buildChallenge(o, a, selection.For(nil, []acmev1.ACMEChallengeSolver{http01()}), AccountState{Thumbprint: "thumb"})
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
	account := AccountState{Thumbprint: "thumb", URL: "ca/acct/1"}
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
		remote.Challenges = append(remote.Challenges, acme.Challenge{URL: "ca/chall/p", Type: "dns-persist-01", AccountURI: c.uri, IssuerDomainNames: c.names})
		s := persist()
		s.DNSPersist01.IssuerDomainName = c.wanted
		got, err := buildChallenge(o, storedAuthorization(remote), selection.For(nil, []acmev1.ACMEChallengeSolver{s}), account)
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

func TestTLSALPNIsGivenTheKeyAuthorization(t *testing.T) {
	remote := remoteAuthorization("pending")
	remote.Challenges = append(remote.Challenges, acme.Challenge{URL: "ca/chall/t", Type: "tls-alpn-01", Token: "tok"})
	solvers := []acmev1.ACMEChallengeSolver{{TLSALPN01: &acmev1.TLSALPN01Solver{}}}
	got, err := buildChallenge(newOrderObject(), storedAuthorization(remote), selection.For(nil, solvers), AccountState{Thumbprint: "thumb"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got.Spec.Key, "tok.thumb")
	equal(t, got.Spec.Type, acmev1.ChallengeTypeTLSALPN01)
	equal(t, got.Spec.URL, "ca/chall/t")
}

// TestAccountChallengeCarriesTheLabel: the value is that of DNS-01; what the record's name is made of
// stays in the Challenge, whatever becomes of the account.
func TestAccountChallengeCarriesTheLabel(t *testing.T) {
	o, remote := newOrderObject(), remoteAuthorization("pending")
	remote.Challenges = append(remote.Challenges, acme.Challenge{URL: "ca/chall/a", Type: "dns-account-01", Token: "tok"})
	plain, labelled := dns01(), dns01()
	labelled.DNS01.AccountLabel = true
	build := func(s acmev1.ACMEChallengeSolver, account string) *acmev1.Challenge {
		t.Helper()
		c, err := buildChallenge(o, storedAuthorization(remote), selection.For(nil, []acmev1.ACMEChallengeSolver{s}), AccountState{Thumbprint: "thumb", URL: account})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := build(labelled, "https://example.com/acme/acct/ExampleAccount")
	equal(t, c.Spec.Type, acmev1.ChallengeTypeDNSAccount01)
	equal(t, c.Spec.URL, "ca/chall/a")
	equal(t, c.Spec.Key, "sYAwVrqDtVOuJZvAHurSAYPoEt5fFV_C4bdSOOW-o5Y")
	equal(t, c.Spec.AccountLabel, "ujmmovf2vn55tgye") // the draft's example
	again := build(labelled, "https://example.com/acme/acct/2")
	equal(t, again.Spec.AccountLabel != c.Spec.AccountLabel, true)
	equal(t, again.Name, c.Name) // like the key
	equal(t, build(plain, "https://example.com/acme/acct/ExampleAccount").Spec.AccountLabel, "")
}

// TestChallengeOfAReplacedKey: it makes room for one that answers with the new key, once it has
// cleaned up; a record that names the account stays good.
func TestChallengeOfAReplacedKey(t *testing.T) {
	s := newOrderState().stored(acmev1.Pending, "pending").saw("pending").owning(acmev1.Pending)
	s.Account.Thumbprint = "next"
	old := s.Challenges[0]
	old.Status.Presented = true
	a := DecideOrder(s, start)
	equal(t, a.Step, OrderDeleteChallenges)
	equal(t, a.Delete, []string{old.Name})
	now := metav1.NewTime(start)
	old.DeletionTimestamp = &now
	equal(t, DecideOrder(s, start).Step, OrderWait)
	s.Challenges = nil
	a = DecideOrder(s, start)
	equal(t, a.Step, OrderCreateChallenges)
	equal(t, a.Challenges[0].Name, old.Name)
	equal(t, Outdated(a.Challenges[0].Spec, "next"), false)
	equal(t, Outdated(old.Spec, "next"), true)
	equal(t, Outdated(acmev1.ChallengeSpec{Type: acmev1.ChallengeTypeDNSPersist01, Key: "ca.example; accounturi=a"}, "next"), false)
}

// TestASentCleanUpIsWaitedFor: it may still take away what a new Challenge has presented.
func TestASentCleanUpIsWaitedFor(t *testing.T) {
	s := newOrderState().stored(acmev1.Pending, "pending").saw("pending").owning(acmev1.Pending)
	old, now := s.Challenges[0], start.Add(time.Minute)
	old.UID = "old"
	deleted := metav1.NewTime(start)
	old.DeletionTimestamp = &deleted
	s.Issuer.Solvers = []acmev1.ACMEChallengeSolver{http01()}
	s.CleaningUp = map[types.UID]bool{"old": true}
	a := DecideOrder(s, now)
	equal(t, a.Step, OrderWait)
	equal(t, a.Wake, now.Add(sentAgain))
	s.CleaningUp = nil
	equal(t, DecideOrder(s, now).Step, OrderCreateChallenges)
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
	equal(t, Identifiers(spec), []acme.Identifier{
		{Type: "dns", Value: "*.a.example.com"}, {Type: "dns", Value: "b.example.com"}, {Type: "dns", Value: "c.example.com"}, {Type: "ip", Value: "192.0.2.1"}, {Type: "ip", Value: "2001:db8::1"},
	})
	// RFC 8738 §3: an address has one text.
	equal(t, Identifiers(acmev1.OrderSpec{CommonName: "2001:DB8:0::1", IPAddresses: []string{"2001:db8::1", "::ffff:192.0.2.1", "192.0.2.1"}}), []acme.Identifier{
		{Type: "ip", Value: "192.0.2.1"}, {Type: "ip", Value: "2001:db8::1"},
	})
	// RFC 4343: capitals are the same name.
	equal(t, Identifiers(acmev1.OrderSpec{CommonName: "A.Example.com", DNSNames: []string{"a.example.com", "A.example.com", "*.A.example.com"}}), []acme.Identifier{
		{Type: "dns", Value: "*.a.example.com"}, {Type: "dns", Value: "a.example.com"},
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

// TestASolverThatIsTooLargeIsNoMissingOne: the Order makes no Challenge with it, and does not tell people to change
// selectors.
func TestASolverThatIsTooLargeIsNoMissingOne(t *testing.T) {
	large := dns01()
	large.DNS01.AcmeDNS.Host = strings.Repeat("x", limits.SolverBytes)
	for want, solvers := range map[cause.Class][]acmev1.ACMEChallengeSolver{
		cause.NoSolver: {}, cause.Class(fault.ClassConfiguration): {large},
	} {
		s := newOrderState().stored(acmev1.Pending, "pending").saw("pending")
		s.Issuer.Solvers = solvers
		a := DecideOrder(s, start)
		if a.Status == nil || a.Status.Cause == nil || a.Status.Cause.Class != string(want) || len(a.Challenges) > 0 {
			t.Errorf("%s: %+v", want, a)
		}
	}
}
