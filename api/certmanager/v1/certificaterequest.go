package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmmeta "chancery.dev/api/meta/v1"
)

// CertificateRequest asks an issuer, once, for a certificate. Its spec cannot be changed.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="chancery.dev/definition=1"
// +kubebuilder:resource:scope=Namespaced,shortName={cr,crs},categories=cert-manager
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.group`
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.kind`
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.name`
// +kubebuilder:printcolumn:name="Approved",type=string,JSONPath=`.status.conditions[?(@.type == "Approved")].status`
// +kubebuilder:printcolumn:name="Denied",type=string,JSONPath=`.status.conditions[?(@.type == "Denied")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type == "Ready")].status`
// +kubebuilder:printcolumn:name="Issuer",type=string,JSONPath=`.spec.issuerRef.name`
// +kubebuilder:printcolumn:name="Requester",type=string,JSONPath=`.spec.username`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type == "Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule=`has(self.spec)`,message="spec: is missing: say what to sign, with issuerRef and request"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.status) || !has(oldSelf.status.conditions) || !oldSelf.status.conditions.exists(c, c.type in ['Approved', 'Denied']) || has(self.status)`,message="status.conditions: Approved and Denied cannot be removed once set"
type CertificateRequest struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What to sign, and by whom.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="spec: cannot be changed once the CertificateRequest is created: make a new one"
	Spec CertificateRequestSpec `json:"spec,omitzero"`

	// How the request stands.
	// +optional
	Status CertificateRequestStatus `json:"status,omitzero"`
}

// CertificateRequestList is a list of CertificateRequests.
// +kubebuilder:object:root=true
type CertificateRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CertificateRequest `json:"items"`
}

// CertificateRequestSpec says what to sign, and by whom.
// The rule answers cmctl check api and the chart's startupapicheck in the words that they wait for (spec §11.5).
// +kubebuilder:validation:XValidation:rule=`self.issuerRef.name != 'cmapichecker' || string(self.request).contains('CERTIFICATE REQUEST-----')`,message=`admission webhook "webhook.cert-manager.io" denied the request: spec.request: must be a certificate signing request in PEM form`
type CertificateRequestSpec struct {
	// Lifetime to ask for. The issuer may give another.
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`

	// Issuer that signs.
	IssuerRef cmmeta.IssuerReference `json:"issuerRef"`

	// Certificate signing request (RFC 2986), PEM encoded.
	// +kubebuilder:validation:XValidation:rule=`string(self).contains('CERTIFICATE REQUEST-----')`,message="request: must be a certificate signing request in PEM form, as openssl req -new prints it"
	Request []byte `json:"request"`

	// Whether the certificate may sign others. It must agree with the signing request.
	// +optional
	IsCA bool `json:"isCA,omitempty"`

	// What the key may be used for. It must agree with the signing request where that says so too.
	// +optional
	// +listType=atomic
	Usages []KeyUsage `json:"usages,omitempty"`

	// Name of the user who made the request. Filled in by the API server.
	// +optional
	Username string `json:"username,omitempty"`

	// Unique id of the user who made the request. Filled in by the API server.
	// +optional
	UID string `json:"uid,omitempty"`

	// Groups of the user who made the request. Filled in by the API server.
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`

	// Further attributes of the user who made the request. Filled in by the API server.
	// +optional
	Extra map[string][]string `json:"extra,omitempty"`
}

// CertificateRequestConditionType names a condition of a CertificateRequest.
type CertificateRequestConditionType string

// The conditions of a CertificateRequest.
const (
	// CertificateRequestConditionReady says whether the certificate is issued.
	CertificateRequestConditionReady CertificateRequestConditionType = "Ready"
	// CertificateRequestConditionInvalidRequest says that the request can never be signed as it stands.
	CertificateRequestConditionInvalidRequest CertificateRequestConditionType = "InvalidRequest"
	// CertificateRequestConditionApproved says that the request may be signed. It is only ever True.
	CertificateRequestConditionApproved CertificateRequestConditionType = "Approved"
	// CertificateRequestConditionDenied says that the request must not be signed. It is only ever True.
	CertificateRequestConditionDenied CertificateRequestConditionType = "Denied"
	// CertificateRequestConditionFailureClass is our own: its reason is the class of the failure that a
	// request has failed with (Permanent, Policy, Validation, RateLimited, Unavailable), by which its Certificate
	// chooses when to try again. It is only ever True.
	CertificateRequestConditionFailureClass CertificateRequestConditionType = "chancery.dev/FailureClass"
	// CertificateRequestConditionStalled is our own, under the name that kstatus gives it: the request has failed for
	// good, or was denied. It is only ever True.
	CertificateRequestConditionStalled CertificateRequestConditionType = "Stalled"
)

// CertificateRequestStatus says how a request stands.
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.conditions) || oldSelf.conditions.filter(c, c.type in ['Approved', 'Denied']).size() == 0 || has(self.conditions) && self.conditions.filter(c, c.type in ['Approved', 'Denied']) == oldSelf.conditions.filter(c, c.type in ['Approved', 'Denied'])`,message="conditions: Approved and Denied cannot be changed or removed once set: make a new CertificateRequest"
type CertificateRequestStatus struct {
	// Conditions of the request: Ready, Approved, Denied and InvalidRequest.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule=`self.all(c, !(c.type in ['Approved', 'Denied']) || c.status == 'True')`,message="conditions: Approved and Denied may only have the status True"
	// +kubebuilder:validation:XValidation:rule=`!(self.exists(c, c.type == 'Approved') && self.exists(c, c.type == 'Denied'))`,message="conditions: Approved and Denied exclude each other: a request is approved or denied, once"
	Conditions []CertificateRequestCondition `json:"conditions,omitempty"`

	// Issued chain, PEM encoded, leaf first, without the self-signed root.
	// +optional
	Certificate []byte `json:"certificate,omitempty"`

	// Certificate of the signing authority, PEM encoded, where it is known.
	// +optional
	CA []byte `json:"ca,omitempty"`

	// When the request failed.
	// +optional
	FailureTime *metav1.Time `json:"failureTime,omitempty"`

	// Our own: what the request waits for, or has failed with.
	// +optional
	Cause *cmmeta.Cause `json:"cause,omitempty"`
}

// CertificateRequestCondition is one condition of a CertificateRequest.
type CertificateRequestCondition struct {
	// Type of the condition: Ready, Approved, Denied or InvalidRequest.
	// +kubebuilder:validation:MaxLength=316
	Type CertificateRequestConditionType `json:"type"`

	// Whether the condition holds.
	Status cmmeta.ConditionStatus `json:"status"`

	// When the status of the condition last changed.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`

	// Why the condition is what it is, in one word.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// Why the condition is what it is, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	Message string `json:"message,omitempty"`
}
