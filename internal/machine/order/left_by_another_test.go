package order_test

import (
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/order"
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
		if got := order.Class(acmev1.OrderStatus{State: c.state, Reason: reason}); got != c.want {
			t.Errorf("%q is a %q failure, want %q", reason, got, c.want)
		}
		ours := acmev1.OrderStatus{State: c.state, Reason: reason, FailureClass: acmev1.FailureClass(fault.ClassCredential)}
		if got := order.Class(ours); c.state.IsFailure() && got != fault.ClassCredential {
			t.Errorf("%q counts for more than the class of the Order: %q", reason, got)
		}
	}
}
