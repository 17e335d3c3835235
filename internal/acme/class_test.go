package acme_test

import (
	"testing"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

func TestClassOf(t *testing.T) {
	for _, test := range []struct {
		status int
		code   acme.Code
		want   fault.Class
	}{
		{0, "", fault.ClassUnavailable},
		{200, "", fault.ClassUnavailable},
		{500, acme.CodeServerInternal, fault.ClassUnavailable},
		{503, "", fault.ClassUnavailable},
		{503, acme.CodeRateLimited, fault.ClassRateLimited},
		{429, "", fault.ClassRateLimited},
		{400, acme.CodeBadNonce, fault.ClassNotProcessed},
		{400, acme.CodeMalformed, fault.ClassRefused},
		{409, acme.CodeAlreadyReplaced, fault.ClassRefused},
		{403, acme.CodeOrderNotReady, fault.ClassNotReady},
		{403, acme.CodeUnauthorized, fault.ClassRefused},
		{404, acme.CodeMalformed, fault.ClassNotFound},
		{408, "", fault.ClassUnavailable},
		{400, acme.CodeRejectedIdentifier, fault.ClassPermanent},
		{400, acme.CodeBadCSR, fault.ClassPermanent},
	} {
		if got := acme.ClassOf(test.status, test.code); got != test.want {
			t.Errorf("%d %s: %s, want %s", test.status, test.code, got, test.want)
		}
	}
}

func TestClassOfPage(t *testing.T) {
	for _, test := range []struct {
		status              int
		empty, aboutNothing bool
		want                fault.Class
		unsure              bool
	}{
		{429, false, true, fault.ClassRateLimited, false},
		{404, true, false, fault.ClassNotFound, false},
		{410, false, false, fault.ClassNotFound, true},
		{404, true, true, fault.ClassUnavailable, false},
		{403, true, false, fault.ClassUnavailable, false},
		{502, false, false, fault.ClassUnavailable, false},
	} {
		if got, unsure := acme.ClassOfPage(test.status, test.empty, test.aboutNothing); got != test.want || unsure != test.unsure {
			t.Errorf("%+v: %s, unsure %v", test, got, unsure)
		}
	}
}

func TestClassOfInvalid(t *testing.T) {
	of := func(code acme.Code) *acme.Problem { return &acme.Problem{Type: code.Type()} }
	for _, test := range []struct {
		problem *acme.Problem
		want    fault.Class
	}{
		{nil, fault.ClassValidation},
		{of(acme.CodeConnection), fault.ClassValidation},
		{of(acme.CodeRateLimited), fault.ClassRateLimited},
		{of(acme.CodeServerInternal), fault.ClassUnavailable},
		{of(acme.CodeRejectedIdentifier), fault.ClassPermanent},
		{&acme.Problem{Type: acme.CodeCompound.Type(), Subproblems: []acme.Subproblem{{Type: acme.CodeBadCSR.Type()}}}, fault.ClassPermanent},
	} {
		if got := acme.ClassOfInvalid(test.problem); got != test.want {
			t.Errorf("%v: %s, want %s", test.problem, got, test.want)
		}
	}
}
