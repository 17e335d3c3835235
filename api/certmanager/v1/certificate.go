package v1

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cmmeta "chancery.dev/api/meta/v1"
)

// Bounds and defaults of a Certificate (spec §1.0). Defaults apply at run time and are not stored.
const (
	DefaultCertificateDuration = 90 * 24 * time.Hour
	MinimumCertificateDuration = time.Hour
	MinimumRenewBefore         = 5 * time.Minute

	DefaultRevisionHistoryLimit = 1
	DefaultRSAKeySize           = 2048
	MinimumRSAKeySize           = 2048
	MaximumRSAKeySize           = 8192
	DefaultECDSAKeySize         = 256
	DefaultJKSAlias             = "certificate"

	// MaximumCommonNameLength is in bytes (ub-common-name, RFC 5280 appendix A.1).
	MaximumCommonNameLength = 64
)

// Certificate asks for a certificate to be kept, valid and up to date, in a Secret.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="chancery.dev/definition=1"
// +kubebuilder:resource:scope=Namespaced,shortName={cert,certs},categories=cert-manager
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.group`
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.kind`
// +kubebuilder:selectablefield:JSONPath=`.spec.issuerRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type == "Ready")].status`
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.spec.secretName`
// +kubebuilder:printcolumn:name="Issuer",type=string,JSONPath=`.spec.issuerRef.name`,priority=1
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type == "Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Expiration",type=string,JSONPath=`.status.notAfter`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule=`has(self.spec)`,message="spec: is missing: say which certificate to keep, with secretName, issuerRef and at least one name"
type Certificate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What certificate to keep, and where.
	// +optional
	Spec CertificateSpec `json:"spec,omitzero"`

	// How the certificate stands.
	// +optional
	// +kubebuilder:default={observedGeneration:0}
	Status CertificateStatus `json:"status,omitzero"`
}

// CertificateList is a list of Certificates.
// +kubebuilder:object:root=true
type CertificateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Certificate `json:"items"`
}

// CertificateSpec says what certificate to keep, and where.
// +kubebuilder:validation:XValidation:rule=`!has(self.literalSubject) || self.literalSubject == "" || !has(self.subject) && (!has(self.commonName) || self.commonName == "")`,message="literalSubject: cannot be combined with subject or commonName: remove them, or write them into literalSubject",fieldPath=".literalSubject"
// +kubebuilder:validation:XValidation:rule=`has(self.commonName) && self.commonName != "" || has(self.literalSubject) && self.literalSubject != "" || has(self.dnsNames) && self.dnsNames.size() > 0 || has(self.uris) && self.uris.size() > 0 || has(self.emailAddresses) && self.emailAddresses.size() > 0 || has(self.ipAddresses) && self.ipAddresses.size() > 0 || has(self.otherNames) && self.otherNames.size() > 0`,message="at least one of commonName, literalSubject, dnsNames, uris, emailAddresses, ipAddresses and otherNames must be set"
// +kubebuilder:validation:XValidation:rule=`!has(self.renewBefore) || !has(self.renewBeforePercentage)`,message="renewBefore and renewBeforePercentage exclude each other: remove one",fieldPath=".renewBefore"
// +kubebuilder:validation:XValidation:rule=`!has(self.renewBefore) || !self.renewBefore.matches(r'^([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$') || has(self.duration) && !self.duration.matches(r'^([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$') || duration(self.renewBefore) < duration(has(self.duration) ? self.duration : '2160h')`,message="renewBefore: must be less than duration, which is 2160h where it is not set",fieldPath=".renewBefore"
// +kubebuilder:validation:XValidation:rule=`!has(self.renewBeforePercentage) || !has(self.duration) || !self.duration.matches(r'^([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$') || duration(self.duration).getSeconds() * self.renewBeforePercentage >= 30000`,message="renewBeforePercentage: comes to less than 5m of the duration, and renewBefore has to be at least 5m: use a larger one",fieldPath=".renewBeforePercentage"
// +kubebuilder:validation:XValidation:rule=`!has(self.signatureAlgorithm) || (has(self.privateKey) && has(self.privateKey.algorithm) ? self.privateKey.algorithm : 'RSA') == (self.signatureAlgorithm.startsWith('Pure') ? self.signatureAlgorithm.substring(4) : self.signatureAlgorithm.startsWith('ECDSA') ? 'ECDSA' : 'RSA')`,message="signatureAlgorithm: must belong to privateKey.algorithm, which is RSA where it is not set",fieldPath=".signatureAlgorithm"
// +kubebuilder:validation:XValidation:rule=`!has(self.privateKey) || !has(self.privateKey.algorithm) || !self.privateKey.algorithm.startsWith('MLDSA') || !has(self.usages) || !self.usages.exists(u, u in ['key encipherment', 'data encipherment', 'key agreement', 'encipher only', 'decipher only'])`,message="usages: an ML-DSA key only signs: remove encipherment and key agreement",fieldPath=".usages"
// +kubebuilder:validation:XValidation:rule=`!has(self.nameConstraints) || has(self.isCA) && self.isCA`,message="nameConstraints: only a certificate authority has them: set isCA to true, or remove them",fieldPath=".nameConstraints"
type CertificateSpec struct {
	// Subject of the certificate beside its common name.
	// +optional
	Subject *X509Subject `json:"subject,omitempty"`

	// Whole subject, as a distinguished name in the form of RFC 4514. Excludes subject and commonName.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'(?is)^((\s*(CN|L|ST|O|OU|C|STREET|DC|UID|SERIALNUMBER|POSTALCODE|[0-9]+([.][0-9]+)+)\s*=([^,+;\\]|\\.)*[,+;])*\s*(CN|L|ST|O|OU|C|STREET|DC|UID|SERIALNUMBER|POSTALCODE|[0-9]+([.][0-9]+)+)\s*=([^,+;\\]|\\.)*|\s*)$')`,message="literalSubject: must be pairs of a key and a value (RFC 4514), such as CN=web,O=Example",messageExpression=`'Literal subject contains unrecognized key with value [' + self.substring(self.find(r'(?is)^(\s*(CN|L|ST|O|OU|C|STREET|DC|UID|SERIALNUMBER|POSTALCODE|[0-9]+([.][0-9]+)+)\s*=([^,+;\\]|\\.)*[,+;])*').size()).find(r'(?s)=([^,+;\\]|\\.)*').substring(1).trim() + ']: known are CN, L, ST, O, OU, C, STREET, DC, UID, SERIALNUMBER, POSTALCODE and object identifiers'`
	LiteralSubject string `json:"literalSubject,omitempty"`

	// Common name, of 64 bytes at most. Clients verify the other names: prefer dnsNames.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`bytes(self).size() <= 64`,message="commonName: must have 64 bytes at most: put longer names into dnsNames"
	CommonName string `json:"commonName,omitempty"`

	// Lifetime to ask for: at least 1h, 2160h (90 days) by default. The issuer may give another.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1h')`,message="duration: must be at least 1h, written as in 2160h or 90m"
	Duration *metav1.Duration `json:"duration,omitempty"`

	// How long before its expiry the certificate is renewed: at least 5m, less than its duration. By
	// default the last third of its lifetime. Excludes renewBeforePercentage.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('5m')`,message="renewBefore: must be at least 5m, written as in 360h or 90m"
	RenewBefore *metav1.Duration `json:"renewBefore,omitempty"`

	// Percentage of its lifetime before its expiry at which the certificate is renewed: at least 5m of the
	// duration. Excludes renewBefore.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self > 0 && self < 100`,message="renewBeforePercentage: must be between 1 and 99"
	RenewBeforePercentage *int32 `json:"renewBeforePercentage,omitempty"`

	// Whether, and at what times of the day or week, the certificate is renewed.
	// +optional
	Renewal *CertificateRenewal `json:"renewal,omitempty"`

	// DNS names of the certificate.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=512
	DNSNames []string `json:"dnsNames,omitempty"`

	// IP addresses of the certificate.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.all(a, isIP(a) || a.lowerAscii().startsWith('::ffff:') && isIP(a.substring(7)))`,message="ipAddresses: every entry must be an IPv4 or IPv6 address, without a port or a prefix length"
	IPAddresses []string `json:"ipAddresses,omitempty"`

	// URIs of the certificate.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=2048
	URIs []string `json:"uris,omitempty"`

	// Other names of the certificate (otherName, RFC 5280 §4.2.1.6).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	OtherNames []OtherName `json:"otherNames,omitempty"`

	// E-mail addresses of the certificate, without display names.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self.all(a, a.matches(r'^("[^"]*"|[^@<>,;:\\\s"]+)@[^@<>,;\s"]+$'))`,message="emailAddresses: every entry must be a bare address such as name@example.com, without a display name"
	EmailAddresses []string `json:"emailAddresses,omitempty"`

	// Secret, in the same namespace, that the certificate and its key are kept in.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="secretName: must be a DNS subdomain: lower case letters, digits, '-' and '.', such as example-com-tls"
	SecretName string `json:"secretName"`

	// Metadata to add to the Secret.
	// +optional
	SecretTemplate *CertificateSecretTemplate `json:"secretTemplate,omitempty"`

	// Keystores to keep in the Secret besides PEM.
	// +optional
	Keystores *CertificateKeystores `json:"keystores,omitempty"`

	// Issuer that signs the certificate.
	IssuerRef cmmeta.IssuerReference `json:"issuerRef"`

	// Whether the certificate may sign others.
	// +optional
	IsCA bool `json:"isCA,omitempty"`

	// What the key may be used for. By default digital signature and, unless it is an ML-DSA key, key encipherment.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Usages []KeyUsage `json:"usages,omitempty"`

	// How the private key is made, and when anew.
	// +optional
	PrivateKey *CertificatePrivateKey `json:"privateKey,omitempty"`

	// Algorithm that signs the request. It must suit the private key.
	// +optional
	SignatureAlgorithm SignatureAlgorithm `json:"signatureAlgorithm,omitempty"`

	// Whether the request carries the usages, beside naming them to the issuer. True by default.
	// +optional
	EncodeUsagesInRequest *bool `json:"encodeUsagesInRequest,omitempty"`

	// How many CertificateRequests are kept. 1 by default.
	// +optional
	// +kubebuilder:validation:Minimum=1
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// Further forms of certificate and key to keep in the Secret.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule=`self.all(f, self.exists_one(g, g.type == f.type))`,message="additionalOutputFormats: every type may be listed once: remove the duplicate"
	AdditionalOutputFormats []CertificateAdditionalOutputFormat `json:"additionalOutputFormats,omitempty"`

	// Names that a certificate authority may sign (RFC 5280 §4.2.1.10). Needs isCA.
	// +optional
	NameConstraints *NameConstraints `json:"nameConstraints,omitempty"`
}

