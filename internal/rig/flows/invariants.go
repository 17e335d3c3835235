package flows

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
)

// CheckOrder holds one decision against what must always be true.
func CheckOrder(t *testing.T, s OrderState, a order.Action, now time.Time, where func() string) { //nolint:gocognit // each branch is a rule of its own
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s: %s\n%s", where(), fmt.Sprintf(format, args...), Text(a, now))
	}
	stored := s.Order.Status
	if strings.HasPrefix(a.Step.String(), "Step(") {
		fail("the step has no name")
	}
	if stored.State.IsFailure() || (stored.State == acmev1.Valid && len(stored.Certificate) > 0) {
		if a.Status != nil {
			fail("a final status is written again")
		}
	}
	if a.Step == order.Wait && !a.Wake.IsZero() && !a.Wake.After(now) {
		fail("it wakes in the past: a busy loop")
	}
	if a.Step.External() {
		if s.Memory.Running != order.Wait {
			fail("a second call while one is under way")
		}
		if s.Account.URL == "" {
			fail("a call without an account")
		}
		if a.Step == order.Deactivate && now.Before(s.Account.ParkedUntil) {
			fail("the CA is called though the account is parked")
		}
		if a.Step != order.Deactivate && (s.Issuer.Readiness != acmeflow.IssuerReady || now.Before(s.Account.ParkedUntil)) {
			fail("the CA is called though it must not be")
		}
	}
	if a.Step == order.Create && !s.Made && s.Memory.WroteAt.IsZero() {
		fail("it orders, and does not know whether the address can be stored")
	}
	if r := s.Memory.Remote; a.Step.External() && r != nil && r.URL != "" && stored.URL == "" && (a.Status == nil || a.Status.URL == "") &&
		(a.Step != order.FetchAuthorizations || !s.Made || len(r.Authorizations) > 1) {
		fail("the address of the order is not stored first")
	}
	checkRewordedOrder(t, s, a, now, fail)
	if next := a.Status; next != nil {
		if next.FailureClass != "" && (next.Reason == "" || !slices.Contains(ShownClasses(), fault.Class(next.FailureClass))) {
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
		if again := s.Decide(now); again.Status != nil && !s.Memory.Unwritten {
			fail("the same status is not stable: then it writes %q", again.Status.Reason)
		}
	}
	if a.Step == order.Wait && a.Wake.IsZero() && a.Status == nil && !awaitsEvent(s) {
		fail("it waits for nothing")
	}
}

// awaitsEvent reports whether an event will come that decides again.
func awaitsEvent(s OrderState) bool {
	if s.Memory.Running != order.Wait || s.Issuer.Readiness != acmeflow.IssuerReady {
		return true
	}
	for _, c := range s.Challenges {
		if !c.Status.State.IsFinal() || c.DeletionTimestamp != nil {
			return true
		}
	}
	return false
}

// CheckChallenge holds one decision against what must always be true.
func CheckChallenge(t *testing.T, s ChallengeState, a challenge.Action, now time.Time, where func() string) { //nolint:gocognit // each branch is a rule of its own
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s: %s\n%s", where(), fmt.Sprintf(format, args...), Text(a, now))
	}
	stored, ended := s.Challenge.Status, s.Challenge.Status.State.IsFinal() || s.Challenge.DeletionTimestamp != nil
	switch {
	case strings.HasPrefix(a.Step.String(), "Step("):
		fail("the step has no name")
	case a.Step == challenge.Wait && !a.Wake.IsZero() && !a.Wake.After(now):
		fail("it wakes in the past: a busy loop")
	case s.Untrusted != "" && a.Step.External() && (a.Step != challenge.CleanUp || !stored.Processing && !stored.Presented && stored.State != acmev1.Pending && !s.Memory.Touched):
		fail("a call is made for a Challenge that nobody vouches for")
	case a.Step.External() && s.Memory.Running != challenge.Wait:
		fail("a second call while one is under way")
	case (a.Step == challenge.Present || a.Step == challenge.Accept) && (!stored.Processing || ended):
		fail("something is changed outside without a slot")
	case (a.Step == challenge.Fetch || a.Step == challenge.Accept) &&
		(s.Issuer.Readiness != acmeflow.IssuerReady || now.Before(s.Account.ParkedUntil)):
		fail("the CA is called though it must not be")
	case a.Yield && !stored.Processing, a.Ready && stored.Processing:
		fail("it tells the scheduler nonsense")
	case !ended && s.Untrusted == "" && !stored.Processing && !stored.Presented && stored.State == acmev1.Unknown &&
		s.Memory.Authorization == nil && s.Memory.Failure == nil && s.Memory.Presented.IsZero() && (a.Step != challenge.Wait || a.Status != nil):
		fail("a queued challenge does something")
	}
	checkRewordedChallenge(t, s, a, now, fail)
	if next := a.Status; next != nil {
		if next.FailureClass != "" && (next.Reason == "" || !slices.Contains(ShownClasses(), fault.Class(next.FailureClass))) {
			fail("the class %q without a reason, or not one that is shown", next.FailureClass)
		}
		if next.State.IsFailure() && !stored.State.IsFinal() && next.FailureClass == "" {
			fail("a failure without a class")
		}
		if next.State.IsFinal() && next.Processing {
			fail("a final state holds its slot")
		}
		if stored.State.IsFinal() && next.State != stored.State {
			fail("a final state is left")
		}
		if next.Processing && !stored.Processing {
			fail("only the scheduler sets processing")
		}
		if apiequality.Semantic.DeepEqual(*next, stored) {
			fail("an unchanged status is written")
		}
		s = s.With(func(c *acmev1.Challenge) { c.Status = *next })
		if again := s.Decide(now); again.Status != nil && a.Step != challenge.RemoveFinalizer {
			fail("the same status is not stable: then it writes %q", again.Status.Reason)
		}
	}
	waits := a.Step == challenge.Wait && a.Wake.IsZero() && a.Status == nil
	held := !stored.Processing || a.Yield // the scheduler, or whoever wants the slot, decides
	if waits && s.Memory.Running == challenge.Wait && s.Issuer.Readiness == acmeflow.IssuerReady && !held {
		fail("it holds a slot and waits for nothing")
	}
}

