package order_test

import (
	"encoding/json"
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
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/machine/selection"
	"chancery.dev/internal/rig/flows"
)

func persist() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNSPersist01: &acmev1.DNSPersist01Solver{}}
}

func TestChallengeIsBuiltFromTheOrder(t *testing.T) {
	o := flows.NewOrder()
	a := order.StoredAuthorization(flows.RemoteAuthorization("pending"))
	c, err := order.BuildChallenge(o, a, selection.For(nil, []acmev1.ACMEChallengeSolver{flows.DNS01()}), acmeflow.AccountState{Thumbprint: "thumb"})
	if err != nil {
		t.Fatal(err)
	}
	// RFC 8555 §8.4: base64url(SHA-256("tok.thumb")).
	equal(t, c.Spec.Key, "sYAwVrqDtVOuJZvAHurSAYPoEt5fFV_C4bdSOOW-o5Y")
	equal(t, c.Annotations[acmeflow.AccountThumbprintAnnotation], "thumb")
	equal(t, strings.HasPrefix(c.Annotations[order.SolverChoiceAnnotation], "solvers[0] of the issuer: "), true)
	equal(t, c.OwnerReferences[0].APIVersion, "acme.cert-manager.io/v1")
	again, err := order.BuildChallenge(o, a, selection.For(nil, []acmev1.ACMEChallengeSolver{flows.DNS01()}), acmeflow.AccountState{Thumbprint: "another thumbprint"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, again.Name, c.Name) // the key does not count
	edited, err := order.BuildChallenge(o, a, selection.For(nil, []acmev1.ACMEChallengeSolver{flows.HTTP01()}), acmeflow.AccountState{Thumbprint: "thumb"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, edited.Name != c.Name, true)
	equal(t, edited.Spec.Key, "tok.thumb")
}

// TestPersistentChallengeSaysWhatIsNeeded: the key is the record, of the name that is wanted and
// the account that the CA says, or else the one that we know.
func TestPersistentChallengeSaysWhatIsNeeded(t *testing.T) {
	o := flows.NewOrder()
	account := acmeflow.AccountState{Thumbprint: "thumb", URL: "ca/acct/1"}
	for i, c := range []struct {
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
		remote := flows.RemoteAuthorization("pending")
		remote.Wildcard = c.wildcard
		offered, spelling := acme.Challenge{}, []string{"issuer-domain-names", "issuerDomainNames"}[i%2] // by drafts until -01, and later
		text, err := json.Marshal(map[string]any{"url": "ca/chall/p", "type": "dns-persist-01", "accounturi": c.uri, spelling: c.names})
		if err == nil {
			err = json.Unmarshal(text, &offered)
		}
		if err != nil {
			t.Fatal(err)
		}
		remote.Challenges = append(remote.Challenges, offered)
		s := persist()
		s.DNSPersist01.IssuerDomainName = c.wanted
		got, err := order.BuildChallenge(o, order.StoredAuthorization(remote), selection.For(nil, []acmev1.ACMEChallengeSolver{s}), account)
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
	remote := flows.RemoteAuthorization("pending")
	remote.Challenges = append(remote.Challenges, acme.Challenge{URL: "ca/chall/t", Type: "tls-alpn-01", Token: "tok"})
	solvers := []acmev1.ACMEChallengeSolver{{TLSALPN01: &acmev1.TLSALPN01Solver{}}}
	got, err := order.BuildChallenge(flows.NewOrder(), order.StoredAuthorization(remote), selection.For(nil, solvers), acmeflow.AccountState{Thumbprint: "thumb"})
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
	o, remote := flows.NewOrder(), flows.RemoteAuthorization("pending")
	remote.Challenges = append(remote.Challenges, acme.Challenge{URL: "ca/chall/a", Type: "dns-account-01", Token: "tok"})
	plain, labelled := flows.DNS01(), flows.DNS01()
	labelled.DNS01.AccountLabel = true
	build := func(s acmev1.ACMEChallengeSolver, account string) *acmev1.Challenge {
		t.Helper()
		c, err := order.BuildChallenge(o, order.StoredAuthorization(remote), selection.For(nil, []acmev1.ACMEChallengeSolver{s}), acmeflow.AccountState{Thumbprint: "thumb", URL: account})
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
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Saw("pending").Owning(acmev1.Pending)
	s.Account.Thumbprint = "next"
	old := s.Challenges[0]
	old.Status.Presented = true
	a := s.Decide(start)
	equal(t, a.Step, order.DeleteChallenges)
	equal(t, a.Delete, []string{old.Name})
	now := metav1.NewTime(start)
	old.DeletionTimestamp = &now
	equal(t, s.Decide(start).Step, order.Wait)
	s.Challenges = nil
	a = s.Decide(start)
	equal(t, a.Step, order.CreateChallenges)
	equal(t, a.Challenges[0].Name, old.Name)
	equal(t, acmeflow.Outdated(a.Challenges[0].Spec, "next"), false)
	equal(t, acmeflow.Outdated(old.Spec, "next"), true)
	equal(t, acmeflow.Outdated(acmev1.ChallengeSpec{Type: acmev1.ChallengeTypeDNSPersist01, Key: "ca.example; accounturi=a"}, "next"), false)
}

// TestASentCleanUpIsWaitedFor: it may still take away what a new Challenge has presented.
func TestASentCleanUpIsWaitedFor(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Saw("pending").Owning(acmev1.Pending)
	old, now := s.Challenges[0], start.Add(time.Minute)
	old.UID = "old"
	deleted := metav1.NewTime(start)
	old.DeletionTimestamp = &deleted
	s.Issuer.Solvers = []acmev1.ACMEChallengeSolver{flows.HTTP01()}
	s.CleaningUp = map[types.UID]bool{"old": true}
	a := s.Decide(now)
	equal(t, a.Step, order.Wait)
	equal(t, a.Wake, now.Add(order.SentAgain))
	s.CleaningUp = nil
	equal(t, s.Decide(now).Step, order.CreateChallenges)
}

func TestComputeName(t *testing.T) {
	spec := acmev1.OrderSpec{Request: []byte("ignored"), DNSNames: []string{"a.example.com"}}
	spec.IssuerRef.Name = "i"
	name, err := order.Name("web-1", spec)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, name, "web-1-376322184") // the vector of spec §3.4

	long := strings.Repeat("x", 50) + "--" + strings.Repeat("y", 20)
	name, err = order.Name(long, spec)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, name[:51], strings.Repeat("x", 50)+"-")
	other, err := order.Name(long+"z", spec)
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
	equal(t, order.Identifiers(spec), []acme.Identifier{
		{Type: "dns", Value: "*.a.example.com"}, {Type: "dns", Value: "b.example.com"}, {Type: "dns", Value: "c.example.com"}, {Type: "ip", Value: "192.0.2.1"}, {Type: "ip", Value: "2001:db8::1"},
	})
	// RFC 8738 §3: an address has one text.
	equal(t, order.Identifiers(acmev1.OrderSpec{CommonName: "2001:DB8:0::1", IPAddresses: []string{"2001:db8::1", "::ffff:192.0.2.1", "192.0.2.1"}}), []acme.Identifier{
		{Type: "ip", Value: "192.0.2.1"}, {Type: "ip", Value: "2001:db8::1"},
	})
	// RFC 4343: capitals are the same name.
	equal(t, order.Identifiers(acmev1.OrderSpec{CommonName: "A.Example.com", DNSNames: []string{"a.example.com", "A.example.com", "*.A.example.com"}}), []acme.Identifier{
		{Type: "dns", Value: "*.a.example.com"}, {Type: "dns", Value: "a.example.com"},
	})
	for cn, want := range map[string]int{"": 0, "Example Ltd": 0, "localhost": 0, "-a.example.com": 0, "a.example.com": 1, "192.0.2.7": 1, "a..b": 0} {
		if got := len(order.Identifiers(acmev1.OrderSpec{CommonName: cn})); got != want {
			t.Errorf("common name %q counts %d times", cn, got)
		}
	}
}

func TestNewOrderAsksForDurationAndProfile(t *testing.T) {
	s := flows.NewOrderState()
	s.Order.Spec.Duration = &metav1.Duration{Duration: 48 * 3600e9}
	s.Order.Spec.Profile = "shortlived"
	n := s.Decide(start).NewOrder
	equal(t, n.NotAfter, start.AddDate(0, 0, 2))
	equal(t, n.Profile, "shortlived")
}

// TestASolverThatIsTooLargeIsNoMissingOne: the Order makes no Challenge with it, and does not tell people to change
// selectors.
func TestASolverThatIsTooLargeIsNoMissingOne(t *testing.T) {
	large := flows.DNS01()
	large.DNS01.AcmeDNS.Host = strings.Repeat("x", limits.SolverBytes)
	for want, solvers := range map[cause.Class][]acmev1.ACMEChallengeSolver{
		cause.NoSolver: {}, cause.Class(fault.ClassConfiguration): {large},
	} {
		s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Saw("pending")
		s.Issuer.Solvers = solvers
		a := s.Decide(start)
		if a.Status == nil || a.Status.Cause == nil || a.Status.Cause.Class != string(want) || len(a.Challenges) > 0 {
			t.Errorf("%s: %+v", want, a)
		}
	}
}
