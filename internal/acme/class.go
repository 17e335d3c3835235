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

// ClassOfPage is the class of an error answer without a problem document: too many requests, or gone, for certain only
// if it has no text, as Pebble says it. Any other is that of a proxy or of a web server in the CA's place, and so is
// each one that is about nothing that the CA made: in place of the directory, or of a nonce.
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

// RefusesContent reports a problem with what was asked for: only another request can help. Problems with what the CA
// has found at the names, or with the account, are solved elsewhere, and this process cannot see when.
func (c Code) RefusesContent() bool {
	return slices.Contains([]Code{CodeRejectedIdentifier, CodeUnsupportedIdentifier, CodeBadCSR, CodeBadPublicKey, CodeInvalidProfile}, c)
}

// IsOutOfOrder reports a problem that is the CA's own.
func (c Code) IsOutOfOrder() bool {
	return slices.Contains([]Code{CodeServerInternal, CodeBadNonce, CodeOrderNotReady, CodeAccountDoesNotExist}, c)
}
