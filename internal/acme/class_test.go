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
