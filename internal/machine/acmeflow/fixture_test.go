package acmeflow

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/machine/selection"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func equal(t *testing.T, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}

func ref[T any](v T) *T { return &v }

func dns01() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{Host: "auth.example.net"}}}
}

func readyIssuer() Issuer {
	return Issuer{Readiness: IssuerReady, Solvers: []acmev1.ACMEChallengeSolver{dns01()}}
}

func newOrderObject() *acmev1.Order {
	return &acmev1.Order{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", CreationTimestamp: metav1.NewTime(start)},
		Spec: acmev1.OrderSpec{
			Request: []byte("csr"), IssuerRef: cmmeta.IssuerReference{Name: "acme"}, DNSNames: []string{"a.example.com"},
		},
	}
}

func newOrderState() OrderState {
	return OrderState{
		Order: newOrderObject(), Made: true, Issuer: readyIssuer(), Account: AccountState{Thumbprint: "thumb", URL: "ca/acct/1"}, Settings: DefaultSettings(),
	}
}

func remoteOrder(status acme.Status) *acme.Order {
	o := &acme.Order{
		URL: "ca/order/1", Finalize: "ca/finalize/1", Status: status, Authorizations: []string{"ca/authz/1"},
		Expires: start.Add(24 * time.Hour),
	}
	if status == "valid" {
		o.Certificate = "ca/cert/1"
	}
	return o
}

// problem is what a CA says of a failure; nil for no text.
func problem(text string) *acme.Problem {
	if text == "" {
		return nil
	}
	i := strings.LastIndex(text, ": ")
	return &acme.Problem{Type: text[:max(i, 0)], Detail: strings.TrimPrefix(text[max(i, 0):], ": ")}
}

func remoteAuthorization(status acme.Status) acme.Authorization {
	return acme.Authorization{
		URL: "ca/authz/1", Status: status, Identifier: acme.DNS("a.example.com"), Expires: start.Add(24 * time.Hour),
		Challenges: []acme.Challenge{
			{URL: "ca/chall/dns", Type: "dns-01", Token: "tok", Status: "pending"},
			{URL: "ca/chall/http", Type: "http-01", Token: "tok", Status: "pending"},
		},
	}
}

// buildChallenge is the Challenge for one authorization of an Order.
func buildChallenge(o *acmev1.Order, a acmev1.ACMEAuthorization, solvers *selection.Solvers, account AccountState) (*acmev1.Challenge, error) {
	spec, chosen, err := challengeSpec(o, a, solvers, account)
	if err != nil {
		return nil, err
	}
	return newChallenge(o, spec, chosen.Why, account)
}

// stored gives the order what the CA has shown, as if it had been written.
func (s OrderState) stored(state acmev1.State, initial acme.Status) OrderState {
	s.Order = s.Order.DeepCopy()
	s.Order.Status = acmev1.OrderStatus{
		URL: "ca/order/1", FinalizeURL: "ca/finalize/1", State: state,
		Authorizations: []acmev1.ACMEAuthorization{storedAuthorization(remoteAuthorization(initial))},
	}
	return s
}

// saw lets the process remember an order.
func (s OrderState) saw(status acme.Status) OrderState {
	s.Memory.Remote, s.Memory.RemoteAt = remoteOrder(status), start
	return s
}

// owning adds the Challenge that the order needs, in a state.
func (s OrderState) owning(state acmev1.State) OrderState {
	c, err := buildChallenge(s.Order, storedAuthorization(remoteAuthorization("pending")), selection.For(nil, s.Issuer.Solvers), s.Account)
	if err != nil {
		panic(err)
	}
	c.Status.State = state
	if state.IsFailure() {
		c.Status.Reason, c.Status.FailureClass = "because", "Credential"
	}
	s.Order = s.Order.DeepCopy() // a situation may change it
	s.Challenges = append(slices.Clone(s.Challenges), c)
	return s
}

func relative(at, now time.Time) string {
	switch {
	case at.IsZero():
		return "-"
	case at.Before(now):
		return "PAST"
	default:
		return "+" + at.Sub(now).Round(time.Millisecond).String()
	}
}

func (e *Event) text() string {
	if e == nil {
		return ""
	}
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	return fmt.Sprintf("; event %s %s", kind, e.Reason)
}

func (a OrderAction) text(now time.Time) string {
	out := a.Step.String()
	if n := len(a.NewOrder.Identifiers); n > 0 {
		out += fmt.Sprintf(" (%d identifiers)", n)
	}
	if a.Step == OrderWait {
		out += " until " + relative(a.Wake, now)
	}
	if a.Status != nil {
		out += fmt.Sprintf("; write state=%q reason=%q", a.Status.State, a.Status.Reason)
		if class := a.Status.FailureClass; class != "" {
			out += fmt.Sprintf(" class=%s", class)
		}
		if problem := a.Status.ProblemType; problem != "" {
			out += fmt.Sprintf(" problem=%s", acme.CodeOf(problem))
		}
	}
	return out + a.Event.text()
}

func (a ChallengeAction) text(now time.Time) string {
	out := a.Step.String()
	if a.Step == ChallengeWait {
		out += " until " + relative(a.Wake, now)
	}
	if a.Status != nil {
		out += fmt.Sprintf("; write state=%q processing=%t presented=%t reason=%q",
			a.Status.State, a.Status.Processing, a.Status.Presented, a.Status.Reason)
		if class := a.Status.FailureClass; class != "" {
			out += fmt.Sprintf(" class=%s", class)
		}
		if problem := a.Status.ProblemType; problem != "" {
			out += fmt.Sprintf(" problem=%s", acme.CodeOf(problem))
		}
	}
	if a.Yield {
		out += "; yield"
	}
	if a.Ready {
		out += "; ready"
	}
	if a.NotBefore.After(now) {
		out += "; not before " + relative(a.NotBefore, now)
	}
	return out + a.Event.text()
}
