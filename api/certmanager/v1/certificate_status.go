package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmmeta "chancery.dev/api/meta/v1"
)

// CertificateConditionType names a condition of a Certificate.
type CertificateConditionType string

// The conditions of a Certificate.
const (
	// CertificateConditionReady says whether the Secret holds a valid, up to date certificate.
	CertificateConditionReady CertificateConditionType = "Ready"
	// CertificateConditionIssuing says that a certificate is being issued. It is removed on success.
	CertificateConditionIssuing CertificateConditionType = "Issuing"
	// CertificateConditionRevoking says that a certificate is being replaced and revoked, because the annotation
	// chancery.dev/revoke asks for it; when False, what that has come to. Without it there is no such condition.
	CertificateConditionRevoking CertificateConditionType = "Revoking"
)

// CertificateStatus says how a certificate stands.
type CertificateStatus struct {
	// The generation that this status is about: kstatus reads it.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the certificate: Ready, Issuing and Revoking.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []CertificateCondition `json:"conditions,omitempty"`

	// When issuance last failed. Cleared by success.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`

	// Begin of the certificate's validity.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`

	// Time when the certificate expires.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`

	// When the certificate is to be renewed.
	// +optional
	RenewalTime *metav1.Time `json:"renewalTime,omitempty"`

	// Our own: who has decided when the certificate is to be renewed. Not set where renewalTime was written by
	// cert-manager, or by a version that did not say, until it changes.
	// +optional
	RenewalTimeSource RenewalTimeSource `json:"renewalTimeSource,omitempty"`

	// How many times the certificate was issued.
	// +optional
	Revision *int `json:"revision,omitempty"`

	// Secret that holds the key of the issuance under way.
	// +optional
	NextPrivateKeySecretName *string `json:"nextPrivateKeySecretName,omitempty"`

	// How many times in a row issuance has failed. Cleared by success.
	// +optional
	FailedIssuanceAttempts *int `json:"failedIssuanceAttempts,omitempty"`

	// Our own: what is in the way of the certificate. It stays until something newer has happened.
	// +optional
	Cause *cmmeta.Cause `json:"cause,omitempty"`

	// Our own: when a certificate that waits is tried again by itself. A change of the Certificate or its issuer, or a
	// renewal by hand, is heeded at once.
	// +optional
	NextTry *metav1.Time `json:"nextTry,omitempty"`

	// What the ACME server says about the certificate.
	// +optional
	ACME *CertificateACMEStatus `json:"acme,omitempty"`
}

// CertificateCondition is one condition of a Certificate.
type CertificateCondition struct {
	// Type of the condition: Ready, Issuing or Revoking.
	Type CertificateConditionType `json:"type"`

	// Whether the condition holds.
	Status cmmeta.ConditionStatus `json:"status"`

	// When the status of the condition last changed.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`

	// Why the condition is what it is, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Why the condition is what it is, for people.
	// +optional
	Message string `json:"message,omitempty"`

	// Generation of the Certificate that the condition was decided for.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// CertificateACMEStatus is what the ACME server says about a certificate.
type CertificateACMEStatus struct {
	// Renewal information (RFC 9773).
	// +optional
	ARI *CertificateARIStatus `json:"ari,omitempty"`
}

// CertificateARIStatus is the last renewal information of an ACME server (RFC 9773 §4.2).
type CertificateARIStatus struct {
	// Time within which the server wants the certificate to be renewed.
	// +optional
	SuggestedWindow *ARIWindow `json:"suggestedWindow,omitempty"`

	// Page that says why.
	// +optional
	ExplanationURL string `json:"explanationURL,omitempty"`

	// When the server was last asked.
	// +optional
	LastChecked *metav1.Time `json:"lastChecked,omitempty"`

	// When the server will be asked again.
	// +optional
	NextCheck *metav1.Time `json:"nextCheck,omitempty"`

	// Why the last question failed. Empty if it did not.
	// +optional
	LastError string `json:"lastError,omitempty"`
}

// ARIWindow is a time within which to renew.
type ARIWindow struct {
	// Begin of the window.
	Start metav1.Time `json:"start"`

	// End of the window.
	End metav1.Time `json:"end"`
}