// otherWords are what the tests of rewording have in place of every reason of ours.
const otherWords = "something else entirely"

// checkRewordedOrder decides on an Order with other words in its reason and in those of its Challenges: nothing
// changes but words.
func checkRewordedOrder(t *testing.T, s OrderState, a order.Action, now time.Time, fail func(string, ...any)) {
	t.Helper()
	if s.Order.Status.Reason == "" && !slices.ContainsFunc(s.Challenges, func(c *acmev1.Challenge) bool { return c.Status.Reason != "" }) {
		return // there are no words to change
	}
	other := s
	other.Order = s.Order.DeepCopy()
	other.Order.Status.Reason = reworded(other.Order.Status.Reason)
	other.Challenges = slices.Clone(s.Challenges)
	for i, c := range other.Challenges {
		other.Challenges[i] = c.DeepCopy()
		other.Challenges[i].Status.Reason = reworded(c.Status.Reason)
	}
	b := other.Decide(now)
	was, is := s.Order.Status, other.Order.Status
	if a.Status != nil {
		was = *a.Status
	}
	if b.Status != nil {
		is = *b.Status
	}
	was.Reason, is.Reason, was.ReasonEnd, is.ReasonEnd = "", "", "", ""
	for _, status := range []*acmev1.OrderStatus{&was, &is} {
		if status.Cause != nil {
			status.Cause = status.Cause.DeepCopy()
			status.Cause.Message = ""
		}
	}
	a.Status, b.Status, a.Event, b.Event = nil, nil, nil, nil
	if !reflect.DeepEqual(was, is) || !reflect.DeepEqual(a, b) {
		fail("with other words in the reasons it does %s, class %q instead of %q", Text(b, now), is.FailureClass, was.FailureClass)
	}
}

// checkRewordedChallenge is checkRewordedOrder for a Challenge.
func checkRewordedChallenge(t *testing.T, s ChallengeState, a challenge.Action, now time.Time, fail func(string, ...any)) {
	t.Helper()
	if s.Challenge.Status.Reason == "" {
		return // there are no words to change
	}
	other := s.With(func(c *acmev1.Challenge) { c.Status.Reason = reworded(c.Status.Reason) })
	b := other.Decide(now)
	was, is := s.Challenge.Status, other.Challenge.Status
	if a.Status != nil {
		was = *a.Status
	}
	if b.Status != nil {
		is = *b.Status
	}
	was.Reason, is.Reason, was.ReasonEnd, is.ReasonEnd = "", "", "", ""
	a.Status, b.Status, a.Event, b.Event = nil, nil, nil, nil
	if !reflect.DeepEqual(was, is) || !reflect.DeepEqual(a, b) {
		fail("with other words in the reason it does %s, class %q instead of %q", Text(b, now), is.FailureClass, was.FailureClass)
	}
}

func reworded(reason string) string {
	if reason == "" {
		return ""
	}
	return otherWords
}

// ShownClasses are the classes that objects show.
func ShownClasses() []fault.Class {
	return []fault.Class{
		fault.ClassPermanent, fault.ClassRefused, fault.ClassValidation, fault.ClassSelfCheck, fault.ClassSolver,
		fault.ClassRateLimited, fault.ClassPaused, fault.ClassUnavailable, fault.ClassCredential, fault.ClassConfiguration,
	}
}
