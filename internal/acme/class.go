package acme

import (
	"slices"

	"chancery.dev/internal/fault"
)

// This file says what an answer of an ACME server means by its status and its code alone.

// ClassOf is the class of an answer with an HTTP status (0 if there was none) and a problem's code, which may be empty
// (RFC 8555 §6.7).
func ClassOf(httpStatus int, code Code) fault.Class {
	switch {
	case code == CodeBadNonce:
		return fault.ClassNotProcessed
	case code == CodeRateLimited || httpStatus == 429:
		return fault.ClassRateLimited
	case httpStatus < 400 || httpStatus >= 500 || code == CodeServerInternal:
		return fault.ClassUnavailable
	case code == CodeAlreadyReplaced:
		return fault.ClassRefused
	case code == CodeOrderNotReady:
		return fault.ClassNotReady
	case httpStatus == 404 || httpStatus == 410:
		return fault.ClassNotFound
	case httpStatus == 408:
		return fault.ClassUnavailable
	case code.RefusesContent():
		return fault.ClassPermanent
	default:
		return fault.ClassRefused
	}
}

// ClassOfPage is the class of an error answer without a problem document. A 429 is a rate limit. A 404 or 410 means
// that the object is gone: for certain if the answer is empty, as Pebble's is, otherwise unsure. Any other answer comes
// from a proxy or a web server in the CA's place; so does a 404 or 410 to a request for the directory or for a nonce.
func ClassOfPage(httpStatus int, empty, aboutNothing bool) (class fault.Class, unsure bool) {
	switch {
	case httpStatus == 429:
		return fault.ClassRateLimited, false
	case httpStatus != 404 && httpStatus != 410, aboutNothing:
		return fault.ClassUnavailable, false
	default:
		return fault.ClassNotFound, !empty
	}
}

// ClassOfInvalid is the class of the problem for which a CA has made an order or a challenge invalid; it may be nil.
func ClassOfInvalid(p *Problem) fault.Class {
	switch code := p.Cause(); {
	case code == CodeRateLimited:
		return fault.ClassRateLimited
	case code.IsOutOfOrder():
		return fault.ClassUnavailable
	case code.RefusesContent():
		return fault.ClassPermanent
	default:
		return fault.ClassValidation
	}
}

// RefusesContent reports a problem with the content of a request: only another request can help. A problem with the
// account, or with what the CA found at the names, is solved elsewhere, and this process cannot see when.
func (c Code) RefusesContent() bool {
	return slices.Contains([]Code{CodeRejectedIdentifier, CodeUnsupportedIdentifier, CodeBadCSR, CodeBadPublicKey, CodeInvalidProfile}, c)
}

// IsOutOfOrder reports a problem that is the CA's own.
func (c Code) IsOutOfOrder() bool {
	return slices.Contains([]Code{CodeServerInternal, CodeBadNonce, CodeOrderNotReady, CodeAccountDoesNotExist}, c)
}
