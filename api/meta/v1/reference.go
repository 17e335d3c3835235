package v1

// The issuer kind and group that an IssuerReference means when it leaves them empty. The API server
// never stores these defaults (spec §1.0): compare through KindOrDefault and GroupOrDefault.
const (
	DefaultIssuerKind  = "Issuer"
	DefaultIssuerGroup = "cert-manager.io"

	// ClusterIssuerKind names the cluster-scoped issuer kind of DefaultIssuerGroup.
	ClusterIssuerKind = "ClusterIssuer"
)

// IssuerReference names the issuer that signs.
// +kubebuilder:validation:XValidation:rule=`self.name != ""`,message="issuerRef.name: must not be empty: name the issuer",fieldPath=".name"
// +kubebuilder:validation:XValidation:rule=`has(self.group) && !(self.group in ["", 'cert-manager.io']) || !has(self.kind) || self.kind in ["", 'Issuer', 'ClusterIssuer']`,message="issuerRef.kind: use Issuer or ClusterIssuer; for an external issuer set issuerRef.group to its group as well",fieldPath=".kind"
type IssuerReference struct {
	// Name of the issuer.
	Name string `json:"name"`

	// Kind of the issuer: Issuer (the default, in the same namespace), ClusterIssuer, or the kind of an
	// external issuer.
	// +optional
	Kind string `json:"kind,omitempty"`

	// API group of the issuer. Empty means cert-manager.io.
	// +optional
	Group string `json:"group,omitempty"`
}

// KindOrDefault returns the kind, or Issuer where it is left empty.
func (r IssuerReference) KindOrDefault() string {
	if r.Kind == "" {
		return DefaultIssuerKind
	}
	return r.Kind
}

// GroupOrDefault returns the group, or cert-manager.io where it is left empty.
func (r IssuerReference) GroupOrDefault() string {
	if r.Group == "" {
		return DefaultIssuerGroup
	}
	return r.Group
}

// IsExternal reports whether a controller other than ours owns the issuer.
func (r IssuerReference) IsExternal() bool {
	return r.GroupOrDefault() != DefaultIssuerGroup
}

// NamespaceFrom returns the namespace of the issuer, for a reference from within a namespace: a ClusterIssuer has none.
func (r IssuerReference) NamespaceFrom(namespace string) string {
	if r.KindOrDefault() == ClusterIssuerKind {
		return ""
	}
	return namespace
}

// Equivalent reports whether both references mean the same issuer once defaults are applied.
func (r IssuerReference) Equivalent(other IssuerReference) bool {
	return r.Name == other.Name &&
		r.KindOrDefault() == other.KindOrDefault() &&
		r.GroupOrDefault() == other.GroupOrDefault()
}

// LocalObjectReference names an object in the namespace of the one that refers to it. From a
// ClusterIssuer this is the cluster resource namespace.
type LocalObjectReference struct {
	// Name of the object.
	Name string `json:"name"`
}

// SecretKeySelector names one entry of a Secret's data.
type SecretKeySelector struct {
	// Name of the Secret.
	Name string `json:"name"`

	// Key of the entry in the Secret's data. Some fields have a default key and may leave it empty.
	// +optional
	Key string `json:"key,omitempty"`
}

// KeyOr returns the key, or the given default where it is left empty.
func (s SecretKeySelector) KeyOr(key string) string {
	if s.Key == "" {
		return key
	}
	return s.Key
}

// ConditionStatus says whether a condition holds.
// +kubebuilder:validation:Enum=True;False;Unknown
type ConditionStatus string

// The statuses of a condition.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// Keys of Secret data that more than one kind reads or writes.
const (
	// TLSCertKey holds a PEM chain, leaf first (kubernetes.io/tls).
	TLSCertKey = "tls.crt"
	// TLSPrivateKeyKey holds a PEM private key (kubernetes.io/tls).
	TLSPrivateKeyKey = "tls.key"
	// TLSCAKey holds the PEM certificate of the signing authority.
	TLSCAKey = "ca.crt"
)
