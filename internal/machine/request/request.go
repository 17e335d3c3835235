// Package request decides the next step for a request for a certificate: ignore, approve, sign or fail the request, or
// wait.
//
// A request is a CertificateRequest, or a CertificateSigningRequest of certificates.k8s.io. The signer name of a
// CertificateSigningRequest has one of three forms. Both kinds become one type, State, so that both kinds behave the
// same. Decide is pure and total. The package writes nothing and signs nothing: internal/controller takes the step, and
// calls the issuer's Signer if the step is to sign.
package request

import (
	"fmt"
	"time"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
)

// Form is a way to ask for a certificate.
type Form int

// The forms.
const (
	// FormCertificateRequest is a cert-manager.io CertificateRequest.
	FormCertificateRequest Form = iota + 1
	// FormCSR is a CertificateSigningRequest for cert-manager.io/<ClusterIssuer>.
	FormCSR
	// FormCSRIssuer is one for issuers.cert-manager.io/<namespace>.<name>.
	FormCSRIssuer
	// FormCSRClusterIssuer is one for clusterissuers.cert-manager.io/<name>.
	FormCSRClusterIssuer
)

// Approver says who approves requests of a form.
type Approver int

// The approvers.
const (
	// ApproveExternal leaves approval to others.
	ApproveExternal Approver = iota + 1
	// ApproveAuto approves every request that is about to be signed; a CertificateSigningRequest for a CA certificate
	// needs authorization all the same.
	ApproveAuto
	// ApproveAuthorized approves if the requester may reference the signer.
	ApproveAuthorized
)

// IssuerState is what is known of the issuer that a request names.
type IssuerState int

// The states of an issuer.
const (
	// IssuerUnknown: its readiness for its present generation is not known yet.
	IssuerUnknown IssuerState = iota + 1
	// IssuerMissing: a live read has confirmed that it does not exist.
	IssuerMissing
	// IssuerForeign: it belongs to another controller.
	IssuerForeign
	// IssuerTypeless: its spec names no type that Chancery knows: another program's definitions may have more.
	IssuerTypeless
	// IssuerUnmanaged: it is of a type that this controller does not manage.
	IssuerUnmanaged
	// IssuerOutOfReach: it is cluster-scoped, and the controller works in one namespace only.
	IssuerOutOfReach
	// IssuerNotReady: its condition Ready is not True.
	IssuerNotReady
	// IssuerReady: it signs.
	IssuerReady
)

// State is what can be observed of a request.
type State struct {
	Form Form
	// Deleted, Denied, Failed and Issued are final. Invalid is another party's verdict.
	Deleted, Denied, Failed, Issued, Invalid bool
	// DeniedSaid says that Denied has been acknowledged on a CertificateRequest.
	DeniedSaid bool
	// Approved says that somebody has approved it.
	Approved bool
	// Approver says who approves requests of this form.
	Approver Approver
	// Machine is the group of machines that the requester is in, whose requests we do not approve; empty for none.
	Machine string
	// WantsCA says that a CA certificate is asked for.
	WantsCA bool
	// MayReference says whether the requester may reference the signer; nil where
	// nobody has asked yet.
	MayReference *bool
	// Problem says why the request can never be signed as it stands; nil for none.
	Problem error
	// IssuerName is for messages, IssuerAt has the namespace and is for causes; Issuer is what is known of the issuer.
	IssuerName string
	IssuerAt   string
	Issuer     IssuerState
	// IssuerSays is the message of the issuer's condition Ready.
	IssuerSays string
	// OtherKind is the kind of another issuer that has the name of the missing one; empty for none.
	OtherKind string
	// Order is the Order by which the issuer signs; nil if the issuer has a Signer, or if nobody has looked yet.
	Order *Order
}

// Step is what to do next.
type Step int

// The steps.
const (
	// StepIgnore: nothing, now or later, unless the request changes.
	StepIgnore Step = iota + 1
	// StepWait: say Reason and Message where the kind has a place for it, and wait for an event.
	StepWait
	// StepAuthorize: ask whether the requester may reference the signer, and decide again.
	StepAuthorize
	// StepSign: approve first if Approve is set, then call the Signer, or look for the Order and decide again.
	StepSign
	// StepDeny: acknowledge a denial.
	StepDeny
	// StepFail: fail the request for good, with Reason, Message and Class.
	StepFail
	// StepOrder: make the Order, then wait as with StepWait.
	StepOrder
	// StepDeleteOrder: delete the Order, whose certificate is wrong, then wait as with StepWait.
	StepDeleteOrder
	// StepIssue: the certificate is that of the Order.
	StepIssue
)