// X509Subject is the parts of a certificate's subject beside its common name.
type X509Subject struct {
	// Organizations (O).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=1024
	Organizations []string `json:"organizations,omitempty"`

	// Countries (C).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=1024
	Countries []string `json:"countries,omitempty"`

	// Organizational units (OU).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=1024
	OrganizationalUnits []string `json:"organizationalUnits,omitempty"`

	// Cities (L).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=1024
	Localities []string `json:"localities,omitempty"`

	// States or provinces (ST).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=1024
	Provinces []string `json:"provinces,omitempty"`

	// Street addresses (STREET).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=1024
	StreetAddresses []string `json:"streetAddresses,omitempty"`

	// Postal codes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=1024
	PostalCodes []string `json:"postalCodes,omitempty"`

	// Serial number of the subject; not that of the certificate.
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
}

// OtherName is a name of a type that an object identifier gives.
// +kubebuilder:validation:XValidation:rule=`has(self.oid)`,message="must be set to an object identifier such as 1.3.6.1.4.1.311.20.2.3",fieldPath=".oid",reason="FieldValueRequired"
// +kubebuilder:validation:XValidation:rule=`has(self.utf8Value) && self.utf8Value != ""`,message="must be set to a valid non-empty UTF8 string",fieldPath=".utf8Value",reason="FieldValueRequired"
type OtherName struct {
	// Object identifier of the type, dotted.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[0-9]+([.][0-9]+)+$')`,message="invalid oid syntax"
	OID string `json:"oid,omitempty"`

	// Value, encoded as a UTF8String.
	// +optional
	UTF8Value string `json:"utf8Value,omitempty"`
}

