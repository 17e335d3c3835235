package order

import (
	"strings"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// This file reads the class of a failure from the words of an object that has none: an object that another
// controller has left, such as a cert-manager that worked here before. Nothing else is decided by words.

// leftClass is the class of the failure that an object of another controller ended with. The words name the
// problem type of every refusal by a CA (RFC 8555 §6.7).
func leftClass(state acmev1.State, reason string) fault.Class {
	code := codeIn(reason)
	switch {
	case code == acme.CodeRateLimited:
		return fault.ClassRateLimited
	case code.IsOutOfOrder():
		return fault.ClassUnavailable
	case state == acmev1.Expired:
		return fault.ClassValidation
	case state == acmev1.Invalid && code.RefusesContent():
		return fault.ClassPermanent
	case state == acmev1.Invalid:
		return fault.ClassValidation
	case leftByContent(reason) && (code.RefusesContent() || code == acme.CodeMalformed):
		return fault.ClassPermanent
	default:
		return fault.ClassUnavailable
	}
}

// leftByContent reports whether an Order failed in one of the two steps that carry what a person has asked for
// (spec §5.3).
func leftByContent(reason string) bool {
	return strings.HasPrefix(reason, "Failed to create Order: ") || strings.HasPrefix(reason, "Failed to finalize Order: ")
}

// codeIn is the first ACME problem code in a text. The first is that of the whole; subproblems follow (RFC 8555
// §6.7.1). A compound one only stands for its parts.
func codeIn(text string) acme.Code {
	for {
		_, rest, found := strings.Cut(text, acme.ProblemNamespace)
		if !found {
			return ""
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
		if end < 0 {
			end = len(rest)
		}
		if code := acme.Code(rest[:end]); code != acme.CodeCompound {
			return code
		}
		text = rest[end:]
	}
}
