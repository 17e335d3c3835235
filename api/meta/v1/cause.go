package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Cause is what is in the way of a certificate. It is our own, and travels from the object that has learned it up to
// the Certificate. Two causes of one class, problem type and subject are the same, whatever their messages say.
type Cause struct {
	// Kind of trouble, in one word: a class of failure of an Order, or another word, such as IssuerMissing or Quota.
	Class string `json:"class"`

	// Type of the problem that the ACME server has answered with (RFC 8555 §6.7), for example
	// urn:ietf:params:acme:error:caa.
	// +optional
	ProblemType string `json:"problemType,omitempty"`

	// What it is about: a host, or an object with its kind.
	// +optional
	Subject string `json:"subject,omitempty"`

	// What was said, for people.
	// +optional
	Message string `json:"message,omitempty"`

	// When it is tried again, where that is known. It does not tell two causes from one another.
	// +optional
	NextTry *metav1.Time `json:"nextTry,omitempty"`
}

// SameAs reports whether two causes are the same, in whatever words; nil is none.
func (c *Cause) SameAs(o *Cause) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.Class == o.Class && c.ProblemType == o.ProblemType && c.Subject == o.Subject
}
