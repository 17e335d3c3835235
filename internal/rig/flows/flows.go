// Package flows makes Orders and Challenges in all situations, and holds what is decided about them against what must
// always be true. It is for the tests of internal/machine/order, internal/machine/challenge and
// internal/machine/acmeflow. Only tests import it.
package flows

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
)

// Main runs the tests of a package with rare garbage collections: the heap is small, and each collection stops what is
// only counting.
func Main(m *testing.M) {
	debug.SetGCPercent(800)
	m.Run() // its caller ends the process with the result
}

// Start is when all that happens begins.
func Start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// Equal fails a test in which two values have different texts.
func Equal(t *testing.T, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}

// DNS01 is a solver for DNS-01.
func DNS01() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{Host: "auth.example.net"}}}
}

// HTTP01 is a solver for HTTP-01.
func HTTP01() acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{Class: new("nginx")}}}
}

// ReadyIssuer is an issuer that can be used.
func ReadyIssuer() acmeflow.Issuer {
	return acmeflow.Issuer{Readiness: acmeflow.IssuerReady, Solvers: []acmev1.ACMEChallengeSolver{DNS01()}}
}

// NewOrder is an Order about which nothing was done.
func NewOrder() *acmev1.Order {
	return &acmev1.Order{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", CreationTimestamp: metav1.NewTime(Start())},
		Spec: acmev1.OrderSpec{
			Request: []byte("csr"), IssuerRef: cmmeta.IssuerReference{Name: "acme"}, DNSNames: []string{"a.example.com"},
		},
	}
}

// OrderState is a state of an Order, and what makes other states of it.
type OrderState struct{ order.State }

// NewOrderState is that of NewOrder.
func NewOrderState() OrderState {
	return OrderState{order.State{
		Order: NewOrder(), Made: true, Issuer: ReadyIssuer(), Account: acmeflow.AccountState{Thumbprint: "thumb", URL: "ca/acct/1"}, Settings: acmeflow.DefaultSettings(),
	}}
}

// Decide is order.Decide.
func (s OrderState) Decide(now time.Time) order.Action { return order.Decide(s.State, now) }

// RemoteOrder is an order as the CA shows it.
func RemoteOrder(status acme.Status) *acme.Order {
	o := &acme.Order{
		URL: "ca/order/1", Finalize: "ca/finalize/1", Status: status, Authorizations: []string{"ca/authz/1"},
		Expires: Start().Add(24 * time.Hour),
	}
	if status == "valid" {
		o.Certificate = "ca/cert/1"
	}
	return o
}

// Problem is what a CA says of a failure; nil for no text.
func Problem(text string) *acme.Problem {
	if text == "" {
		return nil
	}
	i := strings.LastIndex(text, ": ")
	return &acme.Problem{Type: text[:max(i, 0)], Detail: strings.TrimPrefix(text[max(i, 0):], ": ")}
}

// RemoteAuthorization is an authorization as the CA shows it.
func RemoteAuthorization(status acme.Status) acme.Authorization {
	return acme.Authorization{
		URL: "ca/authz/1", Status: status, Identifier: acme.DNS("a.example.com"), Expires: Start().Add(24 * time.Hour),
		Challenges: []acme.Challenge{
			{URL: "ca/chall/dns", Type: "dns-01", Token: "tok", Status: "pending"},
			{URL: "ca/chall/http", Type: "http-01", Token: "tok", Status: "pending"},
		},
	}
}

// Stored gives the order what the CA has shown, as if it had been written.
func (s OrderState) Stored(state acmev1.State, initial acme.Status) OrderState {
	s.Order = s.Order.DeepCopy()
	s.Order.Status = acmev1.OrderStatus{
		URL: "ca/order/1", FinalizeURL: "ca/finalize/1", State: state,
		Authorizations: []acmev1.ACMEAuthorization{order.StoredAuthorization(RemoteAuthorization(initial))},
	}
	return s
}

// Saw lets the process remember an order.
func (s OrderState) Saw(status acme.Status) OrderState {
	s.Memory.Remote, s.Memory.RemoteAt = RemoteOrder(status), Start()
	return s
}

// Owning adds the Challenge that the order needs, in a state.
func (s OrderState) Owning(state acmev1.State) OrderState {
	c := s.needed()
	c.Status.State = state
	if state.IsFailure() {
		c.Status.Reason, c.Status.FailureClass = "because", "Credential"
	}
	s.Order = s.Order.DeepCopy() // a situation may change it
	s.Challenges = append(slices.Clone(s.Challenges), c)
	return s
}

