package order_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/rig/flows"
)

// causeWalk is an Order of which each status is written.
type causeWalk struct {
	flows.OrderState

	t *testing.T
}

// at decides, writes what is decided, and returns the reason that was written; empty for no write.
func (w *causeWalk) at(now time.Time) (reason string, wake time.Time) {
	w.t.Helper()
	w.Memory = w.Memory.Seen(now)
	a := w.Decide(now)
	flows.CheckOrder(w.t, w.OrderState, a, now, func() string { return "a cause" })
	if a.Status == nil {
		return "", a.Wake
	}
	w.Order = w.Order.DeepCopy()
	w.Order.Status = *a.Status
	w.Memory = w.Memory.Wrote(a, now)
	return a.Status.Reason, a.Wake
}

// TestTheCauseTravelsUp: an Order says what its Challenge waits for once that has lasted, when the class changes at
// once, in other words after ten minutes; and it writes nothing only to take the words back.
func TestTheCauseTravelsUp(t *testing.T) {
	w := &causeWalk{flows.NewOrderState().Stored(acmev1.Pending, "pending").Saw("pending").Owning(acmev1.Pending), t}
	w.Order.CreationTimestamp = metav1.NewTime(start)
	told := func(now time.Time, want string) (wake time.Time) {
		t.Helper()
		reason, wake := w.at(now)
		if want == "" && reason != "" || !strings.HasSuffix(reason, want) {
			t.Errorf("after %s it says %q, want %q", now.Sub(start), reason, want)
		}
		return wake
	}
	s := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }

	w.OrderState = w.Waiting(fault.ClassSelfCheck, "ns1 says NXDOMAIN")
	equal(t, told(s(5), `domain "a.example.com" (DNS-01) waits: ns1 says NXDOMAIN`), s(5).Add(order.CauseAgain))
	equal(t, w.Order.Status.FailureClass, acmev1.FailureClass(fault.ClassSelfCheck))
	equal(t, *w.Order.Status.Cause, cmmeta.Cause{Class: "SelfCheck", Subject: "a.example.com", Message: "ns1 says NXDOMAIN"})

	w.OrderState = w.Waiting(fault.ClassSelfCheck, "ns2 says NXDOMAIN")
	told(s(6), "")
	told(s(600), "")
	equal(t, told(s(605), "ns2 says NXDOMAIN"), s(1205))
	equal(t, told(s(1205), ""), s(1805)) // the words are the same

	w.OrderState = w.Waiting(fault.ClassCredential, "403")
	told(s(1206), "403")
	w.OrderState = w.Waiting(fault.ClassSolver, "no zone")
	equal(t, told(s(1207), ""), s(1206).Add(order.CausePause)) // another cause so soon waits
	w.OrderState = w.Waiting(fault.ClassCredential, "403")
	equal(t, w.Order.Status.FailureClass, acmev1.FailureClass(fault.ClassCredential))

	w.OrderState = w.Waiting("", "")
	told(s(1207), "")
	w.Memory = order.Memory{} // a new process, which knows the order no better
	w.OrderState = w.Waiting(fault.ClassCredential, "401").Saw("pending")
	told(s(1210), "")
	told(s(1810), "401")

	w.OrderState = w.Waiting("", "")
	told(s(1811), "")
	w.OrderState.Challenges[0].Status.State = acmev1.Valid
	equal(t, w.Decide(s(1812)).Step, order.Finalize)
	w.Memory.Chain = []byte("chain")
	a := w.Decide(s(1813))
	equal(t, []string{a.Status.Reason, string(a.Status.FailureClass)}, []string{"", ""})
}

// TestTheWorstCauseIsTold: of several Challenges the Order tells of the one that a person has to mend, and of two
// that wait for the same always of the same one: the first by name, or the one that it has told of already.
func TestTheWorstCauseIsTold(t *testing.T) {
	s := flows.NewOrderState().Stored(acmev1.Pending, "pending").Owning(acmev1.Pending).Waiting(fault.ClassSelfCheck, "not seen")
	like := func(name string, class fault.Class, state acmev1.State) *acmev1.Challenge {
		c := s.Challenges[0].DeepCopy()
		c.Name, c.Spec.DNSName, c.Status.FailureClass, c.Status.State = name, name+".example.com", acmev1.FailureClass(class), state
		return c
	}
	s.Challenges = append(s.Challenges, like("y", fault.ClassCredential, acmev1.Errored), like("z", fault.ClassSolver, acmev1.Pending),
		like("x", fault.ClassSolver, acmev1.Pending), like("a", "", acmev1.Pending), like("b", "SomethingNew", acmev1.Pending))
	lesser, z := order.About(s.Challenges[0]).Cause(""), order.About(s.Challenges[2]).Cause("")
	for range 2 {
		equal(t, order.FirstCause(s.Challenges, nil).Name, "x")
		equal(t, order.FirstCause(s.Challenges, z).Name, "z")
		equal(t, order.FirstCause(s.Challenges, lesser).Name, "x")
		slices.Reverse(s.Challenges)
	}
	equal(t, slices.Sorted(slices.Values(order.Causes())), slices.Sorted(slices.Values(flows.ShownClasses())))
}

// TestSaid: how a reason ends can be cut off again, by what is stored of it, and nothing else is.
func TestSaid(t *testing.T) {
	const what = "no such zone; really"
	equal(t, acmeflow.Said(acmeflow.WithEnd(what, acmeflow.WithBackOff), acmeflow.WithBackOff), what)
	equal(t, acmeflow.Said(acmeflow.WithEnd(what, ""), ""), what)
	s := flows.NewChallengeState().Processing().Read("pending", "pending")
	s.Memory = s.Memory.After(challenge.Outcome{Step: challenge.Present, At: start, Failure: flows.After(time.Hour, fault.ClassSolver)})
	status := s.Decide(start).Status
	equal(t, acmeflow.Said(status.Reason, status.ReasonEnd), "Error presenting challenge: detail")
	equal(t, status.Reason, "Error presenting challenge: detail; retrying at 2026-01-01T01:00:00Z")
	equal(t, order.About(&acmev1.Challenge{Status: *status}).Cause("").Message, "Error presenting challenge: detail")
}
