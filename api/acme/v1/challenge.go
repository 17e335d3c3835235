package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmmeta "chancery.dev/api/meta/v1"
)

// ACMEChallengeType is a way of proving control of a name.
// +kubebuilder:validation:Enum=HTTP-01;DNS-01;DNS-ACCOUNT-01;DNS-PERSIST-01;TLS-ALPN-01
type ACMEChallengeType string

// The challenge types that have solvers (RFC 8555 §8.3, §8.4, draft-ietf-acme-dns-account-label-03,
// draft-ietf-acme-dns-persist-01, RFC 8737).
const (
	ChallengeTypeHTTP01       ACMEChallengeType = "HTTP-01"
	ChallengeTypeDNS01        ACMEChallengeType = "DNS-01"
	ChallengeTypeDNSAccount01 ACMEChallengeType = "DNS-ACCOUNT-01"
	ChallengeTypeDNSPersist01 ACMEChallengeType = "DNS-PERSIST-01"
	ChallengeTypeTLSALPN01    ACMEChallengeType = "TLS-ALPN-01"
)

// Challenge proves control of one name to an ACME server. Challenges are made by the controller, never
// by hand.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="chancery.dev/definition=1"
// +kubebuilder:resource:scope=Namespaced,categories={cert-manager,cert-manager-acme}
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.group`
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.kind`
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.name`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Domain",type=string,JSONPath=`.spec.dnsName`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Challenge struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// What to prove, and how. It cannot be changed once the Challenge is created.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="spec: cannot be changed once the Challenge is created: delete the Order to start anew"
	Spec ChallengeSpec `json:"spec"`

	// Where the challenge stands.
	// +optional
	// +kubebuilder:default={observedGeneration:0}
	Status ChallengeStatus `json:"status,omitzero"`
}

// ChallengeList is a list of Challenges.
// +kubebuilder:object:root=true
type ChallengeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Challenge `json:"items"`
}

// ChallengeSpec says what to prove, and how.
// +kubebuilder:validation:XValidation:rule=`self.type == 'DNS-ACCOUNT-01' ? has(self.accountLabel) && self.accountLabel.matches(r'^[a-z2-7]{16}$') : !has(self.accountLabel) || self.accountLabel == ""`,message="accountLabel: a challenge of the type DNS-ACCOUNT-01 has one, of 16 letters a to z and digits 2 to 7; others have none"
type ChallengeSpec struct {
	// URL of the challenge.
	URL string `json:"url"`

	// URL of the authorization that the challenge belongs to.
	AuthorizationURL string `json:"authorizationURL"`

	// Name to prove control of, without a leading wildcard label.
	DNSName string `json:"dnsName"`

	// Whether the authorization is for the wildcard of dnsName.
	// +optional
	Wildcard bool `json:"wildcard"`

	// Type of the challenge.
	Type ACMEChallengeType `json:"type"`

	// Token of the challenge. Empty for types that have none.
	Token string `json:"token"`

	// What is presented: for HTTP-01 and TLS-ALPN-01 the key authorization, for DNS-01 and DNS-ACCOUNT-01 the value of
	// the TXT record (RFC 8555 §8.1, §8.4); for DNS-PERSIST-01 the value that a TXT record has to have, or one like it.
	Key string `json:"key"`

	// Label of the ACME account in the name of the TXT record of DNS-ACCOUNT-01, which is
	// _<accountLabel>._acme-challenge.<dnsName>. Empty for other types.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	AccountLabel string `json:"accountLabel,omitempty"`

	// Solver that presents the key: a copy of the one chosen from the issuer.
	Solver ACMEChallengeSolver `json:"solver"`

	// Issuer whose ACME account the challenge belongs to.
	IssuerRef cmmeta.IssuerReference `json:"issuerRef"`
}

// ChallengeStatus says where a challenge stands.
//
// Processing and presented are written even when false: clients read them as an explicit answer.
type ChallengeStatus struct {
	// The generation that this status is about: kstatus reads it.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Whether the challenge is under way (Reconciling), or has failed for good (Stalled): kstatus reads it. Empty once
	// the challenge is valid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`

	// Whether the scheduler has let the challenge start. Nothing happens before.
	// +optional
	Processing bool `json:"processing"`

	// Whether the solver has presented the key.
	// +optional
	Presented bool `json:"presented"`

	// When the solver first presented the key.
	// +optional
	PresentedAt *metav1.Time `json:"presentedAt,omitempty"`

	// Since when the ACME server validates, of a challenge that others got the place of meanwhile. It holds its name for
	// ten minutes from then on.
	// +optional
	ValidatingSince *metav1.Time `json:"validatingSince,omitempty"`

	// Why the challenge is in its state, or what it waits for.
	// +optional
	Reason string `json:"reason,omitempty"`

	// How the reason ends, after a semicolon, once it has said what is the matter: when the next try is, for example.
	// +optional
	ReasonEnd string `json:"reasonEnd,omitempty"`

	// Kind of failure that the reason tells of: of the one that ended the challenge, or of what it waits for. A
	// challenge that another controller has left has none.
	// +optional
	FailureClass FailureClass `json:"failureClass,omitempty"`

	// Type of the problem that the ACME server has answered with, where the reason tells of one (RFC 8555 §6.7), for
	// example urn:ietf:params:acme:error:caa.
	// +optional
	ProblemType string `json:"problemType,omitempty"`

	// State of the challenge.
	// +optional
	State State `json:"state,omitempty"`
}
