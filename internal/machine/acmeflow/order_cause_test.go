package acmeflow

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
)

// waiting gives the Order's Challenge something to wait for.
func (s OrderState) waiting(class fault.Class, reason string) OrderState {
	c := s.Challenges[len(s.Challenges)-1].DeepCopy()
	c.Status.State, c.Status.FailureClass, c.Status.Reason = acmev1.Pending, acmev1.FailureClass(class), reason
	s.Challenges = append(s.Challenges[:len(s.Challenges)-1:len(s.Challenges)-1], c)
	return s
}

// causeWalk is an Order of which each status is written.
type causeWalk struct {
	OrderState

	t *testing.T
}

// at decides, writes what is decided, and returns the reason that was written; empty for no write.
func (w *causeWalk) at(now time.Time) (reason string, wake time.Time) {
	w.t.Helper()
	w.Memory = w.Memory.Seen(now)
	a := DecideOrder(w.OrderState, now)
	checkOrderInvariants(w.t, w.OrderState, a, now, func() string { return "a cause" })
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
	w := &causeWalk{newOrderState().stored(acmev1.Pending, "pending").saw("pending").owning(acmev1.Pending), t}
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

	w.OrderState = w.waiting(fault.ClassSelfCheck, "ns1 says NXDOMAIN")
	equal(t, told(s(5), `domain "a.example.com" (DNS-01) waits: ns1 says NXDOMAIN`), s(5).Add(causeAgain))
	equal(t, w.Order.Status.FailureClass, acmev1.FailureClass(fault.ClassSelfCheck))
	equal(t, *w.Order.Status.Cause, cmmeta.Cause{Class: "SelfCheck", Subject: "a.example.com", Message: "ns1 says NXDOMAIN"})

	w.OrderState = w.waiting(fault.ClassSelfCheck, "ns2 says NXDOMAIN")
	told(s(6), "")
	told(s(600), "")
	equal(t, told(s(605), "ns2 says NXDOMAIN"), s(1205))
	equal(t, told(s(1205), ""), s(1805)) // the words are the same

	w.OrderState = w.waiting(fault.ClassCredential, "403")
	told(s(1206), "403")
	w.OrderState = w.waiting(fault.ClassSolver, "no zone")
	equal(t, told(s(1207), ""), s(1206).Add(causePause)) // another cause so soon waits
	w.OrderState = w.waiting(fault.ClassCredential, "403")
	equal(t, w.Order.Status.FailureClass, acmev1.FailureClass(fault.ClassCredential))

	w.OrderState = w.waiting("", "")
	told(s(1207), "")
	w.Memory = OrderMemory{} // a new process, which knows the order no better
	w.OrderState = w.waiting(fault.ClassCredential, "401").saw("pending")
	told(s(1210), "")
	told(s(1810), "401")

	w.OrderState = w.waiting("", "")
	told(s(1811), "")
	w.OrderState.Challenges[0].Status.State = acmev1.Valid
	equal(t, DecideOrder(w.OrderState, s(1812)).Step, OrderFinalize)
	w.Memory.Chain = []byte("chain")
	a := DecideOrder(w.OrderState, s(1813))
	equal(t, []string{a.Status.Reason, string(a.Status.FailureClass)}, []string{"", ""})
}

// TestTheWorstCauseIsTold: of several Challenges the Order tells of the one that a person has to mend, and of two
// that wait for the same always of the same one: the first by name, or the one that it has told of already.
func TestTheWorstCauseIsTold(t *testing.T) {
	s := newOrderState().stored(acmev1.Pending, "pending").owning(acmev1.Pending).waiting(fault.ClassSelfCheck, "not seen")
	like := func(name string, class fault.Class, state acmev1.State) *acmev1.Challenge {
		c := s.Challenges[0].DeepCopy()
		c.Name, c.Spec.DNSName, c.Status.FailureClass, c.Status.State = name, name+".example.com", acmev1.FailureClass(class), state
		return c
	}
	s.Challenges = append(s.Challenges, like("y", fault.ClassCredential, acmev1.Errored), like("z", fault.ClassSolver, acmev1.Pending),
		like("x", fault.ClassSolver, acmev1.Pending), like("a", "", acmev1.Pending), like("b", "SomethingNew", acmev1.Pending))
	lesser, z := about(s.Challenges[0]).cause(""), about(s.Challenges[2]).cause("")
	for range 2 {
		equal(t, FirstCause(s.Challenges, nil).Name, "x")
		equal(t, FirstCause(s.Challenges, z).Name, "z")
		equal(t, FirstCause(s.Challenges, lesser).Name, "x")
		slices.Reverse(s.Challenges)
	}
	equal(t, slices.Sorted(slices.Values(causes())), slices.Sorted(slices.Values(shownClasses())))
}
