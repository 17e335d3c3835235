package request

import (
	"fmt"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
)

// Order is what is known of the Order by which an issuer signs a request. The Order obtains the certificate
// (internal/machine/order).
type Order struct {
	// Problem says why no Order can be made for the request; nil if one can.
	Problem error
	// Namespace and Name are those of the Order that the request needs.
	Namespace, Name string
	// Found is the Order of that name; nil if there is none.
	Found *acmev1.Order
	// Foreign says that Found does not belong to the request.
	Foreign bool
	// Class is why Found has failed.
	Class fault.Class
	// Wrong says why the certificate of Found is not for the request; nil if it is, or if there is none.
	Wrong error
	// Held is until when no Order is made, because the certificates of earlier ones were wrong; zero if one may be made.
	Held time.Time
}

// The reasons of requests that are signed by an Order (spec §3.4).
const (
	ReasonOrderPending   = "OrderPending"
	ReasonOrderFailed    = "OrderFailed"
	ReasonBadCertificate = "OrderBadCertificate"
)

// byOrder is what an action to sign comes to where the issuer signs by an Order. Nothing is ordered before the approval
// is stored: what the API server then refuses to approve would have been ordered.
func byOrder(s State, a Action) Action {
	o := s.Order
	if a.Step != StepSign || o == nil {
		return a
	}
	switch wait := o.pending(a.Approve); {
	case o.Problem != nil:
		return fail(o.Problem, a.Approve)
	case o.Found == nil && a.Approve:
		return wait
	case o.Found == nil && !o.Held.IsZero():
		return Action{Step: StepWait, Wake: o.Held, Reason: ReasonBadCertificate, Message: fmt.Sprintf(
			"The ACME server issued a certificate that is not for this request; ordering another one at %s", o.Held.UTC().Format(time.RFC3339))}
	case o.Found == nil:
		wait.Step = StepOrder
		return wait
	case o.Foreign:
		return Action{Step: StepWait, Approve: a.Approve, Retry: true, Reason: ReasonSigningError,
			Message: fmt.Sprintf("the Order %s/%s belongs to another request: delete it", o.Namespace, o.Name)}
	case o.Found.Status.State.IsFailure():
		return Action{Step: StepFail, Approve: a.Approve, Reason: ReasonOrderFailed, Class: o.Class, Cause: o.cause(), Message: fmt.Sprintf(
			"Failed to wait for order resource %q to become ready: order is in %q state: %s", o.Name, o.Found.Status.State, o.Found.Status.Reason)}
	case !o.ready():
		return wait
	case o.Wrong != nil:
		return Action{Step: StepDeleteOrder, Approve: a.Approve, Reason: ReasonBadCertificate,
			Message: fmt.Sprintf("Deleting Order with bad certificate: %v", o.Wrong)}
	default:
		return Action{Step: StepIssue, Approve: a.Approve}
	}
}

// ready reports whether the Order has a certificate.
func (o *Order) ready() bool {
	return o.Found.DeletionTimestamp == nil && o.Found.Status.State == acmev1.Valid && len(o.Found.Status.Certificate) > 0
}

// pending waits for the Order. The text is the same until the Order has something to say, so that a request is not
// written again for each of the Order's steps.
func (o *Order) pending(approve bool) Action {
	text := fmt.Sprintf("Waiting on certificate issuance from order %s/%s", o.Namespace, o.Name)
	if o.Found != nil && o.Found.Status.Reason != "" {
		text += fmt.Sprintf(": %q: %s", o.Found.Status.State, o.Found.Status.Reason)
	}
	return Action{Step: StepWait, Approve: approve, Reason: ReasonOrderPending, Message: text, Cause: o.cause()}
}

// cause is what the Order waits for, or has failed with; nil if that is nothing.
func (o *Order) cause() *cmmeta.Cause {
	switch {
	case o.Found == nil:
		return nil
	case o.Found.Status.Cause != nil:
		return o.Found.Status.Cause
	case o.Class != "": // another controller, or an earlier version, has left it
		return cause.New(cause.Class(o.Class), o.Found.Status.ProblemType, "", o.Found.Status.Reason)
	default:
		return nil
	}
}
