package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmmeta "chancery.dev/api/meta/v1"
)

// State is where an Order, an authorization or a Challenge stands. Empty means not known yet.
// The first six words are those of RFC 8555 §7.1.6.
// +kubebuilder:validation:Enum="";valid;ready;pending;processing;invalid;expired;errored
type State string

// The states. Ready is used by Orders only; Errored is ours: the server refused in a way that
// repeating does not cure.
const (
	Unknown    State = ""
	Valid      State = "valid"
	Ready      State = "ready"
	Pending    State = "pending"
	Processing State = "processing"
	Invalid    State = "invalid"
	Expired    State = "expired"
	Errored    State = "errored"
)

// IsFinal reports whether the state can no longer change.
func (s State) IsFinal() bool {
	return s == Valid || s.IsFailure()
}

// IsFailure reports whether the state is final and not valid.
func (s State) IsFailure() bool {
	return s == Invalid || s == Expired || s == Errored
}

// FailureClass says what kind of failure an Order or a Challenge waits for, or has failed with.
//
//   - Permanent: the server refuses what is asked for, and will until somebody changes it.
//   - Refused: the server refuses a call, but not for what is asked for. Starting over may succeed.
//   - Validation: the server did not find what it looked for at the name.
//   - SelfCheck: the answer cannot be seen yet from here.
//   - Solver: the answer could not be presented.
//   - RateLimited: fewer requests are wanted.
//   - Paused: the server takes no order for the names before a person has lifted a pause, at the link in the reason.
//   - Unavailable: the server, or a DNS provider, is out of order.
//   - Credential: a credential is not accepted.
//   - Configuration: an object in the cluster, or a setting of the controller, is missing or wrong.
//
// +kubebuilder:validation:Enum=Permanent;Refused;Validation;SelfCheck;Solver;RateLimited;Paused;Unavailable;Credential;Configuration
type FailureClass string

// Order is one order with an ACME server: it obtains the certificate for one CertificateRequest.
// Orders are made by the controller, never by hand.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="chancery.dev/definition=1"
// +kubebuilder:resource:scope=Namespaced,categories={cert-manager,cert-manager-acme}
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.group`
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.kind`
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.name`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Issuer",type=string,JSONPath=`.spec.issuerRef.name`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Order struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// What to order. It cannot be changed once the Order is created.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="spec: cannot be changed once the Order is created: change the Certificate, or delete the Order to start anew"
	Spec OrderSpec `json:"spec"`

	// Where the order stands with the ACME server.
	// +optional
	// +kubebuilder:default={observedGeneration:0}
	Status OrderStatus `json:"status,omitzero"`
}

// OrderList is a list of Orders.
// +kubebuilder:object:root=true
type OrderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Order `json:"items"`
}

// OrderSpec says what to order.
type OrderSpec struct {
	// Certificate signing request, PEM encoded, that finalizes the order.
	Request []byte `json:"request"`

	// Issuer whose ACME account places the order.
	IssuerRef cmmeta.IssuerReference `json:"issuerRef"`

	// Common name of the certificate. It must be the first of the names or one of them.
	// +optional
	CommonName string `json:"commonName,omitempty"`

	// DNS names to authorize.
	// +optional
	// +listType=atomic
	DNSNames []string `json:"dnsNames,omitempty"`

	// IP addresses to authorize (RFC 8738).
	// +optional
	// +listType=atomic
	IPAddresses []string `json:"ipAddresses,omitempty"`

	// Lifetime asked for, sent as notAfter. Many servers refuse it.
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`

	// Certificate profile asked for, one of those that the server's directory lists.
	// +optional
	Profile string `json:"profile,omitempty"`

	// Identifier of the certificate that the new one replaces (RFC 9773 §4.1).
	// +optional
	Replaces string `json:"replaces,omitempty"`
}

