package acmeflow

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// TestLeftByAnother reads the class of a failure from the words of an Order of another controller.
func TestLeftByAnother(t *testing.T) {
	const urn = acme.ProblemNamespace
	for reason, c := range map[string]struct {
		state acmev1.State
		want  fault.Class
	}{
		"": {acmev1.Pending, ""},
		"Challenge c for domain \"a\" (DNS-01) is invalid: Error accepting authorization: 403 " + urn + "unauthorized: wrong TXT":                 {acmev1.Invalid, fault.ClassValidation},
		"Challenge c for domain \"a\" (DNS-01) is expired: The authorization expired before it was validated":                                     {acmev1.Expired, fault.ClassValidation},
		"Challenge c for domain \"a\" (DNS-01) is errored: The authorization was deactivated at the ACME server":                                  {acmev1.Errored, fault.ClassUnavailable},
		"The ACME server shows the order as invalid: 500 " + urn + "serverInternal: sorry":                                                        {acmev1.Invalid, fault.ClassUnavailable},
		"The ACME server shows the order as invalid: 429 " + urn + "rateLimited: too many certificates":                                           {acmev1.Invalid, fault.ClassRateLimited},
		"The ACME server shows the order as invalid: 400 " + urn + "badCSR: weak key":                                                             {acmev1.Invalid, fault.ClassPermanent},
		"The ACME server shows the order as invalid: " + urn + "compound: several; a.example.com: " + urn + "rejectedIdentifier: no":              {acmev1.Invalid, fault.ClassPermanent},
		"Failed to create Order: 400 " + urn + "rejectedIdentifier: no":                                                                           {acmev1.Errored, fault.ClassPermanent},
		"Failed to create Order: 403 " + urn + "userActionRequired: new terms: visit https://ca.example/terms":                                    {acmev1.Errored, fault.ClassUnavailable},
		"Failed to create Order: 403 " + urn + "unauthorized: the account is closed":                                                              {acmev1.Errored, fault.ClassUnavailable},
		"Failed to create Order: 400 " + urn + "malformed: no":                                                                                    {acmev1.Errored, fault.ClassPermanent},
		"Failed to create Order: acme: POST https://ca/new-order: the server answered 404 Not Found without an ACME problem document: \"<html>\"": {acmev1.Errored, fault.ClassUnavailable},
		"Failed to finalize Order: 403 " + urn + "orderNotReady: not yet":                                                                         {acmev1.Errored, fault.ClassUnavailable},
		"Failed to retrieve Order resource: 404 " + urn + "malformed: no such order":                                                              {acmev1.Errored, fault.ClassUnavailable},
		"Failed to download certificate: the ACME server sent an empty chain":                                                                     {acmev1.Errored, fault.ClassUnavailable},
	} {
		if got := OrderClass(acmev1.OrderStatus{State: c.state, Reason: reason}); got != c.want {
			t.Errorf("%q is a %q failure, want %q", reason, got, c.want)
		}
		ours := acmev1.OrderStatus{State: c.state, Reason: reason, FailureClass: acmev1.FailureClass(fault.ClassCredential)}
		if got := OrderClass(ours); c.state.IsFailure() && got != fault.ClassCredential {
			t.Errorf("%q counts for more than the class of the Order: %q", reason, got)
		}
	}
}

// otherWords are what the tests of rewording have in place of every reason of ours.
const otherWords = "something else entirely"

// checkRewordedOrder decides on an Order with other words in its reason and in those of its Challenges: nothing
// changes but words.
func checkRewordedOrder(t *testing.T, s OrderState, a OrderAction, now time.Time, fail func(string, ...any)) {
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
	b := DecideOrder(other, now)
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
		fail("with other words in the reasons it does %s, class %q instead of %q", b.text(now), is.FailureClass, was.FailureClass)
	}
}

// checkRewordedChallenge is checkRewordedOrder for a Challenge.
func checkRewordedChallenge(t *testing.T, s ChallengeState, a ChallengeAction, now time.Time, fail func(string, ...any)) {
	t.Helper()
	if s.Challenge.Status.Reason == "" {
		return // there are no words to change
	}
	other := s.with(func(c *acmev1.Challenge) { c.Status.Reason = reworded(c.Status.Reason) })
	b := DecideChallenge(other, now)
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
		fail("with other words in the reason it does %s, class %q instead of %q", b.text(now), is.FailureClass, was.FailureClass)
	}
}

func reworded(reason string) string {
	if reason == "" {
		return ""
	}
	return otherWords
}

// TestShownClasses: the schema takes each class that an Order or a Challenge may show, and no other.
func TestShownClasses(t *testing.T) {
	t.Parallel()
	want := []string{}
	for _, c := range shownClasses() {
		want = append(want, string(c))
	}
	slices.Sort(want)
	for _, kind := range []string{"orders", "challenges"} {
		text, err := os.ReadFile("../../../api/crds/acme.cert-manager.io_" + kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		enum := regexp.MustCompile(`failureClass:\n(?:.*\n)*?\s+enum:\n((?:\s+- \w+\n)+)`).FindStringSubmatch(string(text))
		if enum == nil {
			t.Fatalf("the schema of %s has no enum for failureClass", kind)
		}
		got := strings.Fields(strings.ReplaceAll(enum[1], "- ", ""))
		slices.Sort(got)
		equal(t, got, want)
	}
}

// shownClasses are the classes that objects show.
func shownClasses() []fault.Class {
	return []fault.Class{
		fault.ClassPermanent, fault.ClassRefused, fault.ClassValidation, fault.ClassSelfCheck, fault.ClassSolver,
		fault.ClassRateLimited, fault.ClassPaused, fault.ClassUnavailable, fault.ClassCredential, fault.ClassConfiguration,
	}
}
