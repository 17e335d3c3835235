package http01_test

import (
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/solver/http01"
)

// orderTLS and challengeTLS are as order and challenge, for TLS-ALPN-01.
func orderTLS(namespace string, names ...string) *acmev1.Order {
	o := order(namespace, names...)
	for i := range o.Status.Authorizations {
		o.Status.Authorizations[i].Challenges[1].Type = "tls-alpn-01"
	}
	return o
}

func challengeTLS(namespace, name string, n int) *acmev1.Challenge {
	c := challenge(namespace, name, n)
	c.Spec.Type, c.Spec.Solver = acmev1.ChallengeTypeTLSALPN01, acmev1.ACMEChallengeSolver{TLSALPN01: &acmev1.TLSALPN01Solver{}}
	return c
}

// A handshake tells no token. It is answered for a Challenge of this type that the scheduler and
// its Order's status allow, and for no other.
func TestIndexAnswersHandshakesOnlyAsAllowed(t *testing.T) {
	const host = "www.example.test"
	for name, c := range map[string]struct {
		change func(*acmev1.Challenge, *acmev1.Order)
		want   bool
	}{
		"in flight":              {func(*acmev1.Challenge, *acmev1.Order) {}, true},
		"parked":                 {func(c *acmev1.Challenge, _ *acmev1.Order) { c.Status.Processing, c.Status.Presented = false, true }, true},
		"queued":                 {func(c *acmev1.Challenge, _ *acmev1.Order) { c.Status.Processing = false }, false},
		"final":                  {func(c *acmev1.Challenge, _ *acmev1.Order) { c.Status.State = acmev1.Valid }, false},
		"HTTP-01":                {func(c *acmev1.Challenge, _ *acmev1.Order) { c.Spec.Type = acmev1.ChallengeTypeHTTP01 }, false},
		"listed as HTTP-01":      {func(_ *acmev1.Challenge, o *acmev1.Order) { o.Status.Authorizations[0].Challenges[1].Type = "http-01" }, false},
		"no owner":               {func(c *acmev1.Challenge, _ *acmev1.Order) { c.OwnerReferences = nil }, false},
		"another Order":          {func(_ *acmev1.Challenge, o *acmev1.Order) { o.UID = "another" }, false},
		"URL not listed":         {func(c *acmev1.Challenge, _ *acmev1.Order) { c.Spec.URL += "0" }, false},
		"token not listed":       {func(_ *acmev1.Challenge, o *acmev1.Order) { o.Status.Authorizations[0].Challenges[1].Token = "x" }, false},
		"name not listed":        {func(_ *acmev1.Challenge, o *acmev1.Order) { o.Status.Authorizations[0].Identifier = "other.test" }, false},
		"Order without a status": {func(_ *acmev1.Challenge, o *acmev1.Order) { o.Status = acmev1.OrderStatus{} }, false},
		"final Order":            {func(_ *acmev1.Challenge, o *acmev1.Order) { o.Status.State = acmev1.Invalid }, false},
		"key is no authorization": {
			func(c *acmev1.Challenge, _ *acmev1.Order) { c.Spec.Key = "other." + thumbprint }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, ch, o := http01.NewIndex(), challengeTLS("ns", host, 0), orderTLS("ns", host)
			c.change(ch, o)
			x.UpsertOrder(o)
			x.UpsertChallenge(ch)
			identifier, key, ok := x.LookupServer(host)
			if ok != c.want || ok && (identifier != host || key != "token-0."+thumbprint) {
				t.Errorf("LookupServer = %q, %q, %v, want %v", identifier, key, ok, c.want)
			}
			if ch.Spec.Type == acmev1.ChallengeTypeTLSALPN01 {
				for _, token := range []string{"token-0", ""} {
					if answer, ok := x.Lookup(host, token); ok {
						t.Errorf("an HTTP request for the token %q is answered %q", token, answer)
					}
				}
			}
		})
	}
}

// Of several Challenges for a name, the one in flight is answered; of parked ones, all replicas
// answer the same, in whatever order they have heard of them.
func TestIndexAnswersTheHandshakeInFlight(t *testing.T) {
	const host = "www.example.test"
	forged := challengeTLS("a", host, 0)
	forged.Spec.Key = "token-0.forged"
	forged.OwnerReferences[0].UID = "uid-c" // the Order of c, which is elsewhere
	for _, names := range []string{"abc", "cba", "bac"} {
		x := http01.NewIndex()
		feed := func(inFlight string) (key string) {
			for namespace := range strings.SplitSeq(names, "") {
				if namespace == "a" {
					x.UpsertChallenge(forged)
					x.UpsertOrder(orderTLS("a", "tenant.test"))
					continue
				}
				n := strings.Index("bc", namespace)
				c := challengeTLS(namespace, host, n)
				c.Status.Presented, c.Status.Processing = true, namespace == inFlight
				x.UpsertChallenge(c)
				x.UpsertOrder(orderTLS(namespace, host, host))
			}
			_, key, _ = x.LookupServer("WWW.example.test.")
			return key
		}
		for inFlight, token := range map[string]string{"b": "token-0", "c": "token-1", "": "token-0"} {
			if got := feed(inFlight); got != token+"."+thumbprint {
				t.Errorf("order %s, %q in flight: %q", names, inFlight, got)
			}
		}
		x.DeleteChallenge("b", "challenge-0")
		if _, key, _ := x.LookupServer(host); key != "token-1."+thumbprint {
			t.Errorf("after one has ended: %q", key)
		}
	}
}

func TestServerName(t *testing.T) {
	for in, want := range map[string]string{
		"Www.Example.TEST": "www.example.test", "192.0.2.1": "1.2.0.192.in-addr.arpa", "::ffff:192.0.2.1": "1.2.0.192.in-addr.arpa",
		// RFC 3596 §2.5
		"2001:db8::abcd": "d.c.b.a." + strings.Repeat("0.", 20) + "8.b.d.0.1.0.0.2.ip6.arpa",
		"::1":            "1." + strings.Repeat("0.", 31) + "ip6.arpa",
	} {
		if got := http01.ServerName(in); got != want {
			t.Errorf("ServerName(%q) = %q, want %q", in, got, want)
		}
	}
}
