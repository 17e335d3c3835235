package acmeflow

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

func orderSituations() []situation[OrderState] {
	base := newOrderState()
	read := base.saw("pending")
	read.Memory.Authorizations = map[string]acme.Authorization{"ca/authz/1": remoteAuthorization("pending")}
	reused := base.saw("ready")
	reused.Memory.Authorizations = map[string]acme.Authorization{"ca/authz/1": remoteAuthorization("valid")}
	onlyURL := base
	onlyURL.Order = base.Order.DeepCopy()
	onlyURL.Order.Status = acmev1.OrderStatus{URL: "ca/order/1", State: acmev1.Pending}
	pending := base.stored(acmev1.Pending, "pending")
	noSolver := pending
	noSolver.Issuer.Solvers = nil
	obsolete := pending.owning(acmev1.Pending)
	obsolete.Challenges[0].Name, obsolete.Challenges[0].Spec.Solver = "web-old", http01()
	shown := pending.owning(acmev1.Pending)
	gone := metav1.NewTime(start)
	shown.Challenges[0].Name, shown.Challenges[0].Status.Presented, shown.Challenges[0].DeletionTimestamp = "web-old", true, &gone
	lagging := pending.owning(acmev1.Valid).saw("pending")
	lagging.Memory.Refused = 1
	lagged := lagging
	lagged.Memory.Polls, lagged.Memory.Refusal = longPolls, failure(fault.ClassNotReady, "not ready")
	refused := pending.owning(acmev1.Valid).saw("ready")
	refused.Memory.Refused, refused.Memory.Refusal = maxRefused, failure(fault.ClassNotReady, "not ready")
	refusedOnce := pending.owning(acmev1.Valid).saw("ready")
	refusedOnce.Memory.Refused, refusedOnce.Memory.Refusal = 1, failure(fault.ClassNotReady, "not ready")
	disowned := pending.owning(acmev1.Errored)
	disowned.Issuer.Solvers = []acmev1.ACMEChallengeSolver{http01()}
	impostor := pending.owning(acmev1.Pending)
	impostor.Challenges[0].Spec.Solver.DNS01 = &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{Host: "elsewhere.example.net"}}
	slow := pending.saw("processing")
	slow.Memory.Finalized, slow.Memory.Remote.RetryAfter = start, time.Minute
	quick := pending.saw("processing")
	quick.Memory.Finalized = start
	downloaded := pending.saw("valid")
	downloaded.Memory.Chain = []byte("chain")
	noCSR := pending.owning(acmev1.Valid)
	noCSR.Order.Spec.Request = nil
	replacing := base
	replacing.Order = base.Order.DeepCopy()
	replacing.Order.Spec.Replaces = "aki.serial"
	failedNow := base.stored(acmev1.Pending, "pending").owning(acmev1.Errored)
	failedNow.Order.Status.State, failedNow.Order.Status.Reason, failedNow.Order.Status.FailureClass = acmev1.Errored, "because", "Refused"
	at := metav1.NewTime(start)
	failedNow.Order.Status.FailureTime = &at
	deactivated := failedNow
	deactivated.Memory.Deactivated = true
	heir := base
	heir.Made = false
	unwritten := base.saw("pending")
	unwritten.Memory.Unwritten = true
	told := pending.owning(acmev1.Pending).saw("pending").waiting(fault.ClassSelfCheck, "not seen")
	told.Order.Status.FailureClass, told.Order.Status.Reason = acmev1.FailureClass(fault.ClassSelfCheck), "not seen elsewhere"
	told.Memory.Began, told.Memory.Cause = start, true
	stuck := pending.saw("processing")
	stuck.Memory.RemoteAt, stuck.Memory.Polls = start.Add(26*time.Hour), longPolls
	issued := base.stored(acmev1.Valid, "pending")
	issued.Order.Status.Certificate = []byte("chain")
	return []situation[OrderState]{
		{"nothing was done", base},
		{"nothing was done, by another process", heir},
		{"the address was refused with the rest", unwritten},
		{"nothing was done, it replaces a certificate", replacing},
		{"created, not stored", base.saw("pending")},
		{"authorizations read, not stored", read},
		{"all authorized already, not stored", reused},
		{"only the address is stored", onlyURL},
		{"no Challenges yet", pending},
		{"no solver fits", noSolver},
		{"an authorization is invalid from the start", base.stored(acmev1.Pending, "invalid")},
		{"a Challenge is under way", pending.owning(acmev1.Pending).saw("pending")},
		{"a Challenge waits", pending.owning(acmev1.Pending).saw("pending").waiting(fault.ClassSelfCheck, "not seen")},
		{"a Challenge waits, which is told", told},
		{"a Challenge is under way, after a restart", pending.owning(acmev1.Pending)},
		{"a Challenge is not needed any more", obsolete},
		{"an older Challenge still shows the value", shown},
		{"a Challenge is invalid", pending.owning(acmev1.Invalid)},
		{"a Challenge is errored", pending.owning(acmev1.Errored)},
		{"a Challenge is errored, and its solver is not the issuer's any more", disowned},
		{"a Challenge has the name of the one that is needed, and another solver", impostor},
		{"a Challenge is expired", pending.owning(acmev1.Expired)},
		{"all Challenges are valid", pending.owning(acmev1.Valid)},
		{"all Challenges are valid, there is no CSR", noCSR},
		{"the CA lags behind its authorizations", lagging},
		{"the CA lags behind for five minutes", lagged},
		{"the CA shows ready but has refused", refusedOnce},
		{"the CA shows ready but keeps refusing", refused},
		{"the CA shows ready", pending.owning(acmev1.Valid).saw("ready")},
		{"the CA is processing", quick},
		{"the CA is processing and asks for a minute", slow},
		{"the CA is processing, and was still after the order's expiry", stuck},
		{"stored as processing", base.stored(acmev1.Processing, "pending")},
		{"the CA shows invalid", pending.saw("invalid")},
		{"the CA shows valid", pending.saw("valid")},
		{"stored as valid without certificate", base.stored(acmev1.Valid, "pending")},
		{"downloaded", downloaded},
		{"issued, a Challenge is left", issued.owning(acmev1.Valid)},
		{"issued", issued},
		{"failed, authorizations are pending", failedNow},
		{"failed, authorizations were deactivated", deactivated},
		{"failed, a Challenge is left", base.stored(acmev1.Invalid, "pending").owning(acmev1.Pending)},
		{"failed", base.stored(acmev1.Errored, "pending")},
	}
}