// Waiting gives the Order's Challenge something to wait for.
func (s OrderState) Waiting(class fault.Class, reason string) OrderState {
	c := s.Challenges[len(s.Challenges)-1].DeepCopy()
	c.Status.State, c.Status.FailureClass, c.Status.Reason = acmev1.Pending, acmev1.FailureClass(class), reason
	s.Challenges = append(s.Challenges[:len(s.Challenges)-1:len(s.Challenges)-1], c)
	return s
}

// needed is the Challenge that the order needs.
func (s OrderState) needed() *acmev1.Challenge {
	s.Memory, s.Challenges = order.Memory{}, nil
	return s.Stored(acmev1.Pending, "pending").Decide(Start()).Challenges[0]
}

// ChallengeState is a state of a Challenge, and what makes other states of it.
type ChallengeState struct{ challenge.State }

// NewChallengeState is that of the Challenge that NewOrder needs: nothing was done about it.
func NewChallengeState() ChallengeState {
	c := NewOrderState().needed()
	c.CreationTimestamp = metav1.NewTime(Start())
	return ChallengeState{challenge.State{Challenge: c, Issuer: ReadyIssuer(), Account: acmeflow.AccountState{Thumbprint: "thumb", URL: "ca/acct/1"}, Settings: acmeflow.DefaultSettings()}}
}

// Decide is challenge.Decide.
func (s ChallengeState) Decide(now time.Time) challenge.Action { return challenge.Decide(s.State, now) }

// With changes a copy of the Challenge.
func (s ChallengeState) With(f func(*acmev1.Challenge)) ChallengeState {
	s.Challenge = s.Challenge.DeepCopy()
	f(s.Challenge)
	return s
}

// Read lets the process remember the authorization, with the challenge in a status.
func (s ChallengeState) Read(authorization, status acme.Status) ChallengeState {
	a := RemoteAuthorization(authorization)
	a.Challenges[0].Status = status
	m := s.Memory.After(challenge.Outcome{Step: challenge.Fetch, At: Start(), Authorization: &a})
	s.Memory.Authorization, s.Memory.FetchedAt, s.Memory.Told = m.Authorization, m.FetchedAt, m.Told
	return s
}

// Processing gives the Challenge its slot.
func (s ChallengeState) Processing() ChallengeState {
	return s.With(func(c *acmev1.Challenge) { c.Status.Processing = true })
}

// Presented says in the status that the answer is presented.
func (s ChallengeState) Presented() ChallengeState {
	return s.With(func(c *acmev1.Challenge) {
		at := metav1.NewTime(Start())
		c.Status.State, c.Status.Presented, c.Status.PresentedAt = acmev1.Pending, true, &at
	})
}

// Limited makes the solver do something once the self check has failed for a minute.
func (s ChallengeState) Limited(then acmev1.SelfCheckDeadlineAction) ChallengeState {
	return s.With(func(c *acmev1.Challenge) {
		c.Spec.Solver.SelfCheckDeadline = &acmev1.SelfCheckDeadline{After: metav1.Duration{Duration: time.Minute}, Then: then}
	})
}

// Deleted is the state once the Challenge is being deleted.
func (s ChallengeState) Deleted() ChallengeState {
	return s.With(func(c *acmev1.Challenge) {
		at := metav1.NewTime(Start())
		c.DeletionTimestamp = &at
	})
}

// Final is a state in which the Challenge has ended.
func (s ChallengeState) Final(state acmev1.State) ChallengeState {
	return s.Presented().With(func(c *acmev1.Challenge) { c.Status.State, c.Status.Reason = state, "because" })
}

// Bare takes the finalizers away.
func (s ChallengeState) Bare() ChallengeState {
	return s.With(func(c *acmev1.Challenge) { c.Finalizers = nil })
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

func eventText(e *acmeflow.Event) string {
	if e == nil {
		return ""
	}
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	return fmt.Sprintf("; event %s %s", kind, e.Reason)
}

// Text is an action in a line, with times that are relative to now.
func Text[A order.Action | challenge.Action](a A, now time.Time) string {
	switch a := any(a).(type) {
	case order.Action:
		return orderText(a, now)
	case challenge.Action:
		return challengeText(a, now)
	}
	return ""
}

func orderText(a order.Action, now time.Time) string {
	out := a.Step.String()
	if n := len(a.NewOrder.Identifiers); n > 0 {
		out += fmt.Sprintf(" (%d identifiers)", n)
	}
	if a.Step == order.Wait {
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
	return out + eventText(a.Event)
}

func challengeText(a challenge.Action, now time.Time) string {
	out := a.Step.String()
	if a.Step == challenge.Wait {
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
	return out + eventText(a.Event)
}
