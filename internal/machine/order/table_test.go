package order_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/rig/flows"
)

func orderSituations() flows.Situations[flows.OrderState] {
	base := flows.NewOrderState()
	read := base.Saw("pending")
	read.Memory.Authorizations = map[string]acme.Authorization{"ca/authz/1": flows.RemoteAuthorization("pending")}
	reused := base.Saw("ready")
	reused.Memory.Authorizations = map[string]acme.Authorization{"ca/authz/1": flows.RemoteAuthorization("valid")}
	onlyURL := base
	onlyURL.Order = base.Order.DeepCopy()
	onlyURL.Order.Status = acmev1.OrderStatus{URL: "ca/order/1", State: acmev1.Pending}
	pending := base.Stored(acmev1.Pending, "pending")
	noSolver := pending
	noSolver.Issuer.Solvers = nil
	obsolete := pending.Owning(acmev1.Pending)
	obsolete.Challenges[0].Name, obsolete.Challenges[0].Spec.Solver = "web-old", flows.HTTP01()
	shown := pending.Owning(acmev1.Pending)
	gone := metav1.NewTime(start)
	shown.Challenges[0].Name, shown.Challenges[0].Status.Presented, shown.Challenges[0].DeletionTimestamp = "web-old", true, &gone
	lagging := pending.Owning(acmev1.Valid).Saw("pending")
	lagging.Memory.Refused = 1
	lagged := lagging
	lagged.Memory.Polls, lagged.Memory.Refusal = acmeflow.LongPolls, acmeflow.NewFault(fault.ClassNotReady, "not ready")
	refused := pending.Owning(acmev1.Valid).Saw("ready")
	refused.Memory.Refused, refused.Memory.Refusal = order.MaxRefused, acmeflow.NewFault(fault.ClassNotReady, "not ready")
	refusedOnce := pending.Owning(acmev1.Valid).Saw("ready")
	refusedOnce.Memory.Refused, refusedOnce.Memory.Refusal = 1, acmeflow.NewFault(fault.ClassNotReady, "not ready")
	disowned := pending.Owning(acmev1.Errored)
	disowned.Issuer.Solvers = []acmev1.ACMEChallengeSolver{flows.HTTP01()}
	impostor := pending.Owning(acmev1.Pending)
	impostor.Challenges[0].Spec.Solver.DNS01 = &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{Host: "elsewhere.example.net"}}
	slow := pending.Saw("processing")
	slow.Memory.Finalized, slow.Memory.Remote.RetryAfter = start, time.Minute
	quick := pending.Saw("processing")
	quick.Memory.Finalized = start
	downloaded := pending.Saw("valid")
	downloaded.Memory.Chain = []byte("chain")
	noCSR := pending.Owning(acmev1.Valid)
	noCSR.Order.Spec.Request = nil
	replacing := base
	replacing.Order = base.Order.DeepCopy()
	replacing.Order.Spec.Replaces = "aki.serial"
	failedNow := base.Stored(acmev1.Pending, "pending").Owning(acmev1.Errored)
	failedNow.Order.Status.State, failedNow.Order.Status.Reason, failedNow.Order.Status.FailureClass = acmev1.Errored, "because", "Refused"
	at := metav1.NewTime(start)
	failedNow.Order.Status.FailureTime = &at
	deactivated := failedNow
	deactivated.Memory.Deactivated = true
	heir := base
	heir.Made = false
	unwritten := base.Saw("pending")
	unwritten.Memory.Unwritten = true
	told := pending.Owning(acmev1.Pending).Saw("pending").Waiting(fault.ClassSelfCheck, "not seen")
	told.Order.Status.FailureClass, told.Order.Status.Reason = acmev1.FailureClass(fault.ClassSelfCheck), "not seen elsewhere"
	told.Memory.Began, told.Memory.Cause = start, true
	stuck := pending.Saw("processing")
	stuck.Memory.RemoteAt, stuck.Memory.Polls = start.Add(26*time.Hour), acmeflow.LongPolls
	issued := base.Stored(acmev1.Valid, "pending")
	issued.Order.Status.Certificate = []byte("chain")
	return flows.Situations[flows.OrderState]{
		{"nothing was done", base},
		{"nothing was done, by another process", heir},
		{"the address was refused with the rest", unwritten},
		{"nothing was done, it replaces a certificate", replacing},
		{"created, not stored", base.Saw("pending")},
		{"authorizations read, not stored", read},
		{"all authorized already, not stored", reused},
		{"only the address is stored", onlyURL},
		{"no Challenges yet", pending},
		{"no solver fits", noSolver},
		{"an authorization is invalid from the start", base.Stored(acmev1.Pending, "invalid")},
		{"a Challenge is under way", pending.Owning(acmev1.Pending).Saw("pending")},
		{"a Challenge waits", pending.Owning(acmev1.Pending).Saw("pending").Waiting(fault.ClassSelfCheck, "not seen")},
		{"a Challenge waits, which is told", told},
		{"a Challenge is under way, after a restart", pending.Owning(acmev1.Pending)},
		{"a Challenge is not needed any more", obsolete},
		{"an older Challenge still shows the value", shown},
		{"a Challenge is invalid", pending.Owning(acmev1.Invalid)},
		{"a Challenge is errored", pending.Owning(acmev1.Errored)},
		{"a Challenge is errored, and its solver is not the issuer's any more", disowned},
		{"a Challenge has the name of the one that is needed, and another solver", impostor},
		{"a Challenge is expired", pending.Owning(acmev1.Expired)},
		{"all Challenges are valid", pending.Owning(acmev1.Valid)},
		{"all Challenges are valid, there is no CSR", noCSR},
		{"the CA lags behind its authorizations", lagging},
		{"the CA lags behind for five minutes", lagged},
		{"the CA shows ready but has refused", refusedOnce},
		{"the CA shows ready but keeps refusing", refused},
		{"the CA shows ready", pending.Owning(acmev1.Valid).Saw("ready")},
		{"the CA is processing", quick},
		{"the CA is processing and asks for a minute", slow},
		{"the CA is processing, and was still after the order's expiry", stuck},
		{"stored as processing", base.Stored(acmev1.Processing, "pending")},
		{"the CA shows invalid", pending.Saw("invalid")},
		{"the CA shows valid", pending.Saw("valid")},
		{"stored as valid without certificate", base.Stored(acmev1.Valid, "pending")},
		{"downloaded", downloaded},
		{"issued, a Challenge is left", issued.Owning(acmev1.Valid)},
		{"issued", issued},
		{"failed, authorizations are pending", failedNow},
		{"failed, authorizations were deactivated", deactivated},
		{"failed, a Challenge is left", base.Stored(acmev1.Invalid, "pending").Owning(acmev1.Pending)},
		{"failed", base.Stored(acmev1.Errored, "pending")},
	}
}