// CertificateRenewal says whether, and when, a certificate is renewed.
// +kubebuilder:validation:XValidation:rule=`self.policy != 'Disabled' || !has(self.windows) || self.windows.size() == 0`,message="renewal.windows: must be empty where renewal.policy is Disabled: remove them, or use RenewBefore",fieldPath=".windows"
type CertificateRenewal struct {
	// RenewBefore renews before the certificate expires; Disabled lets it expire.
	Policy CertificateRenewalPolicy `json:"policy"`

	// Times at which the certificate may be renewed. Without any: at all times.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Windows []CertificateRenewalWindow `json:"windows,omitempty"`
}

// CertificateRenewalPolicy says whether a certificate is renewed.
// +kubebuilder:validation:Enum=RenewBefore;Disabled
type CertificateRenewalPolicy string

// The renewal policies.
const (
	RenewalPolicyRenewBefore CertificateRenewalPolicy = "RenewBefore"
	RenewalPolicyDisabled    CertificateRenewalPolicy = "Disabled"
)

// RenewalTimeSource says who has decided when a certificate is to be renewed.
// +kubebuilder:validation:Enum=Default;RenewBefore;RenewBeforePercentage;ARI
type RenewalTimeSource string

// Who decides when a certificate is to be renewed.
const (
	// RenewalTimeByDefault is the rule for Certificates whose spec does not say when.
	RenewalTimeByDefault RenewalTimeSource = "Default"
	// RenewalTimeByRenewBefore is spec.renewBefore.
	RenewalTimeByRenewBefore RenewalTimeSource = "RenewBefore"
	// RenewalTimeByPercentage is spec.renewBeforePercentage.
	RenewalTimeByPercentage RenewalTimeSource = "RenewBeforePercentage"
	// RenewalTimeByARI is the window that the ACME server suggests (RFC 9773).
	RenewalTimeByARI RenewalTimeSource = "ARI"
)

