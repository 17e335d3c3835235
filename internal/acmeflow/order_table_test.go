package acmeflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
)

type orderSituation struct {
	name  string
	state OrderState
}

func orderSituations() []orderSituation {
	base := newOrderState()
	read := base.saw("pending")
	read.Memory.Authorizations = map[string]RemoteAuthorization{"ca/authz/1": remoteAuthorization("pending")}
	reused := base.saw("ready")
	reused.Memory.Authorizations = map[string]RemoteAuthorization{"ca/authz/1": remoteAuthorization("valid")}
	onlyURL := base
	onlyURL.Order = base.Order.DeepCopy()
	onlyURL.Order.Status = acmev1.OrderStatus{URL: "ca/order/1", State: acmev1.Pending}
	pending := base.stored(acmev1.Pending, "pending")
	noSolver := pending
	noSolver.Issuer.Solvers = nil
	obsolete := pending.owning(acmev1.Pending)
	obsolete.Challenges[0].Name = "web-old"
	shown := pending.owning(acmev1.Pending)
	gone := metav1.NewTime(start)
	shown.Challenges[0].Name, shown.Challenges[0].Status.Presented, shown.Challenges[0].DeletionTimestamp = "web-old", true, &gone
	lagging := pending.owning(acmev1.Valid).saw("pending")
	lagging.Memory.Refused = 1
	refused := pending.owning(acmev1.Valid).saw("ready")
	refused.Memory.Refused, refused.Memory.Refusal = maxRefused, "not ready"
	slow := pending.saw("processing")
	slow.Memory.Finalized, slow.Memory.Remote.RetryAfter = start, time.Minute
	quick := pending.saw("processing")
	quick.Memory.Finalized = start
	downloaded := pending.saw("valid")
	downloaded.Memory.Chains = [][]byte{[]byte("chain")}
	noCSR := pending.owning(acmev1.Valid)
	noCSR.Order.Spec.Request = nil
	issued := base.stored(acmev1.Valid, "pending")
	issued.Order.Status.Certificate = []byte("chain")
	return []orderSituation{
		{"nothing was done", base},
		{"created, not stored", base.saw("pending")},
		{"authorizations read, not stored", read},
		{"all authorized already, not stored", reused},
		{"only the address is stored", onlyURL},
		{"no Challenges yet", pending},
		{"no solver fits", noSolver},
		{"an authorization is invalid from the start", base.stored(acmev1.Pending, "invalid")},
		{"a Challenge is under way", pending.owning(acmev1.Pending).saw("pending")},
		{"a Challenge is under way, after a restart", pending.owning(acmev1.Pending)},
		{"a Challenge is not needed any more", obsolete},
		{"an older Challenge still shows the value", shown},
		{"a Challenge is invalid", pending.owning(acmev1.Invalid)},
		{"a Challenge is errored", pending.owning(acmev1.Errored)},
		{"a Challenge is expired", pending.owning(acmev1.Expired)},
		{"all Challenges are valid", pending.owning(acmev1.Valid)},
		{"all Challenges are valid, there is no CSR", noCSR},
		{"the CA lags behind its authorizations", lagging},
		{"the CA shows ready but keeps refusing", refused},
		{"the CA shows ready", pending.owning(acmev1.Valid).saw("ready")},
		{"the CA is processing", quick},
		{"the CA is processing and asks for a minute", slow},
		{"stored as processing", base.stored(acmev1.Processing, "pending")},
		{"the CA shows invalid", pending.saw("invalid")},
		{"the CA shows valid", pending.saw("valid")},
		{"stored as valid without certificate", base.stored(acmev1.Valid, "pending")},
		{"downloaded", downloaded},
		{"issued, a Challenge is left", issued.owning(acmev1.Valid)},
		{"issued", issued},
		{"failed, a Challenge is left", base.stored(acmev1.Invalid, "pending").owning(acmev1.Pending)},
		{"failed", base.stored(acmev1.Errored, "pending")},
	}
}

type environment struct {
	name     string
	issuer   Readiness
	parked   time.Duration
	after    time.Duration
	deleting bool
}

func environments() []environment {
	return []environment{
		{name: "soon", after: time.Millisecond},
		{name: "after a minute", after: time.Minute},
		{name: "after the CA's expiry", after: 24*time.Hour + time.Second},
		{name: "long after the CA's expiry", after: 26 * time.Hour},
		{name: "issuer starting", issuer: IssuerStarting, after: time.Millisecond},
		{name: "issuer not ready", issuer: IssuerNotReady, after: time.Millisecond},
		{name: "issuer missing", issuer: IssuerMissing, after: time.Millisecond},
		{name: "account parked", parked: time.Hour, after: time.Millisecond},
	}
}

func (s OrderState) in(e environment) OrderState {
	s.Issuer.Readiness = e.issuer
	if e.parked > 0 {
		s.Account.ParkedUntil, s.Account.ParkedReason = start.Add(e.parked), "slow down"
	}
	return s
}

