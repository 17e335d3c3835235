package cause

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// Pause is the shortest time between two writes of an object that tell of nothing but causes: causes may come and go as
// often as strangers want.
const Pause = 20 * time.Second

// Tell notes a cause in a status, and when the next try is, and reports whether it is another cause than is known.
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

// Alone reports whether a cause, which there was before too, and what repeats it are all that is new in a status.
func Alone(was, is *certmanagerv1.CertificateStatus) bool {
	return was.Cause != nil && equality.Semantic.DeepEqual(without(was), without(is))
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

// OfGroup says of a request for an issuer of somebody else's whose the issuer is: the group may be mistyped.
func OfGroup(ref cmmeta.IssuerReference) string {
	if !ref.IsExternal() {
		return ""
	}
	return fmt.Sprintf(", whose issuer is of the group %q, another controller's", ref.Group)
}

// Unanswered says of an approved request for an issuer of somebody else's that its controller has not answered.
func Unanswered(request string, ref cmmeta.IssuerReference) string {
	return "CertificateRequest " + request + OfGroup(ref) + ", which has not said anything yet"
}

// OfAuthority is the cause that a CA certificate above a certificate has expired, which is renewed at a time.
func OfAuthority(expired time.Time, renewal *metav1.Time) *cmmeta.Cause {
	c := New(CAExpired, "", "", "a CA certificate above this certificate expired on "+expired.UTC().Format(time.RFC3339)+": clients do not trust it")
	c.NextTry = renewal
	return c
}