// CertificateRenewalWindow is a repeated time at which a certificate may be renewed.
type CertificateRenewalWindow struct {
	// When the window opens: five cron fields, or a word such as @daily.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*((CRON_)?TZ=\S+\s+)?(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|,*([*?]|(0*[0-5]?[0-9])(-(0*[0-5]?[0-9]))?)(/[0-9]*[1-9][0-9]*)?(,+([*?]|(0*[0-5]?[0-9])(-(0*[0-5]?[0-9]))?)(/[0-9]*[1-9][0-9]*)?)*,*\s+,*([*?]|(0*([01]?[0-9]|2[0-3]))(-(0*([01]?[0-9]|2[0-3])))?)(/[0-9]*[1-9][0-9]*)?(,+([*?]|(0*([01]?[0-9]|2[0-3]))(-(0*([01]?[0-9]|2[0-3])))?)(/[0-9]*[1-9][0-9]*)?)*,*\s+,*([*?]|(0*([1-9]|[12][0-9]|3[01]))(-(0*([1-9]|[12][0-9]|3[01])))?)(/[0-9]*[1-9][0-9]*)?(,+([*?]|(0*([1-9]|[12][0-9]|3[01]))(-(0*([1-9]|[12][0-9]|3[01])))?)(/[0-9]*[1-9][0-9]*)?)*,*\s+,*([*?]|(0*([1-9]|1[0-2])|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))(-(0*([1-9]|1[0-2])|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)))?)(/[0-9]*[1-9][0-9]*)?(,+([*?]|(0*([1-9]|1[0-2])|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))(-(0*([1-9]|1[0-2])|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)))?)(/[0-9]*[1-9][0-9]*)?)*,*\s+,*([*?]|(0*[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat))(-(0*[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat)))?)(/[0-9]*[1-9][0-9]*)?(,+([*?]|(0*[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat))(-(0*[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat)))?)(/[0-9]*[1-9][0-9]*)?)*,*)\s*$')`,message="cron: must have five fields (minute, hour, day, month, day of the week from 0 for Sunday), as in 0 2 * * 6, or be a word such as @daily"
	Cron string `json:"cron"`

	// How long the window stays open, for example 2h30m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(s|m|h))+$`
	WindowDuration metav1.Duration `json:"windowDuration"`

	// Time zone of cron, by its IANA name. UTC by default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule=`self != 'Local' && self.matches(r'^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$')`,message="timezone: must be a time zone of the IANA database, such as Europe/Dublin"
	Timezone string `json:"timezone,omitempty"`
}

