// Package cause holds the one table of causes: the problems that can stop a certificate, the words for each problem,
// and what helps. The conditions of Certificates, events, kubectl chancery and the dashboard take their words from
// here.
//
// The package is pure. It judges typed fields: classes of failures, problem types of ACME, kinds of objects. It shows
// messages, and does not judge them. The messages of the API server are the only exception (OfWrite explains why).
// internal/machine/certificate decides what follows from a cause.
package cause

import (
	"slices"
	"strings"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// Class is the kind of a cause: a fault.Class, or one of the words below.
type Class string

// The classes beside those of package fault.
const (
	// IssuerMissing means that the issuer does not exist, and IssuerNotReady that it cannot issue.
	IssuerMissing  Class = "IssuerMissing"
	IssuerNotReady Class = "IssuerNotReady"
	// NoSolver means that no solver of the issuer is for a name.
	NoSolver Class = "NoSolver"
	// Denied means that an approver has denied the request, and NotApproved that none has approved it.
	Denied      Class = "Denied"
	NotApproved Class = "NotApproved"
	// SecretShared means that the Secret belongs to another Certificate, and IssuedTooOften that somebody overwrites or
	// deletes it again and again.
	SecretShared   Class = "SecretShared"
	IssuedTooOften Class = "IssuedTooOften"
	// KeyNotReplaced means that the private key does not fit and may not be replaced, PasswordMissing that there is no
	// password for a keystore, NoRequest that no request can be made for the spec, and RenewalWindows that no renewal
	// window can be met.
	KeyNotReplaced  Class = "KeyNotReplaced"
	PasswordMissing Class = "PasswordMissing"
	NoRequest       Class = "NoRequest"
	RenewalWindows  Class = "RenewalWindows"
	// InTheWay means that somebody else's object has a name that is needed.
	InTheWay Class = "InTheWay"
	// WrongCertificate means that what the issuer has returned is not what was asked for.
	WrongCertificate Class = "WrongCertificate"
	// UsageLeftOut means that the certificate is good, and not for all that spec.usages asks for.
	UsageLeftOut Class = "UsageLeftOut"
	// Paused and ObjectTooLarge come from observers only: the controller keeps next to nothing of a Certificate that is
	// too large. NoController means that the controller of the issuer has not said anything; observers say so of our
	// controller, too. CAExpired means that a CA certificate above the certificate has expired.
	Paused         Class = "PausedByAnnotation"
	ObjectTooLarge Class = "ObjectTooLarge"
	NoController   Class = "NoController"
	CAExpired      Class = "CAExpired"
	// Other means that nothing more exact is known.
	Other Class = "Other"
)

// The classes of writes that the API server refuses; see OfWrite.
const (
	Immutable            Class = "Immutable"
	Quota                Class = "Quota"
	Admission            Class = "Admission"
	Webhook              Class = "Webhook"
	Rights               Class = "Rights"
	NamespaceTerminating Class = "NamespaceTerminating"
	TooLarge             Class = "TooLarge"
	Invalid              Class = "Invalid"
	ServerError          Class = "ServerError"
)

// ForPodsOnly is what an issuer says to all requests but those of Pods, if it signs for nobody else.
const ForPodsOnly = "it signs for Pods only, by its annotation " + certmanagerv1.PodCertificatesAnnotation + ": whoever else could ask it could have the name of any Pod"

// New returns a cause. The problem and the subject may be empty; the message may be a stranger's.
func New(class Class, problemType, subject, message string) *cmmeta.Cause {
	if class == "" {
		class = Other
	}
	return &cmmeta.Cause{Class: string(class), ProblemType: problemType, Subject: subject, Message: fault.Quote(message)}
}

// Sentence puts a cause into a sentence, which begins with the subject; empty for nil.
func Sentence(c *cmmeta.Cause) string {
	if c == nil {
		return ""
	}
	parts := []string{c.Subject, says(Class(c.Class), acme.CodeOf(c.ProblemType)), c.Message}
	switch Class(c.Class) {
	case IssuerMissing, IssuerNotReady:
		parts = []string{strings.TrimSpace(parts[0] + " " + parts[1]), c.Message}
	case SecretShared, InTheWay:
		parts = []string{c.Message} // it names the subject
	default:
	}
	var said []string
	for _, part := range parts {
		if part != "" {
			said = append(said, part)
		}
	}
	return strings.Join(said, ": ")
}

// says is what a class means, in a few words; empty where the message alone says it.
func says(class Class, problem acme.Code) string {
	if class == Class(fault.ClassPaused) { // whose problem type is that of a limit
		problem = ""
	}
	switch {
	case problem == "":
	case unproved(class, problem):
		return "the CA does not find the answer"
	case problem == acme.CodeRateLimited:
		return "the CA wants fewer requests"
	case class != Class(fault.ClassUnavailable):
		return "the CA refused"
	}
	for _, r := range table() {
		if r.Class == class {
			return r.Meaning
		}
	}
	return ""
}

// unproved reports a problem with what the CA has found at a name. As refusals of a call, the same problems are about
// the account.
func unproved(class Class, problem acme.Code) bool {
	return class != Class(fault.ClassRefused) && class != Class(fault.ClassUnavailable) && slices.Contains([]acme.Code{
		acme.CodeConnection, acme.CodeTLS, acme.CodeDNS, acme.CodeUnauthorized, acme.CodeIncorrectResponse,
	}, problem)
}

// Ready returns the message of the condition Ready, given the message without the cause. It begins with the cause, or
// ends with the cause if the certificate is good. If the API server refuses a write, it says what to do.
func (s *Scene) Ready(message string, good bool) string {
	said := Sentence(s.Cause)
	switch {
	case good:
		said = message + "; " + said
	case message != s.Cause.Message:
		said += "; " + message
	}
	if IsWrite(s.Cause) {
		said += ". " + s.Cure()
	}
	return said
}

// IsWrite reports whether a cause says that the API server refuses a write; false for nil.
func IsWrite(c *cmmeta.Cause) bool {
	return c != nil && slices.ContainsFunc(writes(), func(r Row) bool { return string(r.Class) == c.Class })
}
