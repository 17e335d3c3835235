package signer

import (
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// ReadyStatus returns an issuer's status with the condition Ready set for its
// present generation, as Setup returns it. The issuer itself is left alone.
func ReadyStatus(issuer certmanagerv1.GenericIssuer, now time.Time, ready bool, reason, message string) certmanagerv1.IssuerStatus {
	condition := certmanagerv1.IssuerCondition{
		Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionFalse, Reason: reason, Message: message,
	}
	if ready {
		condition.Status = cmmeta.ConditionTrue
	}
	// An Issuer carries its metadata only so that the API's own rules of
	// lastTransitionTime and observedGeneration apply, whichever kind the issuer is.
	carrier := &certmanagerv1.Issuer{Status: *issuer.GetStatus().DeepCopy()}
	carrier.Generation = issuer.GetGeneration()
	certmanagerv1.SetIssuerCondition(carrier, condition, now)
	return carrier.Status
}