// CertificateSecretTemplate is metadata to add to the Secret of a certificate.
type CertificateSecretTemplate struct {
	// Annotations to add.
	// +optional
	// +kubebuilder:validation:MaxProperties=1000
	// +kubebuilder:validation:XValidation:rule=`self.all(k, !k.startsWith('cert-manager.io/') || k == 'cert-manager.io/allow-direct-injection')`,message="secretTemplate.annotations: keys may not start with cert-manager.io/, except cert-manager.io/allow-direct-injection"
	// +kubebuilder:validation:XValidation:rule=`self.all(k, k.matches(r'^([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))`,message="secretTemplate.annotations: every key must be a qualified name such as example.com/name"
	Annotations map[string]string `json:"annotations,omitempty"`

	// Labels to add.
	// +optional
	// +kubebuilder:validation:MaxProperties=1000
	// +kubebuilder:validation:XValidation:rule=`self.all(k, k.matches(r'^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))`,message="secretTemplate.labels: every key must be a qualified name such as example.com/name"
	// +kubebuilder:validation:XValidation:rule=`self.all(k, self[k].size() <= 63)`,message="secretTemplate.labels: every value must have 63 characters at most"
	Labels map[string]string `json:"labels,omitempty"`
}

// CertificateKeystores says which keystores to keep beside PEM.
type CertificateKeystores struct {
	// Java keystore, in keystore.jks and truststore.jks.
	// +optional
	JKS *JKSKeystore `json:"jks,omitempty"`

	// PKCS#12 keystore (RFC 7292), in keystore.p12 and truststore.p12.
	// +optional
	PKCS12 *PKCS12Keystore `json:"pkcs12,omitempty"`
}

// JKSKeystore configures a Java keystore: with exactly one of passwordSecretRef and password.
// +kubebuilder:validation:XValidation:rule=`(has(self.password) && self.password != "") != (has(self.passwordSecretRef) && self.passwordSecretRef.name != "")`,message="keystores.jks: set exactly one of password and passwordSecretRef"
type JKSKeystore struct {
	// Whether to keep the keystore.
	Create bool `json:"create"`

	// Alias of the key. certificate by default.
	// +optional
	Alias *string `json:"alias,omitempty"`

	// Secret that holds the keystore's password.
	// +optional
	PasswordSecretRef cmmeta.SecretKeySelector `json:"passwordSecretRef,omitzero"`

	// Password of the keystore, for uses in which it is not a secret.
	// +optional
	Password *string `json:"password,omitempty"`
}

// PKCS12Keystore configures a PKCS#12 keystore: with exactly one of passwordSecretRef and password.
// +kubebuilder:validation:XValidation:rule=`(has(self.password) && self.password != "") != (has(self.passwordSecretRef) && self.passwordSecretRef.name != "")`,message="keystores.pkcs12: set exactly one of password and passwordSecretRef"
type PKCS12Keystore struct {
	// Whether to keep the keystore.
	Create bool `json:"create"`

	// Algorithms of the keystore. LegacyRC2 by default, which every reader knows; Modern2023 and
	// Modern2026 are safe.
	// +optional
	Profile PKCS12Profile `json:"profile,omitempty"`

	// Secret that holds the keystore's password.
	// +optional
	PasswordSecretRef cmmeta.SecretKeySelector `json:"passwordSecretRef,omitzero"`

	// Password of the keystore, for uses in which it is not a secret.
	// +optional
	Password *string `json:"password,omitempty"`
}