// String names the step.
func (s Step) String() string {
	names := [...]string{"", "ignore", "wait", "authorize", "sign", "deny", "fail", "order", "delete order", "issue"}
	if s <= 0 || int(s) >= len(names) {
		return fmt.Sprintf("step(%d)", int(s))
	}
	return names[s]
}

// Action is what to do about a request.
type Action struct {
	Step Step
	// Approve approves the request. It comes with no StepIgnore, StepAuthorize, StepDeny or StepOrder.
	Approve bool
	// Reason and Message, for events and conditions.
	Reason, Message string
	// Class is that of a failure, if it is known.
	Class fault.Class
	// Cause is what is in the way, for status.cause; nil if nothing is, or if only the outcome tells.
	Cause *cmmeta.Cause
	// Wake is when a wait ends without an event; zero if it does not.
	Wake time.Time
	// Retry ends a wait with back-off, since no event says when to look again.
	Retry bool
}

// The reasons that Decide gives (spec §3.3, §4.4).
const (
	ReasonIssuerNotFound     = "IssuerNotFound"
	ReasonIssuerTypeMissing  = "IssuerTypeMissing"
	ReasonIssuerNotReady     = "IssuerNotReady"
	ReasonWaitingForApproval = "WaitingForApproval"
	ReasonWaitingForConsent  = "WaitingForConsent"
	ReasonDeniedReference    = "DeniedReference"
	ReasonInvalid            = "InvalidRequest"
	ReasonSigningError       = "SigningError"
)

// Decide returns what the request needs now.
func Decide(s State) Action {
	switch {
	case s.Deleted, s.Failed, s.Issued, s.Denied && s.DeniedSaid:
		return Action{Step: StepIgnore}
	case s.Denied && s.Form == FormCertificateRequest:
		return Action{Step: StepDeny, Reason: "Denied", Message: "The CertificateRequest was denied by an approval controller"}
	case s.Denied, s.Invalid:
		return Action{Step: StepIgnore}
	case s.Form == FormCertificateRequest:
		return byOrder(s, decideCertificateRequest(s))
	default:
		return byOrder(s, decideCSR(s))
	}
}

// decideCertificateRequest: the built-in approver approves whatever is asked, of
// external issuers too (spec §3.2); an issuer that is not there yet is waited for.
func decideCertificateRequest(s State) Action {
	approve := !s.Approved && s.Approver == ApproveAuto
	others := s.Issuer == IssuerForeign || s.Issuer == IssuerUnmanaged // sign it
	if others && !approve {
		return Action{Step: StepIgnore}
	}
	if !s.Approved && !approve {
		return waitForApproval()
	}
	if s.Problem != nil && !others {
		return fail(s.Problem, approve)
	}
	a := awaitIssuer(s)
	if a.Step == StepIgnore && approve {
		a.Step = StepWait // for whoever does sign it
	}
	a.Approve = approve
	return a
}

func waitForApproval() Action {
	return Action{Step: StepWait, Reason: ReasonWaitingForApproval, Message: "Not signing until the request is approved"}
}

// waitForConsent leaves a machine's request to people: Kubernetes' own roles let machines ask for any name.
func waitForConsent(group string) Action {
	return Action{Step: StepWait, Reason: ReasonWaitingForConsent, Message: fmt.Sprintf(
		"Not approved automatically, because the requester is in the group %s: approve the request (kubectl certificate approve), or list the group in --csr-approval-machine-groups", group)}
}