func orderTrial() flows.Trial[flows.OrderState, order.Memory, order.Action] {
	return flows.Trial[flows.OrderState, order.Memory, order.Action]{
		Name: "order.Decide", File: "orders.txt", Situations: orderSituations(), Environments: flows.Environments(),
		In: func(s flows.OrderState, e flows.Environment) flows.OrderState {
			e.Apply(&s.Issuer, &s.Account)
			return s
		},
		Decide: flows.OrderState.Decide, Text: flows.Text[order.Action], Check: flows.CheckOrder,
		Memory:  func(s *flows.OrderState) *order.Memory { return &s.Memory },
		Step:    func(a order.Action) flows.Step { return a.Step },
		Started: func(m order.Memory, a order.Action) order.Memory { return m.Started(a.Step, start) },
		Failed: func(m order.Memory, a order.Action, f *fault.Fault) order.Memory {
			return m.After(order.Outcome{Step: a.Step, At: start, Jitter: 0.5, Failure: f})
		},
	}
}

func TestOrderTable(t *testing.T) { orderTrial().Run(t) }

// TestOrderTotality enumerates states that no sane history leads to.
func TestOrderTotality(t *testing.T) {
	t.Parallel()
	n, x := 0, orderTrial()
	states := []acmev1.State{"", "valid", "ready", "pending", "processing", "invalid", "expired", "errored", "nonsense"}
	for _, stored := range states {
		for _, remote := range []acme.Status{"", "pending", "ready", "processing", "valid", "invalid", "nonsense"} {
			for _, challenge := range append([]acmev1.State{"none"}, states...) {
				for fill := range 8 {
					s := flows.NewOrderState()
					if fill&1 != 0 {
						s = s.Stored(stored, "pending")
					}
					s.Order.Status.State = stored
					if fill&2 != 0 {
						s.Order.Status.Certificate = []byte("chain")
					}
					if remote != "" {
						s = s.Saw(remote)
					}
					if fill&4 != 0 {
						s.Memory.Chain = []byte("chain")
					}
					if challenge != "none" {
						s = s.Owning(challenge)
					}
					n += x.Examine(t, s, fill == 1, x.Environments, func() string {
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

// BenchmarkDecide is what one look at an Order costs, in each situation of the table.
func BenchmarkDecide(b *testing.B) {
	situations := orderSituations()
	now := start.Add(time.Second)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		situations[i%len(situations)].State.Decide(now)
	}
}