// PKCS12Profile names the algorithms of a PKCS#12 keystore.
// +kubebuilder:validation:Enum=LegacyRC2;LegacyDES;Modern2023;Modern2026
type PKCS12Profile string

// The PKCS#12 profiles. Empty means LegacyRC2.
const (
	PKCS12LegacyRC2  PKCS12Profile = "LegacyRC2"
	PKCS12LegacyDES  PKCS12Profile = "LegacyDES"
	PKCS12Modern2023 PKCS12Profile = "Modern2023"
	PKCS12Modern2026 PKCS12Profile = "Modern2026"
)

// CertificatePrivateKey says how a private key is made, and when anew.
// +kubebuilder:validation:XValidation:rule=`has(self.algorithm) && self.algorithm != 'RSA' || !has(self.size) || self.size == 0 || self.size >= 2048 && self.size <= 8192`,message="privateKey.size: for RSA use 2048 to 8192",fieldPath=".size"
// +kubebuilder:validation:XValidation:rule=`!has(self.algorithm) || self.algorithm != 'ECDSA' || !has(self.size) || self.size in [0, 256, 384, 521]`,message="privateKey.size: for ECDSA use 256, 384 or 521",fieldPath=".size"
// +kubebuilder:validation:XValidation:rule=`!has(self.algorithm) || !self.algorithm.startsWith('MLDSA') || !has(self.size) || self.size == 0`,message="privateKey.size: an ML-DSA key has one size: remove it",fieldPath=".size"
// +kubebuilder:validation:XValidation:rule=`!has(self.algorithm) || !self.algorithm.startsWith('MLDSA') || !has(self.encoding) || self.encoding != 'PKCS1'`,message="privateKey.encoding: an ML-DSA key is always PKCS8",fieldPath=".encoding"
type CertificatePrivateKey struct {
	// Always (the default) makes a new key at each issuance; Never keeps the one that there is.
	// +optional
	RotationPolicy PrivateKeyRotationPolicy `json:"rotationPolicy,omitempty"`

	// Encoding of the key in the Secret: PKCS1 (the default; SEC 1 for ECDSA) or PKCS8. Ed25519 and
	// ML-DSA are always PKCS8.
	// +optional
	Encoding PrivateKeyEncoding `json:"encoding,omitempty"`

	// Algorithm of the key. RSA by default. MLDSA44, MLDSA65 and MLDSA87 (FIPS 204) are for CA and SelfSigned issuers,
	// and for TLS 1.3.
	// +optional
	Algorithm PrivateKeyAlgorithm `json:"algorithm,omitempty"`

	// Size of the key in bits. RSA: 2048 (the default) to 8192. ECDSA: 256 (the default), 384 or 521.
	// Ed25519 and ML-DSA have only one.
	// +optional
	Size int `json:"size,omitempty"`
}

// OnlySigns reports whether such a key signs, and does nothing else: one of ML-DSA (RFC 9881 §5). Nil does not.
func (k *CertificatePrivateKey) OnlySigns() bool {
	return k != nil && strings.HasPrefix(string(k.Algorithm), "MLDSA")
}

// PrivateKeyRotationPolicy says when a private key is made anew.
// +kubebuilder:validation:Enum=Never;Always
type PrivateKeyRotationPolicy string

// The rotation policies. Empty means Always.
const (
	RotationPolicyNever  PrivateKeyRotationPolicy = "Never"
	RotationPolicyAlways PrivateKeyRotationPolicy = "Always"
)

// PrivateKeyEncoding names the encoding of a private key.
// +kubebuilder:validation:Enum=PKCS1;PKCS8
type PrivateKeyEncoding string

// The encodings. Empty means PKCS1, which for ECDSA is that of SEC 1.
const (
	PKCS1 PrivateKeyEncoding = "PKCS1"
	PKCS8 PrivateKeyEncoding = "PKCS8"
)

