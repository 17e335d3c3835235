package acmeflow

import (
	"strings"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// localRefusal opens what internal/acme/client says of profiles before anything is sent
// (spec §5.2): the CA was not asked, and a new order would fare no better.
const localRefusal = "acme: certificate authority does not"

// FailureClass says what kind of failure ended an Order, for whoever decides when to
// order anew; empty while the Order has not failed.
//
// It is read from what the Order shows to people: the state, and the reason, in which
// every refusal by a CA names its problem type (RFC 8555 §6.7). So it is the same after
// a restart, and for an Order that another controller has left.
//
// Only a CA that has refused what the Order asks for makes a failure permanent. Where it
// has forgotten something of its own, or answered in no way that ACME knows, another
// Order may well succeed.
func FailureClass(s acmev1.OrderStatus) fault.Class {
	problem := problemIn(s.Reason)
	switch {
	case !s.State.IsFailure():
		return ""
	case s.State == acmev1.Errored && strings.Contains(s.Reason, selfCheckFailed):
		return fault.ClassValidation
	case problem == "rateLimited":
		return fault.ClassRateLimited
	case isOutOfOrder(problem):
		return fault.ClassUnavailable
	case s.State == acmev1.Expired:
		return fault.ClassValidation
	case s.State == acmev1.Invalid && isRefusal(problem):
		return fault.ClassPermanent
	case s.State == acmev1.Invalid:
		return fault.ClassValidation
	case refusesContent(s.Reason, problem):
		return fault.ClassPermanent
	default:
		return fault.ClassUnavailable
	}
}

// Belied reports whether a Challenge that has ended so failed because the CA did not find
// what the self check had found. Other problems, such as a CAA record, have nothing to do with
// how soon an answer is seen (RFC 8555 §6.7).
func (m ChallengeMemory) Belied(s acmev1.ChallengeStatus) bool {
	if m.Passed.IsZero() || s.State != acmev1.Invalid {
		return false
	}
	switch problemIn(s.Reason) {
	case "", "unauthorized", "incorrectResponse", "dns", "connection", "tls":
		return true
	default:
		return false
	}
}

// problemIn is the first ACME problem type in a text, without its namespace. The first is
// that of the whole; subproblems follow (RFC 8555 §6.7.1). A compound one only stands
// for its parts.
func problemIn(text string) string {
	for {
		_, rest, found := strings.Cut(text, acme.ProblemNamespace)
		if !found {
			return ""
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
		if end < 0 {
			end = len(rest)
		}
		if problem := rest[:end]; problem != "compound" {
			return problem
		}
		text = rest[end:]
	}
}

// isOutOfOrder reports a problem that is the CA's own.
func isOutOfOrder(problem string) bool {
	switch problem {
	case "serverInternal", "badNonce", "orderNotReady", "accountDoesNotExist":
		return true
	default:
		return false
	}
}

// isRefusal reports a problem with what was asked for, rather than with what the CA has
// found at the names, or with the account: what a person has to do about that is done at
// the CA, where nobody sees it.
func isRefusal(problem string) bool {
	switch problem {
	case "rejectedIdentifier", "unsupportedIdentifier", "badCSR", "badPublicKey", "invalidProfile":
		return true
	default:
		return false
	}
}

// refusesContent reports whether an errored Order failed in one of the two steps that
// carry what a person has asked for.
func refusesContent(reason, problem string) bool {
	for _, step := range []OrderStep{OrderCreate, OrderFinalize} {
		if detail, ok := strings.CutPrefix(reason, failedTo(step)); ok {
			return isRefusal(problem) || problem == "malformed" || strings.HasPrefix(detail, localRefusal) || detail == noRequest
		}
	}
	return false
}
