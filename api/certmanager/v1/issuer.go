package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// GenericIssuer is an Issuer or a ClusterIssuer.
// +kubebuilder:object:generate=false
type GenericIssuer interface {
	metav1.Object
	runtime.Object

	// GetSpec returns the issuer's own spec, not a copy.
	GetSpec() *IssuerSpec
	// GetStatus returns the issuer's own status, not a copy.
	GetStatus() *IssuerStatus
}

// NewIssuer returns an Issuer or a ClusterIssuer that has a name and nothing else yet: the one that a reference from
// within a namespace names. The reference is one to GroupName.
func NewIssuer(ref cmmeta.IssuerReference, namespace string) GenericIssuer {
	meta := metav1.ObjectMeta{Namespace: ref.NamespaceFrom(namespace), Name: ref.Name}
	if ref.KindOrDefault() == cmmeta.ClusterIssuerKind {
		return &ClusterIssuer{ObjectMeta: meta}
	}
	return &Issuer{ObjectMeta: meta}
}

// Issuer signs for the CertificateRequests of its namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="chancery.dev/definition=1"
// +kubebuilder:resource:scope=Namespaced,shortName=iss,categories=cert-manager
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type == "Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type == "Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Issuer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// How the issuer signs.
	Spec IssuerSpec `json:"spec"`

	// Whether the issuer is ready to sign.
	// +optional
	// +kubebuilder:default={observedGeneration:0}
	Status IssuerStatus `json:"status,omitzero"`
}

// GetSpec implements GenericIssuer.
func (i *Issuer) GetSpec() *IssuerSpec { return &i.Spec }

// GetStatus implements GenericIssuer.
func (i *Issuer) GetStatus() *IssuerStatus { return &i.Status }

// IssuerList is a list of Issuers.
// +kubebuilder:object:root=true
type IssuerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Issuer `json:"items"`
}

// ClusterIssuer signs for the CertificateRequests of all namespaces.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="chancery.dev/definition=1"
// +kubebuilder:resource:scope=Cluster,shortName=ciss,categories=cert-manager
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type == "Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type == "Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterIssuer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// How the issuer signs.
	Spec IssuerSpec `json:"spec"`

	// Whether the issuer is ready to sign.
	// +optional
	// +kubebuilder:default={observedGeneration:0}
	Status IssuerStatus `json:"status,omitzero"`
}

// GetSpec implements GenericIssuer.
func (i *ClusterIssuer) GetSpec() *IssuerSpec { return &i.Spec }

// GetStatus implements GenericIssuer.
func (i *ClusterIssuer) GetStatus() *IssuerStatus { return &i.Status }

// ClusterIssuerList is a list of ClusterIssuers.
// +kubebuilder:object:root=true
type ClusterIssuerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []ClusterIssuer `json:"items"`
}

// IssuerSpec says how an issuer signs: exactly one of its fields.
// +kubebuilder:validation:XValidation:rule=`[has(self.acme), has(self.ca), has(self.vault), has(self.selfSigned), has(self.venafi)].filter(x, x).size() == 1`,message="exactly one of acme, ca, vault, selfSigned and venafi must be set"
type IssuerSpec struct {
	// Sign by an ACME server, such as Let's Encrypt (RFC 8555).
	// +optional
	ACME *acmev1.ACMEIssuer `json:"acme,omitempty"`

	// Sign with a certificate authority whose key is in a Secret.
	// +optional
	CA *CAIssuer `json:"ca,omitempty"`

	// Sign by HashiCorp Vault's PKI engine.
	// +optional
	Vault *VaultIssuer `json:"vault,omitempty"`

	// Sign each certificate with its own key.
	// +optional
	SelfSigned *SelfSignedIssuer `json:"selfSigned,omitempty"`

	// Sign by CyberArk Certificate Manager (formerly Venafi).
	// +optional
	Venafi *VenafiIssuer `json:"venafi,omitempty"`
}