func orderTrial() trial[OrderState, OrderMemory, OrderAction] {
	return trial[OrderState, OrderMemory, OrderAction]{
		name: "DecideOrder", file: "orders.txt", situations: orderSituations(), environments: environments(),
		in: func(s OrderState, e environment) OrderState {
			e.apply(&s.Issuer, &s.Account)
			return s
		},
		decide: DecideOrder, text: OrderAction.text, check: checkOrderInvariants,
		memory: func(s *OrderState) *OrderMemory { return &s.Memory },
		step: func(a OrderAction) string {
			if !a.Step.External() {
				return ""
			}
			return a.Step.String()
		},
		started: func(m OrderMemory, a OrderAction) OrderMemory { return m.Started(a.Step, start) },
		failed: func(m OrderMemory, a OrderAction, f *fault.Fault) OrderMemory {
			return m.After(OrderOutcome{Step: a.Step, At: start, Jitter: 0.5, Failure: f})
		},
	}
}

func TestOrderTable(t *testing.T) { orderTrial().run(t) }

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
		if s.Memory.Running != OrderWait {
			fail("a second call while one is under way")
		}
		if s.Account.URL == "" {
			fail("a call without an account")
		}
		if a.Step == OrderDeactivate && now.Before(s.Account.ParkedUntil) {
			fail("the CA is called though the account is parked")
		}
		if a.Step != OrderDeactivate && (s.Issuer.Readiness != IssuerReady || now.Before(s.Account.ParkedUntil)) {
			fail("the CA is called though it must not be")
		}
	}
	if a.Step == OrderCreate && !s.Made && s.Memory.WroteAt.IsZero() {
		fail("it orders, and does not know whether the address can be stored")
	}
	if r := s.Memory.Remote; a.Step.External() && r != nil && r.URL != "" && stored.URL == "" && (a.Status == nil || a.Status.URL == "") &&
		(a.Step != OrderFetchAuthorizations || !s.Made || len(r.Authorizations) > 1) {
		fail("the address of the order is not stored first")
	}
	checkRewordedOrder(t, s, a, now, fail)
	if next := a.Status; next != nil {
		if next.FailureClass != "" && (next.Reason == "" || !slices.Contains(shownClasses(), fault.Class(next.FailureClass))) {
			fail("the class %q without a reason, or not one that is shown", next.FailureClass)
		}
		if (stored.URL != "" && next.URL != stored.URL) || (len(stored.Certificate) > 0 && string(next.Certificate) != string(stored.Certificate)) {
			fail("what is set once was changed")
		}
		if next.State.IsFailure() && (next.FailureTime == nil || next.Reason == "" || next.FailureClass == "") {
			fail("a failure without time, reason or class")
		}
		if apiequality.Semantic.DeepEqual(*next, stored) {
			fail("an unchanged status is written")
		}
		s.Order = s.Order.DeepCopy()
		s.Order.Status = *next
		if again := DecideOrder(s, now); again.Status != nil && !s.Memory.Unwritten {
			fail("the same status is not stable: then it writes %q", again.Status.Reason)
		}
	}
	if a.Step == OrderWait && a.Wake.IsZero() && a.Status == nil && !awaitsEvent(s) {
		fail("it waits for nothing")
	}
}

// awaitsEvent reports whether an event will come that decides again.
func awaitsEvent(s OrderState) bool {
	if s.Memory.Running != OrderWait || s.Issuer.Readiness != IssuerReady {
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
	t.Parallel()
	n, x := 0, orderTrial()
	states := []acmev1.State{"", "valid", "ready", "pending", "processing", "invalid", "expired", "errored", "nonsense"}
	for _, stored := range states {
		for _, remote := range []acme.Status{"", "pending", "ready", "processing", "valid", "invalid", "nonsense"} {
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
						s.Memory.Chain = []byte("chain")
					}
					if challenge != "none" {
						s = s.owning(challenge)
					}
					n += x.examine(t, s, fill == 1, x.environments, func() string {
						return fmt.Sprintf("stored %q, remote %q, challenge %q, fill %d", stored, remote, challenge, fill)
					})
				}
			}
		}
	}
	if n < 50_000 {
		t.Fatalf("only %d states were enumerated", n)
	}
}