// PrivateKeyAlgorithm names the algorithm of a private key.
// +kubebuilder:validation:Enum=RSA;ECDSA;Ed25519;MLDSA44;MLDSA65;MLDSA87
type PrivateKeyAlgorithm string

// The key algorithms. Empty means RSA.
const (
	RSAKeyAlgorithm     PrivateKeyAlgorithm = "RSA"
	ECDSAKeyAlgorithm   PrivateKeyAlgorithm = "ECDSA"
	Ed25519KeyAlgorithm PrivateKeyAlgorithm = "Ed25519"
	MLDSA44KeyAlgorithm PrivateKeyAlgorithm = "MLDSA44"
	MLDSA65KeyAlgorithm PrivateKeyAlgorithm = "MLDSA65"
	MLDSA87KeyAlgorithm PrivateKeyAlgorithm = "MLDSA87"
)

// SignatureAlgorithm names an algorithm that signs a request.
// +kubebuilder:validation:Enum=SHA256WithRSA;SHA384WithRSA;SHA512WithRSA;ECDSAWithSHA256;ECDSAWithSHA384;ECDSAWithSHA512;PureEd25519;PureMLDSA44;PureMLDSA65;PureMLDSA87
type SignatureAlgorithm string

// The signature algorithms.
const (
	SHA256WithRSA   SignatureAlgorithm = "SHA256WithRSA"
	SHA384WithRSA   SignatureAlgorithm = "SHA384WithRSA"
	SHA512WithRSA   SignatureAlgorithm = "SHA512WithRSA"
	ECDSAWithSHA256 SignatureAlgorithm = "ECDSAWithSHA256"
	ECDSAWithSHA384 SignatureAlgorithm = "ECDSAWithSHA384"
	ECDSAWithSHA512 SignatureAlgorithm = "ECDSAWithSHA512"
	PureEd25519     SignatureAlgorithm = "PureEd25519"
	PureMLDSA44     SignatureAlgorithm = "PureMLDSA44"
	PureMLDSA65     SignatureAlgorithm = "PureMLDSA65"
	PureMLDSA87     SignatureAlgorithm = "PureMLDSA87"
)

// CertificateAdditionalOutputFormat is one further form of certificate and key.
type CertificateAdditionalOutputFormat struct {
	// DER keeps the key in key.der; CombinedPEM keeps key and chain in tls-combined.pem.
	Type CertificateOutputFormatType `json:"type"`
}

// CertificateOutputFormatType names a form of certificate and key.
// +kubebuilder:validation:Enum=DER;CombinedPEM
type CertificateOutputFormatType string

// The additional output formats.
const (
	OutputFormatDER         CertificateOutputFormatType = "DER"
	OutputFormatCombinedPEM CertificateOutputFormatType = "CombinedPEM"
)

// NameConstraints limits the names that a certificate authority may sign.
// +kubebuilder:validation:XValidation:rule=`has(self.permitted) || has(self.excluded)`,message="nameConstraints: set permitted or excluded"
type NameConstraints struct {
	// Whether a client that does not understand the limits has to refuse the certificate.
	// +optional
	Critical bool `json:"critical,omitempty"`

	// Names that may be signed.
	// +optional
	Permitted *NameConstraintItem `json:"permitted,omitempty"`

	// Names that may not be signed, even if they are permitted.
	// +optional
	Excluded *NameConstraintItem `json:"excluded,omitempty"`
}

// NameConstraintItem is a set of names, by type.
type NameConstraintItem struct {
	// Domains, with all below them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=512
	DNSDomains []string `json:"dnsDomains,omitempty"`

	// IP address ranges, in CIDR form.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.all(r, isCIDR(r))`,message="ipRanges: every entry must be a range in CIDR form, such as 10.0.0.0/8"
	IPRanges []string `json:"ipRanges,omitempty"`

	// E-mail addresses, or domains of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=512
	EmailAddresses []string `json:"emailAddresses,omitempty"`

	// Domains of URIs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=512
	URIDomains []string `json:"uriDomains,omitempty"`
}