// awaitIssuer signs as soon as the issuer is ready.
func awaitIssuer(s State) Action {
	wait := func(class cause.Class, said, reason, format string, args ...any) Action {
		return Action{Step: StepWait, Reason: reason, Message: fmt.Sprintf(format, args...), Cause: cause.New(class, "", s.IssuerAt, said)}
	}
	switch s.Issuer {
	case IssuerReady:
		return Action{Step: StepSign}
	case IssuerMissing:
		hint := ""
		if s.OtherKind != "" {
			hint = fmt.Sprintf("a %s has that name: name the kind in issuerRef", s.OtherKind)
		}
		return wait(cause.IssuerMissing, hint, ReasonIssuerNotFound, "Referenced %s does not exist: create it, or correct the reference", s.IssuerName)
	case IssuerOutOfReach:
		const use = "this controller works in one namespace only (--namespace). Use an Issuer, or a controller for all namespaces"
		return wait(cause.IssuerNotReady, use, ReasonIssuerNotFound, "Referenced %s is not looked at: %s", s.IssuerName, use)
	case IssuerTypeless:
		const none = "it names no issuer type in its spec"
		return wait(cause.IssuerNotReady, none, ReasonIssuerTypeMissing, "Referenced %s names no issuer type in its spec", s.IssuerName)
	case IssuerNotReady:
		return wait(cause.IssuerNotReady, s.IssuerSays, ReasonIssuerNotReady, "Referenced %s is not ready: %s", s.IssuerName, s.IssuerSays)
	case IssuerUnknown:
		return Action{Step: StepWait, Reason: ReasonIssuerNotReady, Message: fmt.Sprintf("Referenced %s is not ready yet", s.IssuerName)}
	case IssuerForeign, IssuerUnmanaged:
		return Action{Step: StepIgnore}
	default:
		return Action{Step: StepFail, Reason: ReasonInvalid, Message: fmt.Sprintf("%s is in an unknown state %d: please report this as a bug", s.IssuerName, s.Issuer)}
	}
}

// decideCSR is mission rule 8. For the form that the rule names, an issuer that is not
// there or not ready fails the request. For cert-manager's own two forms it is
// waited for, as spec §4.4 has it. What is asked before the issuer's readiness is
// also asked there: an issuer's state is not told to whoever may not reference it.
func decideCSR(s State) Action {
	switch {
	case s.Issuer == IssuerForeign, s.Issuer == IssuerUnmanaged, s.Issuer == IssuerTypeless && s.Form == FormCSR:
		return Action{Step: StepIgnore}
	case s.Issuer == IssuerUnknown:
		return Action{Step: StepWait}
	}
	approves := s.Approver == ApproveAuto || s.Approver == ApproveAuthorized
	switch {
	case s.Approved:
	case !approves:
		return waitForApproval()
	case s.Machine != "":
		return waitForConsent(s.Machine)
	}
	a := awaitIssuer(s)
	if a.Step == StepWait && s.Form == FormCSR {
		a.Step = StepFail
	}
	if s.Issuer != IssuerReady && s.Issuer != IssuerNotReady {
		return a
	}
	if needsReference(s) {
		switch {
		case s.MayReference == nil:
			return Action{Step: StepAuthorize}
		case !*s.MayReference:
			return Action{Step: StepFail, Reason: ReasonDeniedReference,
				Message: fmt.Sprintf("The requester may not reference %s: it needs the verb reference on the resource signers.cert-manager.io", s.IssuerName)}
		}
	}
	if s.Problem != nil {
		return fail(s.Problem, false)
	}
	a.Approve = !s.Approved && a.Step == StepSign
	return a
}

// needsReference says whether the requester's right to the signer is asked: for
// namespaced issuers always (spec §4.2), else where we approve and the setting or
// a CA certificate asks for it.
func needsReference(s State) bool {
	if s.Form == FormCSRIssuer {
		return true
	}
	return !s.Approved && (s.Approver == ApproveAuthorized || s.WantsCA)
}

// fail ends a request that can never be signed.
func fail(problem error, approve bool) Action {
	a := Action{Step: StepFail, Approve: approve, Reason: ReasonInvalid, Message: problem.Error()}
	a.Cause = cause.OfError(problem)
	if f := fault.Of(problem); f != nil {
		a.Class = f.Class
		if f.Reason != "" {
			a.Reason = f.Reason
		}
	}
	return a
}

// MinimumCSRDuration is the shortest validity a CertificateSigningRequest may ask for.
const MinimumCSRDuration = 600 * time.Second