// SelfSignedIssuer signs each certificate with its own key.
type SelfSignedIssuer struct {
	// Addresses of revocation lists to put into certificates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	CRLDistributionPoints []string `json:"crlDistributionPoints,omitempty"`
}

// CAIssuer signs with a certificate authority whose key is in a Secret.
type CAIssuer struct {
	// Secret that holds the authority's chain and key, in tls.crt and tls.key.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="ca.secretName: must not be empty: name the Secret that holds the authority's certificate and key"
	SecretName string `json:"secretName"`

	// Addresses of revocation lists to put into certificates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	CRLDistributionPoints []string `json:"crlDistributionPoints,omitempty"`

	// Addresses of OCSP responders to put into certificates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	OCSPServers []string `json:"ocspServers,omitempty"`

	// Addresses of the authority's own certificate to put into certificates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	IssuingCertificateURLs []string `json:"issuingCertificateURLs,omitempty"`
}

// IssuerConditionType names a condition of an Issuer or ClusterIssuer.
type IssuerConditionType string

// IssuerConditionReady says whether the issuer can sign.
const IssuerConditionReady IssuerConditionType = "Ready"

// IssuerConditionHTTP01Ready, our own, is False while nobody would answer the HTTP-01 challenges of an ACME issuer. It
// is not there otherwise. The issuer may be ready all the same: for challenges of other types.
const IssuerConditionHTTP01Ready IssuerConditionType = "chancery.dev/HTTP01Ready"

// IssuerStatus says whether an issuer is ready to sign.
type IssuerStatus struct {
	// The generation that this status is about: kstatus reads it.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the issuer: Ready, and chancery.dev/HTTP01Ready while nobody answers HTTP-01 challenges.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []IssuerCondition `json:"conditions,omitempty"`

	// How the issuer is known to its ACME server.
	// +optional
	ACME *acmev1.ACMEIssuerStatus `json:"acme,omitempty"`

	// Our own: what a CA issuer signs with, and since when.
	// +optional
	CA *CAIssuerStatus `json:"ca,omitempty"`
}

// CAIssuerStatus says what a CA issuer signs with, and since when.
type CAIssuerStatus struct {
	// SHA-256, in hexadecimal, of the subject and the public key of the CA (SubjectPublicKeyInfo), both in DER. A CA
	// certificate that is renewed with the same subject and key has the same.
	Authority string `json:"authority"`

	// When the controller has first found this CA in the issuer's Secret. Certificates of an earlier CA are renewed
	// from then on.
	FirstSeen metav1.Time `json:"firstSeen"`

	// From when on that certificate is valid which expires first of those that the issuer signs with and delivers: the
	// CA's own, or one above it.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`

	// When that certificate expires: nothing that the issuer has signed is trusted after that.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`

	// Whether this CA has taken the place of another one. It is not set for a CA that the controller has found when it
	// looked at the issuer for the first time.
	// +optional
	Replaced bool `json:"replaced,omitempty"`

	// Older roots that ca.crt of the issuer's Secret holds behind the root, and that are valid.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	OlderRoots []OlderRoot `json:"olderRoots,omitempty"`
}

// OlderRoot is a root that a CA had before.
type OlderRoot struct {
	// SHA-256 of its subject and its public key, as in authority.
	Authority string `json:"authority"`

	// When it expires. What it has signed is trusted until then.
	NotAfter metav1.Time `json:"notAfter"`

	// Why no links lead from the CA to this root (RFC 4210 §4.4): clients that have no other root refuse what the issuer
	// signs. It is empty if links lead there. The issuer hands them on with the annotation chancery.dev/deliver-roots,
	// until shortly before they expire.
	// +optional
	Unlinked string `json:"unlinked,omitempty"`
}

// IssuerCondition is one condition of an Issuer or ClusterIssuer.
type IssuerCondition struct {
	// Type of the condition: Ready.
	Type IssuerConditionType `json:"type"`

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

	// Generation of the issuer that the condition was decided for.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
