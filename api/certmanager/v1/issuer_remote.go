package v1

import (
	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// Mount paths and Secret keys that a Vault or Venafi issuer means where it leaves them empty
// (spec §1.3.4, §1.3.5).
const (
	DefaultVaultTokenKey            = "token"
	DefaultVaultAppRolePath         = "approle"
	DefaultVaultClientCertMountPath = "/v1/auth/cert"
	DefaultVaultKubernetesMountPath = "/v1/auth/kubernetes"
	DefaultVaultAWSMountPath        = "/v1/auth/aws"
	DefaultVenafiCloudTokenKey      = "api-key"
)

// VaultIssuer signs by HashiCorp Vault's PKI engine.
// +kubebuilder:validation:XValidation:rule=`!has(self.caBundle) || !has(self.caBundleSecretRef)`,message="specified caBundle and caBundleSecretRef cannot be used together",fieldPath=".caBundle"
// +kubebuilder:validation:XValidation:rule=`!has(self.caBundleSecretRef) || !has(self.caBundle)`,message="specified caBundleSecretRef and caBundle cannot be used together",fieldPath=".caBundleSecretRef"
// +kubebuilder:validation:XValidation:rule=`has(self.clientCertSecretRef) == has(self.clientKeySecretRef)`,message="clientCertSecretRef and clientKeySecretRef belong together: set both or none"
type VaultIssuer struct {
	// How to log in: one of its fields.
	Auth VaultAuth `json:"auth"`

	// Address of the server.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="vault.server: must not be empty: set the address of the server, such as https://vault.example.com"
	Server string `json:"server"`

	// Name that the server's certificate has to be for, where it differs from the address.
	// +optional
	ServerName string `json:"serverName,omitempty"`

	// Path that signs, for example pki/sign/role.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="vault.path: must not be empty: set the path that signs, such as pki/sign/role"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'(^|/)[.][.](/|$)')`,message="vault.path: must not contain a segment '..'"
	Path string `json:"path"`

	// Vault namespace.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Certificates, PEM encoded, that the server's own certificate is verified with. Excludes
	// caBundleSecretRef.
	// +optional
	// +kubebuilder:validation:MaxLength=440000
	// +kubebuilder:validation:XValidation:rule=`string(self).contains('-----BEGIN CERTIFICATE-----')`,message="vault.caBundle: must hold certificates in PEM form"
	CABundle []byte `json:"caBundle,omitempty"`

	// Secret that holds the certificates that the server's own certificate is verified with. The key
	// defaults to ca.crt. Excludes caBundle.
	// +optional
	CABundleSecretRef *cmmeta.SecretKeySelector `json:"caBundleSecretRef,omitempty"`

	// Secret that holds the certificate to show to the server. The key defaults to tls.crt. Needs
	// clientKeySecretRef.
	// +optional
	ClientCertSecretRef *cmmeta.SecretKeySelector `json:"clientCertSecretRef,omitempty"`

	// Secret that holds the key of that certificate. The key defaults to tls.key. Needs
	// clientCertSecretRef.
	// +optional
	ClientKeySecretRef *cmmeta.SecretKeySelector `json:"clientKeySecretRef,omitempty"`
}

// VaultAuth logs in to Vault: by one of its fields.
type VaultAuth struct {
	// Secret that holds a token. The key defaults to token.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.name != ""`,message="tokenSecretRef.name: must not be empty"
	TokenSecretRef *cmmeta.SecretKeySelector `json:"tokenSecretRef,omitempty"`

	// Log in by an AppRole.
	// +optional
	AppRole *VaultAppRole `json:"appRole,omitempty"`

	// Log in by a TLS client certificate.
	// +optional
	ClientCertificate *VaultClientCertificateAuth `json:"clientCertificate,omitempty"`

	// Log in by the token of a service account.
	// +optional
	Kubernetes *VaultKubernetesAuth `json:"kubernetes,omitempty"`

	// Log in by an identity of AWS.
	// +optional
	AWS *VaultAWSAuth `json:"aws,omitempty"`
}

// VaultAppRole logs in by an AppRole.
// +kubebuilder:validation:XValidation:rule=`self.path != "" && self.roleId != ""`,message="appRole: path and roleId must not be empty"
type VaultAppRole struct {
	// Where the AppRole method is mounted, for example approle.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'(^|/)[.][.](/|$)')`,message="appRole.path: must not contain a segment '..'"
	Path string `json:"path"`

	// Identifier of the role.
	RoleID string `json:"roleId"`

	// Secret that holds the role's secret id. The key is required.
	// +kubebuilder:validation:XValidation:rule=`self.name != "" && has(self.key) && self.key != ""`,message="appRole.secretRef: set name and key of the Secret entry"
	SecretRef cmmeta.SecretKeySelector `json:"secretRef"`
}

// VaultClientCertificateAuth logs in by a TLS client certificate.
type VaultClientCertificateAuth struct {
	// Where the method is mounted. /v1/auth/cert by default.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'(^|/)[.][.](/|$)')`,message="clientCertificate.mountPath: must not contain a segment '..'"
	Path string `json:"mountPath,omitempty"`

	// Secret, of type kubernetes.io/tls, that holds the certificate. Without it, the one of
	// clientCertSecretRef is shown.
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// Name of the role. Without it, Vault finds one that matches.
	// +optional
	Name string `json:"name,omitempty"`
}

// VaultKubernetesAuth logs in by the token of a service account: with exactly one of secretRef and
// serviceAccountRef.
// +kubebuilder:validation:XValidation:rule=`(has(self.secretRef) && self.secretRef.name != "") != has(self.serviceAccountRef)`,message="kubernetes: set exactly one of secretRef and serviceAccountRef"
type VaultKubernetesAuth struct {
	// Where the method is mounted. /v1/auth/kubernetes by default.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'(^|/)[.][.](/|$)')`,message="kubernetes.mountPath: must not contain a segment '..'"
	Path string `json:"mountPath,omitempty"`

	// Secret that holds a service account's token. The key defaults to token.
	// +optional
	SecretRef cmmeta.SecretKeySelector `json:"secretRef,omitzero"`

	// Service account to ask a token for.
	// +optional
	ServiceAccountRef *acmev1.ServiceAccountRef `json:"serviceAccountRef,omitempty"`

	// Name of the role.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="kubernetes.role: must not be empty: name the Vault role"
	Role string `json:"role"`
}

// VaultAWSAuth logs in by an identity of AWS.
type VaultAWSAuth struct {
	// Where the method is mounted. /v1/auth/aws by default.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'(^|/)[.][.](/|$)')`,message="aws.mountPath: must not contain a segment '..'"
	Path string `json:"mountPath,omitempty"`

	// Name of the role.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="aws.role: must not be empty: name the Vault role"
	Role string `json:"role"`

	// Region that signs the request.
	// +optional
	Region string `json:"region,omitempty"`

	// Service account whose token is exchanged for an AWS identity. Needs iamRoleArn. Without it, ambient
	// credentials are used.
	// +optional
	ServiceAccountRef *acmev1.ServiceAccountRef `json:"serviceAccountRef,omitempty"`

	// AWS role that the service account's token is exchanged for.
	// +optional
	IAMRoleARN string `json:"iamRoleArn,omitempty"`

	// Value of the header X-Vault-AWS-IAM-Server-ID, where Vault asks for it.
	// +optional
	VaultHeaderValue string `json:"vaultHeaderValue,omitempty"`
}

// VenafiIssuer signs by CyberArk Certificate Manager (formerly Venafi): by exactly one of tpp, cloud and
// ngts.
// +kubebuilder:validation:XValidation:rule=`[has(self.tpp), has(self.cloud), has(self.ngts)].filter(x, x).size() == 1`,message="exactly one of tpp, cloud and ngts must be set"
type VenafiIssuer struct {
	// Policy zone.
	// +kubebuilder:validation:XValidation:rule=`self != ""`,message="venafi.zone: must not be empty: set the policy zone"
	Zone string `json:"zone"`

	// Certificate Manager, Self-Hosted (formerly Trust Protection Platform).
	// +optional
	TPP *VenafiTPP `json:"tpp,omitempty"`

	// Certificate Manager, SaaS (formerly Venafi as a Service).
	// +optional
	Cloud *VenafiCloud `json:"cloud,omitempty"`

	// Next-generation trust security.
	// +optional
	NGTS *VenafiNGTS `json:"ngts,omitempty"`
}

// VenafiTPP reaches Certificate Manager, Self-Hosted.
// +kubebuilder:validation:XValidation:rule=`self.url != "" && self.credentialsRef.name != ""`,message="tpp: url and credentialsRef.name must not be empty"
// +kubebuilder:validation:XValidation:rule=`!has(self.caBundle) || !has(self.caBundleSecretRef)`,message="specified caBundle and caBundleSecretRef cannot be used together",fieldPath=".caBundle"
// +kubebuilder:validation:XValidation:rule=`!has(self.caBundleSecretRef) || !has(self.caBundle)`,message="specified caBundleSecretRef and caBundle cannot be used together",fieldPath=".caBundleSecretRef"
type VenafiTPP struct {
	// Address of the vedsdk API.
	URL string `json:"url"`

	// Secret that holds access-token, or username and password.
	CredentialsRef cmmeta.LocalObjectReference `json:"credentialsRef"`

	// Certificates, PEM encoded, that the server's own certificate is verified with. Excludes
	// caBundleSecretRef.
	// +optional
	// +kubebuilder:validation:MaxLength=440000
	// +kubebuilder:validation:XValidation:rule=`string(self).contains('-----BEGIN CERTIFICATE-----')`,message="tpp.caBundle: must hold certificates in PEM form"
	CABundle []byte `json:"caBundle,omitempty"`

	// Secret that holds the certificates that the server's own certificate is verified with. The key
	// defaults to ca.crt. Excludes caBundle.
	// +optional
	CABundleSecretRef *cmmeta.SecretKeySelector `json:"caBundleSecretRef,omitempty"`
}

// VenafiCloud reaches Certificate Manager, SaaS.
type VenafiCloud struct {
	// Address of the API, where it is not the usual one.
	// +optional
	URL string `json:"url,omitempty"`

	// Secret that holds the API key. The key defaults to api-key.
	// +kubebuilder:validation:XValidation:rule=`self.name != ""`,message="apiTokenSecretRef.name: must not be empty"
	APITokenSecretRef cmmeta.SecretKeySelector `json:"apiTokenSecretRef"`
}

// VenafiNGTS reaches next-generation trust security.
// +kubebuilder:validation:XValidation:rule=`self.tsgID != "" && self.credentialsRef.name != ""`,message="ngts: tsgID and credentialsRef.name must not be empty"
type VenafiNGTS struct {
	// Address of the API, where it is not the usual one.
	// +optional
	URL string `json:"url,omitempty"`

	// Address that gives tokens, where it is not the usual one.
	// +optional
	TokenEndpoint string `json:"tokenEndpoint,omitempty"`

	// Identifier of the tenant service group.
	TSGID string `json:"tsgID"`

	// Secret that holds client-id and client-secret.
	CredentialsRef cmmeta.LocalObjectReference `json:"credentialsRef"`
}