// OrderStatus says where an order stands with the ACME server.
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.url) || oldSelf.url.size() == 0 || has(self.url) && self.url == oldSelf.url`,message="url: cannot be changed once it is set"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.finalizeURL) || oldSelf.finalizeURL.size() == 0 || has(self.finalizeURL) && self.finalizeURL == oldSelf.finalizeURL`,message="finalizeURL: cannot be changed once it is set"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.certificate) || oldSelf.certificate.size() == 0 || has(self.certificate) && self.certificate == oldSelf.certificate`,message="certificate: cannot be changed once it is set"
type OrderStatus struct {
	// The generation that this status is about: kstatus reads it.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Whether the order is under way (Reconciling), or has failed for good (Stalled): kstatus reads it. Empty once there
	// is a certificate.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`

	// URL of the order. Set once.
	// +optional
	URL string `json:"url,omitempty"`

	// URL to which the signing request is posted once every name is authorized. Set once.
	// +optional
	FinalizeURL string `json:"finalizeURL,omitempty"`

	// Authorizations that the server asks for, one per name.
	// +optional
	// +listType=atomic
	Authorizations []ACMEAuthorization `json:"authorizations,omitempty"`

	// Issued chain, PEM encoded, leaf first. Set once.
	// +optional
	Certificate []byte `json:"certificate,omitempty"`

	// State of the order.
	// +optional
	State State `json:"state,omitempty"`

	// Why the order is in its state, or what it waits for.
	// +optional
	Reason string `json:"reason,omitempty"`

	// How the reason ends, after a semicolon, once it has said what is the matter: when the next try is, for example.
	// +optional
	ReasonEnd string `json:"reasonEnd,omitempty"`

	// Kind of failure that the reason tells of: of the one that ended the order, or of what it waits for. An
	// order that another controller has left has none.
	// +optional
	FailureClass FailureClass `json:"failureClass,omitempty"`

	// Type of the problem that the ACME server has answered with, where the reason tells of one (RFC 8555 §6.7), for
	// example urn:ietf:params:acme:error:caa.
	// +optional
	ProblemType string `json:"problemType,omitempty"`

	// What the reason tells of, in parts. An order that another controller has left has none.
	// +optional
	Cause *cmmeta.Cause `json:"cause,omitempty"`

	// When the order failed.
	// +optional
	FailureTime *metav1.Time `json:"failureTime,omitempty"`
}

// ACMEAuthorization is one authorization of an order (RFC 8555 §7.1.4).
type ACMEAuthorization struct {
	// URL of the authorization.
	URL string `json:"url"`

	// Name to authorize, without a leading wildcard label.
	// +optional
	Identifier string `json:"identifier,omitempty"`

	// Whether the authorization is for the wildcard of the identifier.
	// +optional
	Wildcard *bool `json:"wildcard,omitempty"`

	// State of the authorization when it was first read. A valid one needs no Challenge.
	// +optional
	InitialState State `json:"initialState,omitempty"`

	// Challenges that the server offers.
	// +optional
	// +listType=atomic
	Challenges []ACMEChallenge `json:"challenges,omitempty"`

	// Which of the issuer's solvers was chosen for the authorization, and why.
	// +optional
	Solver string `json:"solver,omitempty"`
}

// ACMEChallenge is one challenge that the server offers for an authorization (RFC 8555 §7.1.5).
type ACMEChallenge struct {
	// URL of the challenge.
	URL string `json:"url"`

	// Token of the challenge. Empty for types that have none.
	Token string `json:"token"`

	// Type of the challenge as the server names it, for example http-01, dns-01 or tls-alpn-01.
	Type string `json:"type"`

	// URI by which a dns-persist-01 record names the account.
	// +optional
	AccountURI string `json:"accountURI,omitempty"`

	// Names by which a dns-persist-01 record names the server; any one of them will do.
	// +optional
	// +listType=atomic
	IssuerDomainNames []string `json:"issuerDomainNames,omitempty"`
}