// orderOutcomes are what may become of the step that a situation asks for.
func orderOutcomes(s OrderState) map[string]OrderState {
	all := map[string]OrderState{"(no outcome)": s}
	step := DecideOrder(s, start.Add(time.Minute)).Step
	if !step.External() {
		return all
	}
	flying := s
	flying.Memory = s.Memory.Started(step, start)
	all[fmt.Sprintf("(%s is under way)", step)] = flying
	for _, class := range failureClasses {
		for _, times := range []int{1, 4} {
			failed := s
			for range times {
				failed.Memory = failed.Memory.Started(step, start).After(OrderOutcome{
					Step: step, At: start, Jitter: 0.5, Failure: &Failure{Class: class, Detail: "detail"},
				})
			}
			all[fmt.Sprintf("%s: %s×%d", step, class, times)] = failed
		}
	}
	return all
}

func TestOrderTable(t *testing.T) {
	var b table
	b.WriteString("What DecideOrder does in each situation, for each outcome (step: class×times in a row), in each environment.\n")
	b.WriteString("Written by TestOrderTable -update. Times are relative to the decision.\n")
	var names []string
	for _, e := range environments() {
		names = append(names, e.name)
	}
	for _, situation := range orderSituations() {
		fmt.Fprintf(&b, "\n== %s\n", situation.name)
		outcomes := orderOutcomes(situation.state)
		for _, outcome := range sortedKeys(outcomes) {
			var actions []string
			for _, e := range environments() {
				now := start.Add(e.after)
				s := outcomes[outcome].in(e)
				a := DecideOrder(s, now)
				checkOrderInvariants(t, s, a, now, func() string { return situation.name + " / " + outcome + " / " + e.name })
				actions = append(actions, a.text(now))
			}
			b.row(outcome, names, actions)
		}
		b.end()
	}
	golden(t, "orders.txt", b.String())
}

// checkOrderInvariants holds one decision against what must always be true.
func checkOrderInvariants(t *testing.T, s OrderState, a OrderAction, now time.Time, where func() string) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s: %s\n%s", where(), fmt.Sprintf(format, args...), a.text(now))
	}
	stored := s.Order.Status
	if len(a.Step.String()) > 9 && a.Step.String()[:10] == "OrderStep(" {
		fail("the step has no name")
	}
	if stored.State.IsFailure() || (stored.State == acmev1.Valid && len(stored.Certificate) > 0) {
		if a.Status != nil {
			fail("a final status is written again")
		}
	}
	if a.Step == OrderWait && !a.Wake.IsZero() && !a.Wake.After(now) {
		fail("it wakes in the past: a busy loop")
	}
	if a.Step.External() {
		if s.Memory.Flying != OrderWait {
			fail("a second call while one is under way")
		}
		if a.Step != OrderDeactivate && (s.Issuer.Readiness != IssuerReady || now.Before(s.Account.ParkedUntil)) {
			fail("the CA is called though it must not be")
		}
	}
	if next := a.Status; next != nil {
		if (stored.URL != "" && next.URL != stored.URL) || (len(stored.Certificate) > 0 && string(next.Certificate) != string(stored.Certificate)) {
			fail("what is set once was changed")
		}
		if next.State.IsFailure() && (next.FailureTime == nil || next.Reason == "") {
			fail("a failure without time or reason")
		}
		if apiequality.Semantic.DeepEqual(*next, stored) {
			fail("an unchanged status is written")
		}
		s.Order = s.Order.DeepCopy()
		s.Order.Status = *next
		if again := DecideOrder(s, now); again.Status != nil {
			fail("the same status is not stable: then it writes %q", again.Status.Reason)
		}
	}
	if a.Step == OrderWait && a.Wake.IsZero() && a.Status == nil && !awaitsEvent(s) {
		fail("it waits for nothing")
	}
}

// awaitsEvent reports whether an event will come that decides again.
func awaitsEvent(s OrderState) bool {
	if s.Memory.Flying != OrderWait || s.Issuer.Readiness != IssuerReady {
		return true
	}
	for _, c := range s.Challenges {
		if !c.Status.State.IsFinal() || c.DeletionTimestamp != nil {
			return true
		}
	}
	return false
}

// TestOrderTotality enumerates states that no sane history leads to.
func TestOrderTotality(t *testing.T) {
	n := 0
	states := []acmev1.State{"", "valid", "ready", "pending", "processing", "invalid", "expired", "errored", "nonsense"}
	for _, stored := range states {
		for _, remote := range []string{"", "pending", "ready", "processing", "valid", "invalid", "nonsense"} {
			for _, challenge := range append([]acmev1.State{"none"}, states...) {
				for fill := range 8 {
					s := newOrderState()
					if fill&1 != 0 {
						s = s.stored(stored, "pending")
					}
					s.Order.Status.State = stored
					if fill&2 != 0 {
						s.Order.Status.Certificate = []byte("chain")
					}
					if remote != "" {
						s = s.saw(remote)
					}
					if fill&4 != 0 {
						s.Memory.Chains = [][]byte{nil}
					}
					if challenge != "none" {
						s = s.owning(challenge)
					}
					for name, outcome := range orderOutcomes(s) {
						if strings.HasSuffix(name, "×4") && fill != 1 {
							continue
						}
						for _, e := range environments() {
							n++
							now := start.Add(e.after)
							in := outcome.in(e)
							checkOrderInvariants(t, in, DecideOrder(in, now), now, func() string {
								return fmt.Sprintf("stored %q, remote %q, challenge %q, fill %d, %s, %s", stored, remote, challenge, fill, name, e.name)
							})
						}
					}
				}
			}
		}
	}
	if n < 50_000 {
		t.Fatalf("only %d states were enumerated", n)
	}
}
