package cause

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// Pause is the shortest time between two writes of an object that write causes only: strangers may make causes come and
// go as often as they want.
const Pause = 20 * time.Second

// Tell notes a cause and its next try in a status, and reports whether the cause differs from the known one.
func Tell(status *certmanagerv1.CertificateStatus, c *cmmeta.Cause) bool {
	status.NextTry = nil
	if c != nil {
		status.NextTry = c.NextTry.DeepCopy()
	}
	if c.SameAs(status.Cause) {
		return false
	}
	if status.Cause = c.DeepCopy(); c != nil {
		status.Cause.NextTry = nil // it has a field of its own
	}
	return true
}

// Alone reports whether the status had a cause before, and nothing is new but the cause and what repeats the cause.
func Alone(was, is *certmanagerv1.CertificateStatus) bool {
	return was.Cause != nil && cmmeta.Equal(without(was), without(is))
}

// without is a status without the cause, and what repeats it. That something is said where nothing was is no
// repetition.
func without(s *certmanagerv1.CertificateStatus) *certmanagerv1.CertificateStatus {
	s = s.DeepCopy()
	s.Cause, s.NextTry = nil, nil
	for i := range s.Conditions {
		if s.Conditions[i].Message != "" {
			s.Conditions[i].Message = "the cause"
		}
	}
	return s
}

// OfGroup names the group of somebody else's issuer, since the group may be mistyped; empty for an issuer of ours.
func OfGroup(ref cmmeta.IssuerReference) string {
	if !ref.IsExternal() {
		return ""
	}
	return fmt.Sprintf(", whose issuer is of the group %q, another controller's", ref.Group)
}

// Unanswered says that somebody else's controller has not answered an approved request for an issuer of theirs.
func Unanswered(request string, ref cmmeta.IssuerReference) string {
	return "CertificateRequest " + request + OfGroup(ref) + ", which has not said anything yet"
}

// OfUsages returns the cause that a certificate is not for some usages that were asked for, with the time of the
// renewal.
func OfUsages[S ~string](lacking []S, renewal *metav1.Time) *cmmeta.Cause {
	c := New(UsageLeftOut, "", "", fmt.Sprintf("the issuer has left usages out of the certificate that spec.usages asks for: %q", lacking))
	c.NextTry = renewal
	return c
}

// OfAuthority returns the cause that a CA certificate above a certificate has expired, with the time of the renewal.
func OfAuthority(expired time.Time, renewal *metav1.Time) *cmmeta.Cause {
	c := New(CAExpired, "", "", "a CA certificate above this certificate expired on "+expired.UTC().Format(time.RFC3339)+": clients do not trust it")
	c.NextTry = renewal
	return c
}
